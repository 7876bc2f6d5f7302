"""The disk that several buckets take beside one, and the time and memory of making them.

Usage: python tests/benchmarks/buckets.py MODEL.onnx RECIPE PIN,... BUCKET BUCKET ...

    python tests/benchmarks/buckets.py sd_unet.onnx @transformer-fp16 batch=1,sequence=77 \\
        height=16,width=16 height=16,width=24 height=24,width=24

Each of the two runs is a process of its own, one after the other, both on the CPU: the model at the sizes of the last
bucket, and all buckets. Bytes are those of models and data files, without records. Peak memory is ``ru_maxrss`` of the
process itself, with mapped pages, and of the largest of its workers, which hold the sessions.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

_RUN = """
import json, resource, sys, time
import dmlprep
model, out, recipe, pins, buckets = sys.argv[1], sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:6])
began = time.monotonic()
if len(buckets) == 1:
    pins |= buckets[0]
    code = dmlprep.prepare(model, out=out, recipe=recipe, pins=pins, device="cpu", external_data=True).exit_code
else:
    code = dmlprep.prepare_buckets(model, out=out, recipe=recipe, pins=pins, device="cpu", buckets=buckets).exit_code
peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([code, time.monotonic() - began, *peaks]))
"""


def _sizes(text: str) -> dict[str, int]:
    return {name: int(size) for name, _, size in (part.partition("=") for part in text.split(",") if part)}


def _run(model: str, out: Path, recipe: str, pins: dict[str, int], buckets: list[dict[str, int]]) -> int:
    """Bytes of the models and data files that a run wrote; its figures are printed."""
    import json

    command = [sys.executable, "-c", _RUN, model, str(out), recipe, json.dumps(pins), json.dumps(buckets)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    code, seconds, own, workers = json.loads(done.stdout.splitlines()[-1])
    if code:
        raise SystemExit(f"{model} is not prepared: exit code {code}")
    files = {p.name: p.stat().st_size for p in out.iterdir() if p.suffix in (".onnx", ".data")}
    print(f"{len(buckets)} of {buckets[-1]}: {seconds:.0f} s, peak {own:.0f} MiB, workers {workers:.0f} MiB")
    for name, size in sorted(files.items()):
        print(f"  {size:>12,} {name}")
    return sum(files.values())


def main(model: str, recipe: str, pins: str, buckets: list[str]) -> None:
    """Print the figures."""
    sizes = [_sizes(text) for text in buckets]
    with tempfile.TemporaryDirectory() as folder:
        one = _run(model, Path(folder) / "one", recipe, _sizes(pins), sizes[-1:])
        many = _run(model, Path(folder) / "many", recipe, _sizes(pins), sizes)
    print(f"{len(sizes)} buckets over one: {many / one:.4f} ({many:,} over {one:,} bytes)")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
