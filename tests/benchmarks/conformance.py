"""ONNX's node test suite on DirectML: ``python tests/benchmarks/conformance.py``.

Every case of onnx.backend.test.case.node runs twice: with graph optimisation and fusion off and placement recorded, for
the provider of each node; and as a default session, whose outputs are compared with the suite's. A case above opset 21,
which DirectML 1.15 has no kernels for, is tried again restamped to opset 21 (key ``NAME@21``; ``--restamp 20`` for
releases before 1.21, which lack kernels of opset 21) where the CPU provider still gives the suite's results, because
many operators did not change.

Writes a JSON table (``--out``), continues one that was cut off, and writes docs/directml-conformance.md from it
(``--doc``). Takes 10 minutes on two cores. scripts/make_conformance_data.py makes target data of such tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from dmlprep.directml.quirks import quirks
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host, dml_status

LIMIT = 60.0
"""Seconds for one load or run: the largest case takes 2 s on an idle machine of two cores."""

SLACK_FP32 = 1e-3
"""The suite's own relative tolerance, of the largest value of the output: elements near zero carry the absolute
error of sums and of the hardware's approximations of functions."""

SLACK_FP16 = 2e-3
"""Two units in the last place of the largest value: FP16 inputs of a chain round at every node."""

RESTAMP = 21
"""Highest opset that ONNX Runtime's DirectML provider of 1.24 has kernels for (docs/OperatorKernels.md)."""

CPU_OPSET = 25
"""Highest opset that ONNX Runtime 1.24 loads."""


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes named by their place: ``3:If/then_branch/0:Add``."""

    def name(graph: onnx.GraphProto, prefix: str) -> None:
        for index, node in enumerate(graph.node):
            node.name = f"{prefix}{index}:{node.op_type}"
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    name(attribute.g, f"{node.name}/{attribute.name}/")

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    name(copy.graph, "")
    return copy


def restamped(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with its default domain at ``opset``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = opset
    copy.ir_version = min(copy.ir_version, 10)
    return copy


def opset_of(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def fault(found: Any, wanted: Any, rtol: float, atol: float) -> float | None:
    """max |d| / max |wanted| where the two differ by more than the suite allows, else None."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return 1.0
        faults = [fault(f, w, rtol, atol) for f, w in zip(found, wanted, strict=True)]
        return max((f for f in faults if f is not None), default=None)
    if wanted is None or found is None:
        return None if wanted is found else 1.0
    found, wanted = np.asarray(found), bits(wanted)
    if found.shape != wanted.shape:
        return 1.0
    if wanted.dtype.kind in "OUST":
        same = [
            str(a) == (b.decode() if isinstance(b, bytes) else str(b))
            for a, b in zip(found.flat, wanted.flat, strict=True)
        ]
        return None if all(same) else 1.0
    if wanted.dtype.kind == "c":
        found, wanted = found.view(wanted.real.dtype), wanted.view(wanted.real.dtype)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        scale = float(np.nanmax(np.abs(b), initial=1e-30))
        worst = float(np.nanmax(np.abs(a - b), initial=0.0)) / scale
    if not np.isfinite(worst) or not np.array_equal(np.isnan(a), np.isnan(b)):
        return 1.0
    slack = {"float32": SLACK_FP32, "float64": SLACK_FP32, "float16": SLACK_FP16}.get(wanted.dtype.name, 0.0)
    return None if worst <= slack else worst


