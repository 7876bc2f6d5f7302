"""One overflow planted in a model, and how the island search finds it.

Usage: python tests/benchmarks/islands.py [bert|convnext|FILE.onnx ...] [--plant NAME ...] [--policy fast|balanced|safe]
           [--tolerance 0.01] [--size NAME=N ...] [--depth 0.5]

``bert`` (12 layers, hidden size 768) and ``convnext`` (18 blocks) are built in code with seeded weights. Plants
(``plants.py``) are put at the place that is ``--depth`` of the way through the model.

Each row: plain FP16's error, trials, nodes kept, nodes that compute in FP32 beyond the policy's, error, seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import shapes
from plants import PLANTS

from dmlprep.model import Model
from dmlprep.parity import make_feeds
from dmlprep.passes import Context, make_pass
from dmlprep.pipeline.runner import CpuRunner
from dmlprep.targets import find_target


def _open(source: str) -> Model:
    if source == "bert":
        return shapes.bert()
    if source == "convnext":
        return shapes.convnext()
    return Model.open(source)


def _saved(model: Model, folder: Path) -> Model:
    """Weights in a file, as a user's are."""
    path = folder / "planted.onnx"
    model.save(path, force=True)
    return Model.open(path)


def measure(source: str, plant: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = _open(source)
    PLANTS[plant](model, args.depth)
    model = _saved(model, folder)
    sizes = {name: int(number) for name, _, number in (s.partition("=") for s in args.size)}
    target = find_target()
    plain = Context(target)
    make_pass("fp16", {"policy": args.policy}).run(model.copy(), plain)
    context = Context(target, progress=_say if args.verbose else lambda share, text: None)
    started = time.monotonic()
    with CpuRunner(lambda one, count: make_feeds(one, sizes, count, rough=True)) as runner:
        context.runner = runner
        make_pass(
            "fp16", {"policy": args.policy, "islands": "auto", "tolerance": args.tolerance, "feeds": args.feeds}
        ).run(model, context)
    seconds = time.monotonic() - started
    before, after = plain.facts.kept_fp32, context.facts.kept_fp32
    return {
        "first": context.facts.trials[0].error,
        "trials": len(context.facts.trials),
        "kept": len(context.facts.islands),
        "fp32": len(set(after) - set(before)),
        "error": context.facts.emulation_error,
        "seconds": seconds,
        "slowest": max(t.seconds for t in context.facts.trials),
        "names": list(context.facts.islands),
    }


def _say(share: float, text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {share:4.0%} {text}", file=sys.stderr)


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "convnext"])
    parser.add_argument("--plant", nargs="*", default=list(PLANTS), choices=list(PLANTS))
    parser.add_argument("--policy", default="balanced")
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--size", nargs="*", default=[])
    parser.add_argument("--feeds", type=int, default=2)
    parser.add_argument("--depth", type=float, default=0.5)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    print(
        f"{'model':<14}{'plant':<10}{'plain':>9}{'trials':>8}{'kept':>6}{'fp32':>6}{'error':>10}{'seconds':>9}"
        f"{'slowest':>9}  names"
    )
    for source in args.models:
        for plant in args.plant:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    row = measure(source, plant, args, Path(folder))
                except LookupError as error:
                    print(f"{Path(source).stem:<14}{plant:<10} not planted: {error}")
                    continue
                except Exception as error:  # a table goes on
                    print(f"{Path(source).stem:<14}{plant:<10} {type(error).__name__}: {str(error).splitlines()[0]}")
                    continue
            names = ", ".join(row["names"][:6]) + (" ..." if len(row["names"]) > 6 else "")
            print(
                f"{Path(source).stem:<14}{plant:<10}{row['first']:>9.2g}{row['trials']:>8}{row['kept']:>6}"
                f"{row['fp32']:>6}{row['error']:>10.2g}{row['seconds']:>9.1f}{row['slowest']:>9.1f}  {names}",
                flush=True,
            )


if __name__ == "__main__":
    main()
