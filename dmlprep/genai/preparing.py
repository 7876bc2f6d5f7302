"""Prepare a folder of a language model (``dmlprep genai prepare``): run the steps on each model, prove and write it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, InputError, ModelRefused, ToolFailed
from dmlprep.core.files import Unfit, decode_text, read_given, unreadable
from dmlprep.core.files.links import check_inside
from dmlprep.core.files.staging import staging_folder
from dmlprep.core.files.writing import plain_errors
from dmlprep.genai.config import CONFIG
from dmlprep.genai.dml_config import DmlOptions, for_cpu, for_dml
from dmlprep.genai.folder import GenaiFolder, open_folder, other_models
from dmlprep.genai.models import PreparedModel, is_grouped, kept_types, refuse_forms, without_checks
from dmlprep.genai.needs import needs_finding, needs_of, weight_bytes
from dmlprep.genai.output import RECORD, FolderOut, copy_files, digests
from dmlprep.genai.providers import cache_faults, shares_buffer
from dmlprep.graph.model.budget import limited
from dmlprep.graph.model.input_watch import Unchanged, data_files
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.options import PrepareOptions
from dmlprep.pipeline.prepare import PrepareRequest, check_out, prepare_aside
from dmlprep.pipeline.recipe import Plan, Recipe, apply_settings, load_recipe, make_plan
from dmlprep.record import Check, RunError, RunRecord, Verdict, finding
from dmlprep.record.generation import BuilderFacts, GenaiFacts, GenaiProof, PreparedModelFacts
from dmlprep.record.origin import origin
from dmlprep.record.run_record import RunFacts
from dmlprep.runtime.tools.genai_builder import build, check_source, find_builder

Prover = Callable[[GenaiFolder, GenaiFolder], GenaiProof]
"""A function that compares a folder (the original, first) with the prepared one, and returns the proof."""

_CONFIG_BYTES = 16 << 20
_CARRIED = ("license", "licence", "notice", "copying", "use_policy", "readme", "chat_template")
"""Prefixes of file names in a Hugging Face folder that belong to the result, and that the builder does not write."""

_CARRIED_BYTES = 64 << 20


@dataclass(frozen=True)
class GenaiRequest:
    """The request of one run of ``dmlprep genai prepare``.

    Attributes:
        source: a folder for onnxruntime-genai, or a Hugging Face folder; never modified.
        out: folder of the result.
        recipe: a built-in recipe or a path; empty: ``@llm-fp16``, or ``@llm-int4`` if dmlprep has to quantize.
        precision: precision of the weights. For a Hugging Face folder, genai's model builder converts to it. For other
            folders, it only chooses the recipe if ``recipe`` is empty.
        target: name of a target that replaces the recipe's; empty: the recipe's.
        settings: recipe fields to override.
        options: options of the DirectML provider in the config of the result.
        fallback: True to write a folder for the CPU too.
        force: True to replace files in ``out``.
        builder: the Python program that runs genai's model builder; empty: the one that runs dmlprep.
        time_limit: limit in seconds for the model builder.
        prover: proves the result against the original; ``None``: no proof.
        vram: memory of the device in bytes: a result whose weights and cache need more is refused; ``None``: no limit.
        command_line: the user's command, for the record.
    """

    source: Path
    out: Path
    recipe: str = ""
    precision: Literal["fp16", "int4"] = "fp16"
    target: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    options: DmlOptions = field(default_factory=DmlOptions)
    fallback: bool = False
    force: bool = False
    builder: str = ""
    time_limit: float = 3600.0
    prover: Prover | None = None
    vram: int | None = None
    command_line: str = ""
    observer: Observer = field(default_factory=Observer)


@dataclass
class _Run:
    """The state of a run.

    Attributes:
        record: the record of the run, which grows.
        built: True if the source is a Hugging Face folder, which genai's model builder converts first.
        source: the watcher of the source's files: they must not change during the run.
        facts: facts about the run for the record.
        began: start time, from ``time.perf_counter``.
    """

    request: GenaiRequest
    record: RunRecord
    recipe: Recipe
    built: bool
    source: Unchanged = field(default_factory=Unchanged)
    facts: GenaiFacts = field(default_factory=GenaiFacts)
    began: float = field(default_factory=time.perf_counter)


def prepare_genai(request: GenaiRequest) -> RunRecord:
    """Prepare the models of a folder, prove the result, and write it as a folder.

    Returns:
        the record. With ``exit_code`` 0 the result is in place. Otherwise nothing was written, and ``error`` gives the
            reason. 1: a step refused, or the builder or the proof failed. 3: the proof did not run, or the need for
            memory is unknown.

    Raises:
        UsageError: the folder, the output, the recipe or the builder is wrong, a link leads out of the folder, or it
            was changed meanwhile.
    """
    out = FolderOut.check(request.out, request.source, folders=_folders_of(request), force=request.force)
    built = not (request.source / CONFIG).is_file() and (request.source / "config.json").is_file()
    built = built and not other_models(request.source)
    # The builder has already quantized the weights if need be; the rest becomes FP16.
    precision = "fp16" if built else request.precision
    settings = {**request.settings, **({"target": request.target} if request.target else {})}
    recipe = without_checks(apply_settings(load_recipe(request.recipe or f"@llm-{precision}"), settings))
    record = RunRecord(
        command="genai prepare",
        input=str(request.source),
        version=__version__,
        recipe=recipe.name,
        facts=RunFacts(origin=origin(request.command_line)),
    )
    run = _Run(request, record, recipe, built)
    try:
        with staging_folder(request.out) as staging:
            source = _built(run, staging / "built") if built else _open_source(run)
            _make(run, source, staging, out)
    except (ModelRefused, ToolFailed, CheckNotRun) as refused:
        record.exit_code, record.error = refused.exit_code, RunError.of(refused)
        code = refused.code or "DP878"
        record.findings.append(finding(code, refused.what, node=refused.where, severity="error", remedy=refused.fix))
    if record.exit_code:
        run.source.check()
        record.seconds = round(time.perf_counter() - run.began, 3)
    return record


def _folders_of(request: GenaiRequest) -> list[str]:
    """Return the names of the subfolders that a run creates: ``dml`` and ``cpu``, or those of the input folder."""
    if request.fallback:
        return ["dml", "cpu"]
    try:
        return sorted(entry.name for entry in os.scandir(request.source) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []  # opening it reports why


def _open_source(run: _Run) -> GenaiFolder:
    """Open the input folder, which is one for onnxruntime-genai, and begin to watch its config for changes."""
    source = run.request.source
    config = source if source.name == CONFIG and source.is_file() else source / CONFIG
    if config.is_file():  # otherwise opening the folder reports what is wrong
        run.source.take([config])
    return open_folder(source)


def _built(run: _Run, place: Path) -> GenaiFolder:
    """Run genai's model builder on a Hugging Face folder, and open its result, which is written to ``place``.

    Licences and similar files are copied to it.
    """
    request = run.request
    check_source(request.source)
    named = sorted(path for path in request.source.iterdir() if path.is_file())
    check_inside(named, request.source)
    builder = find_builder(request.builder)
    versions = ", ".join(f"{name} {version}" for name, version in builder.versions.items() if name != "Python")
    request.observer.notice(f"genai's builder creates the models ({request.precision}; {versions})")
    run.facts.builder = BuilderFacts(request.precision, dict(builder.versions))
    run.source.take(named)
    build(request.source, place, builder, request.precision, limit=request.time_limit)
    theirs = [path for path in named if path.name.lower().startswith(_CARRIED) and not (place / path.name).exists()]
    copy_files([path for path in theirs if path.stat().st_size <= _CARRIED_BYTES], request.source, place)
    return open_folder(place)


def _make(run: _Run, source: GenaiFolder, staging: Path, out: FolderOut) -> None:
    """Prepare the models of ``source`` in the folder ``staging``, prove them, and move the result into place.

    If a step or the proof fails, the record has the exit code and the reason, and nothing is moved.
    """
    request, record = run.request, run.record
    root = staging / "made"
    place = root / "dml" if request.fallback else root
    place.mkdir(parents=True)
    _check_folder(source)
    if not run.built:
        check_inside([source.path / CONFIG, *(model.file for model in source.models), *source.other_files], source.path)
    models = _models(run, source, place)
    if record.exit_code:
        return
    original = replace(source, opened={file: one.original for file, one in models.items()})
    used = _data_of(original)
    others = [path for path in source.other_files if path not in used and path != source.path / RECORD]
    if not run.built:
        run.source.take(others)
    copied = copy_files(others, source.path, place)
    _write_config(run, source, place, models)
    if request.fallback:
        copy_files(dict.fromkeys([*used, *others, *(model.file for model in source.models)]), source.path, root / "cpu")
        _write(root / "cpu" / CONFIG, for_cpu(_config_text(source)))
    results = {place / file.relative_to(source.path): one.prepared for file, one in models.items() if one.prepared}
    result = replace(open_folder(place), opened=results)
    if request.vram is not None:
        _check_memory(result, request.vram)
    if not _proved(run, original, result):
        return
    run.source.check()
    written = digests(root)
    run.facts.copied, run.facts.written, run.facts.fallback = copied, written, "cpu" if request.fallback else ""
    record.facts.genai = run.facts
    record.facts.digests = {**run.source.digests, **record.facts.digests}
    decoder = next((m.file for m in source.models if m.section.startswith("decoder")), source.models[0].file)
    shown = (place / decoder.relative_to(source.path)).relative_to(root).as_posix()
    record.output, record.output_sha256 = str(request.out), written.get(shown, "")
    record.seconds = round(time.perf_counter() - run.began, 3)
    with plain_errors(request.out / RECORD):
        (root / RECORD).write_bytes(record.to_json())
    out.exchange(root, RECORD if request.fallback else CONFIG, force=request.force)


def _check_memory(result: GenaiFolder, vram: int) -> None:
    """Raise an error if the weights and the cache of the result do not surely fit into ``vram`` bytes.

    Raises:
        ModelRefused: DP862, they do not fit.
        CheckNotRun: DP862, their size is not known.
    """
    decoder = next((result.opened[one.file] for one in result.models if one.section.startswith("decoder")), None)
    weights = sum(map(weight_bytes, result.opened.values()))
    needs = needs_of(result.config, decoder, weights, vram) if decoder is not None else None
    if (wrong := needs_finding(needs, vram)) is not None:
        kind = CheckNotRun if needs is None else ModelRefused
        raise kind(wrong.message, where=result.config.path.name, code=wrong.code, fix=wrong.remedy)


def _data_of(folder: GenaiFolder) -> set[Path]:
    """Return the paths inside the folder that are data files of its opened models, directly or through a link."""
    root = os.path.realpath(folder.path)
    really = {os.path.realpath(path) for model in folder.opened.values() for path in data_files(model)}
    # The list of other files has a depth limit; the models may have data files below it.
    inside = {folder.path / os.path.relpath(path, root) for path in really if Path(path).is_relative_to(root)}
    return inside | {path for path in folder.other_files if os.path.realpath(path) in really}


def _check_folder(source: GenaiFolder) -> None:
    """Check that the config of a folder is valid and that the models exist that it names.

    Raises:
        InputError: the config has an error, or names no model, a missing one, one outside the folder, or ``run.json``.
    """
    where, fix = str(source.path / CONFIG), "dmlprep genai check shows the problems of the folder"
    if source.outside:
        section, name = source.outside[0]
        what = f"{section} names {name!r}, which is outside the folder or contains '..'"
        raise InputError(what, where=where, fix=fix)
    if not source.models:
        raise InputError("it names no model", where=where, fix=fix)
    for model in source.models:
        if model.file.name.lower() == RECORD:
            text = f"model.{model.section} names {model.file.name}, which is the name of dmlprep's record"
            raise InputError(text, where=where, fix="rename the model, in the config too")
        if not os.path.isfile(model.file):  # also False where a file cannot have such a name
            raise InputError(f"model.{model.section} names {model.file.name}, which is missing", where=where, fix=fix)
    wrong = next((one for one in source.config.findings if one.severity == "error"), None)
    if wrong is not None:
        raise InputError(f"onnxruntime-genai refuses it: {wrong.message} [{wrong.code}]", where=where, fix=fix)


def _models(run: _Run, source: GenaiFolder, place: Path) -> Mapping[Path, PreparedModel]:
    """Prepare each model of the folder once, in ``place``; return the results by the original's file.

    If one fails, the record has its exit code and reason, and the models after it are not prepared.
    """
    record, request = run.record, run.request
    files = list(dict.fromkeys(model.file for model in source.models))
    prepared: dict[Path, PreparedModel] = {}
    digest: dict[str, str] = {}
    for file in files:
        if len(files) > 1:
            request.observer.notice(f"model {file.relative_to(source.path).as_posix()}")
        one = _one(run, source, file, place)
        prepared[file] = one
        _note(record, one, file.relative_to(source.path).as_posix() if len(files) > 1 else "")
        digest |= one.record.facts.digests
        if not run.built:
            # The proof and the folder for the CPU read the files that this run of the steps has watched so far.
            run.source.take_digests({Path(path): sha for path, sha in one.record.facts.digests.items()})
        if one.record.exit_code:
            record.exit_code, record.error = one.record.exit_code, one.record.error
            if (error := record.error) is not None:
                where = f"{file.name}: {error.where}" if error.where else file.name
                record.error = msgspec.structs.replace(error, where=where)
            break
    root = request.source if run.built else source.path
    record.facts.digests = {_shown(Path(path), source, root): sha for path, sha in digest.items()}
    record.facts.files = sorted({*record.facts.digests, str(root / CONFIG)})
    run.facts.models = {
        file.relative_to(source.path).as_posix(): PreparedModelFacts(
            [model.section for model in source.models if model.file == file],
            one.record.opset_after.get("", 0),
            one.record.facts.placement_after,
        )
        for file, one in prepared.items()
    }
    return prepared


def _shown(path: Path, source: GenaiFolder, root: Path) -> str:
    """Return a path of the folder ``source`` as text, with ``root`` instead of the folder.

    ``root`` is the folder that the user knows; ``source`` may be a temporary folder of the model builder.
    """
    return str(root / path.relative_to(source.path)) if path.is_relative_to(source.path) else str(path)


def _one(run: _Run, source: GenaiFolder, file: Path, place: Path) -> PreparedModel:
    """Run the steps on one model, and save the result in ``place`` at the same relative path.

    Raises:
        ModelRefused: the model has attention that DirectML computes wrongly or cannot load, or the config makes it read
            a wrong cache.
    """
    request, config = run.request, source.config
    decodes = any(model.file == file and model.section.startswith("decoder") for model in source.models)
    # The search's limit, within the model's context length; another model's tokens can be parts of a picture.
    limits = (config.number("model.context_length"), config.number("search.max_length")) if decodes else ()
    limit = min(filter(None, limits), default=None)
    with limited(run.recipe.limits):
        watch = Unchanged()
        model = watch.take_model(file)
        plan = _plan(run, kept_types(model, source.config))
        run.record.target, run.record.target_reason = plan.target.name, plan.target_reason
        refuse_forms(model, plan.target, limit, mended=False)
        for at, text, fix in cache_faults(config) if decodes and is_grouped(model) else ():
            if at != "search.chunk_size":  # which is removed
                raise ModelRefused(f"{at} {text}", where=str(source.path / CONFIG), code="DP878", fix=fix)
        target = place / file.relative_to(source.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        options = PrepareOptions(external_data=bool(data_files(model)))
        wanted = PrepareRequest(file, target, plan, options, observer=request.observer)
        check_out(wanted)
        original = model.copy(model.opened)
        record, result = prepare_aside(wanted, target, (model, watch))
        if result is not None:
            refuse_forms(result.model, plan.target, limit, mended=True, notes=record.all_findings())
    return PreparedModel(record, original, result.model if result is not None else None)


def _plan(run: _Run, keep: Sequence[str]) -> Plan:
    """Return the plan for one model; inputs and outputs in ``keep`` keep their types, unless the user sets them."""
    if "fp16" not in run.recipe.step or "step.fp16.keep_io" in run.request.settings:
        return make_plan(run.recipe)
    return make_plan(apply_settings(run.recipe, {"step.fp16.keep_io": list(keep)}))


def _note(record: RunRecord, one: PreparedModel, name: str) -> None:
    """Add the record of one model's run to the record of the folder; ``name`` marks its steps and verdicts.

    The first model also sets the digest, opsets and placement in the record of the folder.
    """
    run = one.record
    record.steps += [msgspec.structs.replace(step, model=name) for step in run.steps]
    record.verdicts += [
        msgspec.structs.replace(verdict, check=msgspec.structs.replace(verdict.check, model=name))
        for verdict in run.verdicts
    ]
    record.findings += run.findings
    if not record.input_sha256:  # the first is the decoder, where there is one
        record.input_sha256 = run.input_sha256
        record.opset_before, record.opset_after = run.opset_before, run.opset_after
        record.ir_before, record.ir_after = run.ir_before, run.ir_after
        facts, of_run = record.facts, run.facts
        facts.placement_before, facts.placement_after = of_run.placement_before, of_run.placement_after
        facts.nodes, facts.memory = of_run.nodes, of_run.memory


def _config_text(source: GenaiFolder) -> str:
    """Return the text of a folder's config with its line ends, but without a byte-order mark, which genai refuses.

    Raises:
        InputError: it cannot be read.
    """
    path = source.path / CONFIG
    try:
        data = read_given(path, _CONFIG_BYTES)
        text = decode_text(data)
        return text.replace("\n", "\r\n") if b"\r\n" in data else text
    except OSError as error:
        raise unreadable(error, path) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), fix=error.fix) from error


def _write_config(run: _Run, source: GenaiFolder, place: Path, models: Mapping[Path, PreparedModel]) -> None:
    decoders = {model.file for model in source.models if model.section.startswith("decoder")}
    why_not = next((why for file in decoders if (why := models[file].captures)), "")
    grouped = any(is_grouped(models[file].original) for file in decoders)
    # With GroupQueryAttention, dmlprep turns sharing on; it is not known if another decoder supports it.
    if not why_not and not grouped and not shares_buffer(source.config):
        why_not = "past and present do not share memory (search.past_present_share_buffer), which capture needs"
    options = run.request.options
    text, findings = for_dml(_config_text(source), options, capture=not why_not, why_not=why_not, grouped=grouped)
    if options.graph_capture and why_not:
        text = f"graph capture is not possible: {why_not}"
        findings.append(finding("DP874", text, severity="warning", remedy="omit --graph-capture"))
    run.record.findings += findings
    run.facts.config = [one.message for one in findings]
    _write(place / CONFIG, text)


def _write(path: Path, text: str) -> None:
    with plain_errors(path):
        path.write_text(text, encoding="utf-8", newline="")


def _proved(run: _Run, source: GenaiFolder, result: GenaiFolder) -> bool:
    """Prove the result, and add the verdicts to the record; return True if the result may be moved into place.

    Otherwise the record gets the exit code and the reason. Without a prover, the result is not proved, and the answer
    depends on the other verdicts.
    """
    record, request = run.record, run.request
    if request.prover is None:
        verdicts = [
            Verdict(Check("proof"), outcome="not-run", reason="it was switched off (--no-proof)", decides=False)
        ]
    else:
        request.observer.check_started("proof")
        proof = request.prover(source, result)
        verdicts = proof.verdicts
        for verdict in verdicts:
            request.observer.check_finished(verdict)
        # Show the user's folders instead of the staging folder and the builder's.
        run.facts.proof = msgspec.structs.replace(proof, original=str(request.source), prepared=str(request.out))
    record.verdicts += verdicts
    deciding = [v for v in record.verdicts if v.decides and v.outcome != "passed"]
    if deciding:
        one = min(deciding, key=lambda v: v.exit_code)
        record.exit_code, record.error = one.exit_code, RunError(f"{one.check}: {one.outcome}: {one.reason}")
    return not deciding
