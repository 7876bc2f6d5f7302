"""Judge the result of a kit: does it belong to this kit and model, and are its outputs the expected ones?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.core.files import unreadable
from dmlprep.core.files.writing import write_file
from dmlprep.kit.archive import Bundle, read_array
from dmlprep.kit.forms import Manifest, Result, read_manifest, read_result
from dmlprep.kit.keyfiles import check_kit_seal, check_result_seal, packer_key
from dmlprep.metrics import UserMetric, proves
from dmlprep.parity.judging import Judge, difference, no_output
from dmlprep.portable.integrity import MANIFEST, file_digest
from dmlprep.portable.keys import KIT_SEAL, RESULT_SEAL
from dmlprep.record import Check, DeviceInfo, Finding, OutputMetrics, RunError, RunRecord, Verdict, finding
from dmlprep.record.run_record import record_beside
from dmlprep.runtime.types import is_software

_DML = "DmlExecutionProvider"
_ROOM = 64 << 20
"""Bytes by which all outputs may exceed twice the expected size: their number of rows may differ."""


def verify(
    result: Path,
    kit: Path,
    metric: UserMetric | None,
    *,
    model: Path | None = None,
    record: Path | None = None,
    key: Path | None = None,
) -> tuple[Verdict, Path | None]:
    """Judge the result of a kit, and write the verdict into the model's run record, if there is one.

    The arguments are those of ``dmlprep.api.verify_kit``.

    Returns:
        the verdict, and the path of the record (``None`` without one). ``passed`` and ``failed`` are about the provider
        in the verdict's ``check``. A run on the CPU, or without a node on DirectML, proves nothing about DirectML.

    Raises:
        InputError: the kit or the result is damaged, edited or hostile; kit, result, model and record do not belong
            together; or a seal does not match the key, or is missing. Or the metric fails.
        OutputError: the record cannot be written.
    """
    with returned(result, kit, key) as answer:
        if model is not None:
            _check_model(model, answer.manifest)
        path = record or (record_beside(model) if model is not None else None)
        run = _record(path, answer.manifest) if path is not None else None
        answer.check_files()
        verdict = answer.judge(metric)
    if path is not None and run is not None:
        write_file(path, _merged(run, verdict).to_json())
    return verdict, path


@dataclass(frozen=True)
class Returned:
    """A kit and its result, both open for reading.

    ``answer`` has the files of the result, and ``name`` is the kit's name. ``keyed``: the seals of both were checked.
    """

    kit: Bundle
    answer: Bundle
    manifest: Manifest
    name: str
    result: Result
    keyed: bool

    def check_files(self) -> None:
        """Compare all files of the kit and of the result with their lists; raise InputError if one differs."""
        self.kit.check_files(self.manifest.files)
        outputs = (f for feed in self.manifest.feeds for f in feed.outputs.values())
        expected = sum(self.manifest.files[file].bytes for file in outputs) * max(len(self.manifest.candidates), 1)
        self.answer.check_files(self.result.files, most=2 * expected + _ROOM)

    def judge(self, metric: UserMetric | None, number: int = 0) -> Verdict:
        """Return the verdict on candidate ``number`` (0 is the kit's model); the files must be checked before."""
        manifest = self.manifest.of(self.manifest.candidates[number]) if number else self.manifest
        result = self.result.of(number)
        verdict = _judge(manifest, self.name, result, self.kit, self.answer, metric).on(manifest.inputs)
        return _with_origin(verdict, keyed=self.keyed, sealed=self.answer.read_seal() is not None)


@contextmanager
def returned(result: Path, kit: Path, key: Path | None) -> Iterator[Returned]:
    """Open a result and its kit in a ``with`` block, and check that they belong together.

    Args:
        key: file of the packer's key; with it, the seals of both are checked too.

    Raises:
        InputError: a file is damaged, they do not belong together, or a seal is missing or does not match the key.
    """
    own = packer_key(key) if key is not None else None
    with Bundle(kit, MANIFEST, KIT_SEAL) as sent, Bundle(result, "result.json", RESULT_SEAL) as answer:
        packed, document = sent.read_document(), answer.read_document()
        if own is not None:
            check_kit_seal(own, packed, sent)
        manifest, name = read_manifest(packed, str(kit))
        content = read_result(document, str(result))
        if content.kit != name:
            what = f"the result is of kit {content.kit[:12]}, but this is kit {name[:12]}"
            fix = "pass the kit.zip that this result came from; packing again makes another kit"
            raise InputError(what, where=str(result), code="DP811", fix=fix)
        if own is not None:
            check_result_seal(own.run_key(name), document, answer)
        yield Returned(sent, answer, manifest, name, content, own is not None)


def _with_origin(verdict: Verdict, *, keyed: bool, sealed: bool) -> Verdict:
    """Return the verdict with a note on who wrote the result: proved by a checked seal (``keyed``), or not proved.

    Without a checked seal, it gets the finding DP815. ``sealed``: the result has a seal that was not checked.
    """
    device = verdict.device or DeviceInfo("unknown")
    if keyed:
        origin, findings = "signed with the run key of this kit", verdict.findings
    else:
        origin = "not signed, so nothing proves which machine ran it"
        why = "it is signed: pass --key to check the signature" if sealed else "it is not signed"
        text = f"nothing proves who wrote this result, nor that {device.name} ran: {why}"
        findings = [*verdict.findings, finding("DP815", text)]
    return msgspec.structs.replace(verdict, device=device.also(origin), findings=findings)


def _check_model(model: Path, manifest: Manifest) -> None:
    fix = "pass the model that was packed, or pack this one"
    for name in (manifest.model.file, *manifest.model.data):
        path = model if name == manifest.model.file else model.parent / name.partition("/")[2]
        try:
            digest = file_digest(path)[1]
        except OSError as error:
            raise unreadable(error, path, code="DP811", fix=fix) from error
        if digest != manifest.files[name].sha256:
            raise InputError("this is not the file in the kit", where=str(path), code="DP811", fix=fix)


def _record(path: Path, manifest: Manifest) -> RunRecord:
    record = RunRecord.read(path)
    if record.output_sha256 != manifest.files[manifest.model.file].sha256:
        what = "this record belongs to another model than the kit's"
        raise InputError(what, where=str(path), code="DP811", fix="pass the run.json of the model that was packed")
    return record


def _merged(record: RunRecord, verdict: Verdict) -> RunRecord:
    """Add the verdict to a record, in place, and return the record.

    It replaces an earlier verdict of the same check. It also replaces verdicts of the same provider that did not run;
    if it did not run itself, only those of kits. If the record has exit code 0, or a kit had failed before, its exit
    code and error follow from the verdicts of kits. Otherwise they stay.
    """
    # A run that fails by its own checks leaves no model for a kit.
    failed_before = any(v.check.kit and v.outcome == "failed" for v in record.verdicts)
    record.verdicts = [
        v
        for v in record.verdicts
        if v.check != verdict.check
        and not (
            v.outcome == "not-run"
            and v.check.provider == verdict.check.provider
            and (v.check.kit or verdict.outcome != "not-run")
        )
    ] + [verdict]
    failed = next((v for v in record.verdicts if v.check.kit and v.outcome == "failed"), None)
    if record.exit_code == 0 or failed_before:
        record.exit_code = failed.exit_code if failed is not None else 0
        record.error = RunError(f"{failed.check} failed: {failed.reason}") if failed is not None else None
    return record


def _judge(
    manifest: Manifest, name: str, result: Result, kit: Bundle, returned: Bundle, metric: UserMetric | None
) -> Verdict:
    on_dml = result.provider == _DML
    adapter = result.device.get("adapter", "")
    tolerance = manifest.tolerances["dml" if on_dml else "cpu"]
    verdict = Verdict(
        check=Check("parity", "dml", kit=True, adapter=adapter) if on_dml else Check("parity", "cpu", kit=True),
        outcome="not-run",
        reason="not judged",
        device=_device(manifest, name, result),
        tolerance=str(tolerance),
        seconds=round(result.session.load_seconds + sum(sum(f.seconds) for f in result.feeds), 3),
    )

    def with_outcome(outcome: object, reason: str, findings: list[Finding], outputs: list[OutputMetrics]) -> Verdict:
        feeds = len(result.feeds)
        return msgspec.structs.replace(
            verdict, outcome=outcome, reason=reason, findings=findings, outputs=outputs, feeds=feeds
        )

    if idle := _not_run(result, on_dml):
        return with_outcome("not-run", idle, [finding("DP812", f"{verdict.check} did not run: {idle}")], [])
    if result.failure is not None:
        failure = result.failure
        text = f"it does not run: {failure.stage}: {failure.hresult + ': ' if failure.hresult else ''}{failure.message}"
        facts: dict[str, Any] = {"stage": failure.stage, "hresult": failure.hresult, "causes": failure.causes}
        remedy = failure.next_step or None
        return with_outcome("failed", text, [finding("DP704", text, severity="error", remedy=remedy, **facts)], [])
    if len(result.feeds) != len(manifest.feeds):
        what = f"{len(result.feeds)} of {len(manifest.feeds)} feeds ran"
        return with_outcome("not-run", what, [finding("DP812", f"{verdict.check}: {what}")], [])
    feeds = list(zip(manifest.feeds, result.feeds, strict=True))
    lost = next((n for asked, got in feeds for n in asked.outputs if n not in got.outputs), None)
    if lost is not None:
        absent = no_output("the session", lost)
        return with_outcome("failed", absent.message, [absent], [])
    judge = Judge(manifest.groups, tolerance, manifest.noise, manifest.weak, metric)
    for asked, got in feeds:
        expected = {n: read_array(kit, file) for n, file in asked.outputs.items()}
        judge.add(expected, {n: read_array(returned, got.outputs[n]) for n in asked.outputs})
    notes = []
    if manifest.metric and metric is None:
        text = f"the kit was made for the metric {manifest.metric}, which did not run: pass it with --metric"
        notes.append(finding("DP712", text))
    verdict = msgspec.structs.replace(verdict, feeds=len(result.feeds), findings=notes)
    return judge.judged(verdict, lambda m: difference(m, tolerance))


def _not_run(result: Result, on_dml: bool) -> str:
    """Return why the result proves nothing about its provider, such as that no node ran on it.

    Empty if the result can be judged: the model ran on the provider, or failed.
    """
    if result.outcome == "not-run":
        return result.reason or "the runner gave no reason"
    if result.failure is not None:
        return ""
    if result.provider not in result.session.providers:
        return f"{result.provider} was not in the session, which had {', '.join(result.session.providers) or 'nothing'}"
    if on_dml and not (result.session.kernels.get(_DML) or result.session.nodes.get(_DML)):
        return "no node ran on DirectML"
    return ""


def _device(manifest: Manifest, name: str, result: Result) -> DeviceInfo:
    """Return a description of the device on which the kit ran, in the form of other verdicts; ``name`` is the kit's."""
    facts, session = result.device, result.session
    details = [f"ONNX Runtime {result.system.get('onnxruntime', '?')}", result.system.get("system", "")]
    if result.provider == _DML:
        called = f"dml on windows: {facts.get('adapter', 'unknown adapter')}"
        details.insert(0, f"DirectML {facts.get('directml', '?')}")
        details.append(f"adapter {facts['adapter number']}" if "adapter number" in facts else "")
        details.append(f"driver {facts['driver']}" if "driver" in facts else "")
        details.append("DirectML.dll of Windows" if facts.get("directml library") == "the one of Windows" else "")
        details.append("software adapter" if facts.get("adapter kind") == "software" else "")
    else:
        called = "cpu"
        details.append("instead of DirectML, so it proves nothing about DirectML")
        details.append(proves(manifest.model.fp16, DeviceInfo("cpu", provider="cpu")))
    details += _other_options(manifest.session, session.options)
    details.append(", ".join(f"{n} kernels on {p}" for p, n in sorted(session.kernels.items())))
    timed = [s for feed in result.feeds for s in feed.seconds]
    details.append(f"{1000 * statistics.median(timed):.3g} ms a run" if timed else "")
    details.append(
        f"reference: {'the model itself on ' if manifest.reference.itself else ''}{manifest.reference.device}"
    )
    return DeviceInfo(
        called,
        [*filter(None, details), f"kit {name[:12]}"],
        "dml" if result.provider == _DML else "cpu",
        software=facts.get("adapter kind") == "software" or is_software(facts.get("adapter", "")),
    )


def _other_options(asked: Mapping[str, str], used: Mapping[str, str]) -> list[str]:
    """Return one text for each session option that the run used differently from the kit (``asked``)."""
    return [
        f"{key} {used[key]} set by hand" if key in used else f"{key} omitted by hand"
        for key in sorted({*asked, *used})
        if asked.get(key) != used.get(key)
    ]
