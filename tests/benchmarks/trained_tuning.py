"""How long ``tune`` takes to rank candidates offline for models as today's exporters write them, and what it finds.

Usage: python tests/benchmarks/trained_tuning.py FOLDER [NAME ...] [--seconds 20]

FOLDER holds what ``trained_exports.py`` writes. Each row: seconds of the ranking, and of the whole command; nodes on
the CPU, fused partitions and crossings as it came and as found; the recipe. A model is as it should be where what is
found is one partition without a crossing or a node on the CPU, within the seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_SIZES = {"convnext": ("batch=1",), "bert": ("batch=1", "sequence=32")}
"""By the first word of the file's name."""


def _figures(made: dict[str, Any]) -> str:
    return f"{made['cpu_nodes']} on the CPU, {made['partitions']} partitions, {made['crossings']} crossings"


def _row(path: Path, seconds: float) -> bool:
    pins = [word for size in _SIZES[path.stem.split("_")[0]] for word in ("--pin", size)]
    command = [sys.executable, "-m", "dmlprep", "tune", str(path), *pins, "--offline", "--format", "json", "-q"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        print(f"{path.stem:<20} exit {done.returncode} {done.stderr.strip()[-150:]}", flush=True)
        return False
    found = json.loads(done.stdout)
    best = next(one["figures"] for one in found["candidates"] if one["name"] == found["chosen"])
    whole = best["cpu_nodes"] == best["crossings"] == best["alone"] == 0 and best["partitions"] == 1
    print(
        f"{path.stem:<20} {found['searched_seconds']:5.1f} s of {took:5.1f} s  {_figures(found['before'])} -> "
        f"{_figures(best)}  {found['chosen']}",
        flush=True,
    )
    return whole and took < seconds


def main() -> None:
    """Print the table; the exit code is 1 where a model is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_intermixed_args()
    paths = [path for path in sorted(args.folder.glob("*.onnx")) if path.stem.split("_")[0] in _SIZES]
    paths = [path for path in paths if not args.names or path.stem in args.names]
    fine = sum([_row(path, args.seconds) for path in paths])
    print(f"as they should be: {fine} of {len(paths)}")
    sys.exit(fine != len(paths))


if __name__ == "__main__":
    main()
