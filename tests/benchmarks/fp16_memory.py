"""Peak memory and time of FP16 conversion beside ``cp`` (large models) or beside onnx's load and save (small ones).

Usage: python tests/benchmarks/fp16_memory.py MODEL.onnx [MODEL.onnx ...]

Each measurement runs in a process of its own, one after the other, after a run that warms the file cache. Peak memory
is ``ru_maxrss``: anonymous and file-mapped pages.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CONVERT = """
import resource, sys, time
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.directml.targets import find_target
started = time.monotonic()
model = Model.open(sys.argv[1])
make_pass("fp16", {}).run(model, Context(find_target()))
model.save(sys.argv[2], force=True)
print(time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
_LOAD_SAVE = """
import resource, sys, time, onnx
started = time.monotonic()
onnx.save(onnx.load(sys.argv[1]), sys.argv[2])
print(time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _run(code: str, *arguments: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def _copy(model: Path, folder: Path) -> float:
    files = [model, *model.parent.glob(model.name + ".data")]
    started = time.monotonic()
    for file in files:
        subprocess.run(["cp", str(file), str(folder / file.name)], check=True)
    return time.monotonic() - started


def _measure(model: Path, folder: Path) -> None:
    size = sum(f.stat().st_size for f in (model, *model.parent.glob(model.name + ".data")))
    out = folder / "out"
    for file in (model, *model.parent.glob(model.name + ".data")):  # warm the cache for all alike
        with open(file, "rb") as source:
            while source.read(16 << 20):
                pass
    rows = []
    for _ in range(3):
        out.mkdir()
        if size > 2 << 30:
            other = _copy(model, out)
        else:
            other, _ = _run(_LOAD_SAVE, str(model), str(out / "copy.onnx"))
        shutil.rmtree(out)
        out.mkdir()
        ours, peak = _run(_CONVERT, str(model), str(out / "half.onnx"))
        shutil.rmtree(out)
        rows.append((ours / other, ours, other, peak))
    ratio, ours, other, peak = sorted(rows)[1]
    name = "cp" if size > 2 << 30 else "load+save"
    print(
        f"{model.stem:<14} {size / 1e6:8.0f} MB  fp16 {ours:7.2f} s  {name} {other:7.2f} s  ratio {ratio:5.2f}  "
        f"peak {peak:6.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Measure every model named on the command line; the middle of three runs is printed."""
    print(f"interpreter alone: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            _measure(Path(name), Path(folder))


if __name__ == "__main__":
    main()