def bits(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return [bits(item) for item in value] if isinstance(value, (list, tuple)) else np.asarray(value)


class Suite:
    """Runs cases, each on a CPU and a DirectML host that are made anew when one dies."""

    def __init__(self, cpu: SessionHost, dml: SessionHost, folder: Path) -> None:
        self.cpu, self.dml, self.path = cpu, dml, folder / "case.onnx"
        self.records_placement = int(dml.facts["onnxruntime"].split(".")[1]) >= 24

    def run(self, case: Any, model: onnx.ModelProto, host: SessionHost) -> tuple[str, str, float]:
        """What a default session did: (result, error, worst difference)."""
        names = [value.name for value in model.graph.input]
        try:
            with host.open(self.path, SessionOptions(time_limit=LIMIT, threads=1)) as session:
                for inputs, outputs in case.data_sets:
                    feeds = {n: bits(v) for n, v in zip(names, inputs, strict=False) if v is not None}
                    found = list(session.run_any(feeds).values())
                    worst = [fault(f, w, case.rtol, case.atol) for f, w in zip(found, outputs, strict=False)]
                    bad = [w for w in worst if w is not None]
                    if bad:
                        return "differs", "", max(bad)
        except SessionFailure as error:
            kind = {"load": "create_fail", "run": "run_fail", "device-removed": "run_fail"}.get(error.kind, error.kind)
            if "be fed" in error.message:
                kind = "not_run"  # 2- and 4-bit types and empty sequences cannot be made through the C interface
            return kind, error.message, 0.0
        except (ValueError, TypeError, OSError) as error:
            return "not_run", f"{type(error).__name__}: {error}", 0.0
        return "match", "", 0.0

    def placed(self) -> dict[str, str] | None:
        """Provider of each node; None before ONNX Runtime 1.24, which cannot say."""
        if not self.records_placement:
            return None
        options = SessionOptions(
            time_limit=LIMIT, optimization="disabled", unfused=True, record_placement=True, threads=1
        )
        with contextlib.suppress(SessionFailure), self.dml.open(self.path, options) as session:
            short = {"DmlExecutionProvider": "DML", "CPUExecutionProvider": "CPU"}
            return {p.name: short.get(p.provider, p.provider) for p in session.placement()}
        return None

    def one(self, case: Any, model: onnx.ModelProto, only_where_cpu_agrees: bool) -> dict[str, Any] | None:
        onnx.save(named(model), self.path)
        if only_where_cpu_agrees and self.run(case, model, self.cpu)[0] != "match":
            return None
        row: dict[str, Any] = {"opset": opset_of(model), "placed": self.placed()}
        result, error, worst = self.run(case, model, self.dml)
        if result != "match":
            on_cpu = self.run(case, model, self.cpu)[0]
            if on_cpu == "create_fail" and result == "create_fail":
                result = "cpu_does_not_load_either"
            row["cpu"] = on_cpu
        row["result"] = result
        if error:
            row["error"] = " ".join(error.split())[:300]
        if worst:
            row["rel"] = [worst]
        return row


def work(
    known: dict[str, Any], like: dict[str, Any], only: str, opset: int
) -> Iterator[tuple[str, Any, onnx.ModelProto]]:
    """Every case that is not known yet: its key, itself, and the model to run.

    Args:
        like: the table of another release, whose restamped cases are taken.
        opset: that cases above it are restamped to.
    """
    for case in collect_testcases(None):
        if case.model is None or only not in case.name:
            continue
        if case.name not in known:
            yield case.name, case, case.model
        key = f"{case.name}@{opset}"
        if opset_of(case.model) > opset and key not in known and like.get(key, {}) is not None:
            yield key, case, restamped(case.model, opset)


PAGE = """# Where DirectML fails ONNX's node tests

This page shows which of ONNX's node tests DirectML computes wrongly, refuses or crashes on. Look up an operator
here before you blame your model. `dmlprep explain CODE` explains a row, and [fix-quirks](passes/fix-quirks.md)
rewrites most of these nodes.

`python tests/benchmarks/conformance.py` writes this page: do not edit it.

## The newest release

{device}. ONNX {onnx}, {count} cases ({restamped} of them restamped to opset {restamp}), {seconds:.0f} s.

A case is *on DirectML* if at least one of its nodes ran there.

| result | on DirectML | all on the CPU |
|---|---|---|
{table}

**Limits.** The device is a CPU Vulkan driver with DirectML's generic shaders. So the page shows the provider's
partitioning, fusion and operator semantics. It does not show the kernels or the driver of a GPU maker.
"""

MEANING = {
    "match": "the suite's result",
    "differs": "another result",
    "create_fail": "refused when the session is made",
    "run_fail": "refused when it runs",
    "crash": "the worker crashed",
    "timeout": "no answer in time",
    "memory": "too much memory",
    "protocol": "no answer",
    "cpu_does_not_load_either": "ONNX Runtime does not load it at all",
    "not_run": "cannot be fed",
}


def releases_section() -> str:
    """Return the faults of DirectML that scripts/make_conformance_data.py found, by release and by quirk."""
    data = json.loads((Path(__file__).parents[1] / "directml" / "quirks" / "conformance.json").read_text())
    codes = {quirk.id: quirk.code for quirk in reversed(quirks())}
    by_outcome = {(quirk.id, quirk.outcome): quirk.code for quirk in reversed(quirks())}
    releases = list(data["releases"])
    lines = ["", "## Release by release", "", RELEASES_TEXT, ""]
    lines += [
        "| release | DirectML | cases that it loads | the suite's result | DirectML's fault |",
        "|---|---|---|---|---|",
    ]
    for name, head in data["releases"].items():
        version = re.search(r"DirectML ([\d.]+)", head["device"])
        lines.append(
            f"| {name} | {version[1] if version else ''} | {head['cases']} | {head['right']} | {head['faults']} |"
        )
    lines += ["", "## DirectML's faults", "", FAULTS_TEXT, ""]
    lines += ["| quirk | what happens | releases | cases |", "|---|---|---|---|"]
    groups: dict[tuple[str, str], tuple[set[str], set[str], set[float]]] = {}
    for case, rows in data["faults"].items():
        for release, (outcome, error, quirk) in rows.items():
            code = by_outcome.get((quirk, outcome), codes.get(quirk, ""))
            why = f"[{code}](codes/{code}.md)" if code else data["unexplained"].get(case, "")
            shown, cases, errors = groups.setdefault((why, SHORT[outcome]), (set(), set(), set()))
            shown.add(release)
            cases.add(case.removeprefix("test_").partition("@")[0])
            errors |= {error} if error else set()
    for (why, outcome), (shown, cases, errors) in sorted(groups.items(), key=lambda item: (item[0][0][0] != "[", item)):
        span = [release for release in releases if release in shown]
        which = "all" if span == releases else span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}"
        most = f", by up to {max(errors):.2g}" if errors else ""
        lines.append(f"| {why} | {outcome}{most} | {which} | {', '.join(f'`{case}`' for case in sorted(cases))} |")
    return "\n".join(lines) + "\n"


