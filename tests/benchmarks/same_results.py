"""Prepare every fixture with this checkout and with another one, and compare the files.

``python -m tests.benchmarks.same_results OTHER`` ends with 1 if
an exit code or a file differs. Records differ by design.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ("@static-fp32", "@vision-fp16", "@transformer-fp16", "@check-only")
UNPROVED = ("--device", "cpu", "--set", "parity.cpu=false", "--set", "parity.fp16_emulation=off")


def result(checkout: Path, model: Path, recipe: str, out: Path) -> tuple[int, dict[str, str]]:
    """The exit code of ``prepare``, and the SHA-256 of each model file that it wrote."""
    command = [sys.executable, "-m", "dmlprep", "prepare", str(model), "-o", str(out), "-r", recipe, *UNPROVED]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run(command, cwd=out.parent, env=environment, capture_output=True, check=False).returncode
    files = {file.name: file for file in out.glob("model.onnx*")}
    return code, {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def main() -> int:
    """Compare both checkouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    other = parser.parse_args().other.resolve()
    different = written = count = 0
    for model in sorted((ROOT / "fixtures" / "models").glob("*.onnx")):
        for recipe in RECIPES:
            with tempfile.TemporaryDirectory() as folder:
                here, there = (
                    result(checkout, model, recipe, Path(folder) / name)
                    for name, checkout in (("here", ROOT), ("there", other))
                )
            count += 1
            written += bool(here[1])
            if here != there:
                different += 1
                print(f"{model.name} {recipe}: {here} here, {there} there", flush=True)
    print(f"{count} runs, {written} wrote a model, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
