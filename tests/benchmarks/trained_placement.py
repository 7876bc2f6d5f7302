"""Models as today's exporters write them: whether all of each comes to DirectML, in FP16, with a built-in recipe alone.

Usage: python tests/benchmarks/trained_placement.py FOLDER --work FOLDER [NAME ...]

The first FOLDER holds what ``trained_exports.py`` writes. Each model is prepared with a DirectML session demanded and
no option but sizes, on made inputs; its placement is then compared with that of a real session (``check --verify``).

Each row: exit code of prepare; nodes on DirectML; fused partitions; crossings; share of the weights' bytes in FP16;
whether the session places the nodes so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from trained import Half

_RECIPES = {"convnext": ("@vision-fp16", "batch=1"), "bert": ("@transformer-fp16", "batch=1", "sequence=32")}
"""Recipe and sizes, by the first word of the file's name."""


def _dmlprep(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "dmlprep", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def _row(path: Path, work: Path) -> bool:
    recipe, *sizes = _RECIPES[path.stem.split("_")[0]]
    out = work / path.stem
    pins = [word for size in sizes for word in ("--pin", size)]
    code, said, errors = _dmlprep(
        "prepare", str(path), "-o", str(out), "--recipe", recipe, *pins, "--require-dml", "--force"
    )
    if code != 0:
        print(f"{path.stem:<20} exit {code} {(said + errors).strip().splitlines()[-1][:150]}", flush=True)
        return False
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    placed: dict[str, Any] = record["facts"]["placement_after"]
    half = Half.of(out / "model.onnx")
    verified, answer, errors = _dmlprep("check", str(out / "model.onnx"), "--verify", "--format", "json")
    agrees = verified == 0 and all(v["outcome"] == "passed" for v in json.loads(answer)["verdicts"])
    whole = placed["dml_nodes"] == placed["nodes"] and placed["partitions"] == 1 and placed["crossings"] == 0
    print(
        f"{path.stem:<20} exit 0  {placed['dml_nodes']} of {placed['nodes']} nodes  {placed['partitions']} partitions  "
        f"{placed['crossings']} crossings  bytes {100 * (half.nbytes or 0):.1f}%  "
        f"session {'agrees' if agrees else f'DIFFERS {verified} {errors[-200:]}'}",
        flush=True,
    )
    return whole and agrees and (half.nbytes or 0) > 0.9


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_intermixed_args()
    args.work.mkdir(parents=True, exist_ok=True)
    paths = [p for p in sorted(args.folder.glob("*.onnx")) if p.stem.split("_")[0] in _RECIPES]
    paths = [p for p in paths if not args.names or p.stem in args.names]
    fine = sum(_row(path, args.work) for path in paths)
    print(f"as they should be: {fine} of {len(paths)}")


if __name__ == "__main__":
    main()