RELEASES_TEXT = """A fault is a case with nodes on DirectML that the CPU provider gets right and DirectML does not.
The other cases without the suite's result are those of the release's CPU provider."""

FAULTS_TEXT = """The error is max |d| / max |reference|, the largest of all releases and cases of the row. Names are
without `test_`. A row without a quirk says why no rule detects it."""

SHORT = {
    "wrong numbers": "wrong result",
    "create fails": "refused",
    "run fails": "refused",
    "crash": "crash",
    "no answer": "no answer",
    "too much memory": "memory",
}


def page(table: dict[str, Any], device: str, seconds: float) -> str:
    """The text of docs/directml-conformance.md."""
    real = {name: row for name, row in table.items() if row is not None}
    on_dml = {name for name, row in real.items() if "DML" in (row["placed"] or {}).values()}
    counts = Counter((row["result"], name in on_dml) for name, row in real.items())
    order = [key for key in MEANING if counts[key, True] or counts[key, False]]
    lines = [f"| {MEANING[key]} | {counts[key, True]} | {counts[key, False]} |" for key in order]

    return (
        PAGE.format(
            device=device,
            onnx=onnx.__version__,
            count=len(real),
            restamped=sum("@" in name for name in real),
            restamp=RESTAMP,
            seconds=seconds,
            table="\n".join(lines),
        )
        + releases_section()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="release of onnxruntime-directml in the runtime")
    parser.add_argument("--out", type=Path, default=Path("conformance.json"))
    parser.add_argument("--doc", type=Path, help="write the page here")
    parser.add_argument("--restamp", type=int, default=RESTAMP, help="opset that younger cases are restamped to")
    parser.add_argument("--lanes", type=int, default=2, help="workers at a time")
    parser.add_argument("--like", type=Path, help="table of another release: its restamped cases are taken unseen")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    arguments = parser.parse_args()
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    record = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {"seconds": 0.0, "cases": {}}
    known: dict[str, Any] = record["cases"]
    earlier, start = record["seconds"], time.monotonic()

    def save() -> None:
        record["seconds"] = earlier + (time.monotonic() - start if todo_count else 0.0)
        record["device"] = str(status.device)
        part = arguments.out.with_suffix(".part")
        part.write_text(json.dumps(record, sort_keys=True))
        part.replace(arguments.out)

    todo: queue.SimpleQueue[tuple[str, Any, onnx.ModelProto]] = queue.SimpleQueue()
    like = json.loads(arguments.like.read_text())["cases"] if arguments.like else {}
    for item in work(known, like, arguments.only, arguments.restamp):
        todo.put(item)
    done: queue.SimpleQueue[tuple[str, dict[str, Any] | None]] = queue.SimpleQueue()
    count = todo_count = todo.qsize()

    def lane() -> None:
        with tempfile.TemporaryDirectory() as folder, cpu_host() as cpu, dml_host(arguments.release) as dml:
            suite = Suite(cpu, dml, Path(folder))
            with contextlib.suppress(queue.Empty):
                while True:
                    name, case, model = todo.get_nowait()
                    done.put((name, suite.one(case, model, not like and "@" in name)))

    with ThreadPoolExecutor(arguments.lanes) as pool:
        lanes = [pool.submit(lane) for _ in range(arguments.lanes)]
        while count and not all(future.done() and future.exception() for future in lanes):
            with contextlib.suppress(queue.Empty):
                name, row = done.get(timeout=1.0)
                known[name] = row
                count -= 1
                if count % 50 == 0:
                    save()
                    print(f"{count} cases to go, {record['seconds']:.0f} s", file=sys.stderr)
        for future in lanes:
            future.result()
    save()
    if arguments.doc:
        arguments.doc.write_text(page(known, str(status.device), record["seconds"]))
    print(json.dumps(Counter(row["result"] for row in known.values() if row), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
