"""Reduce the installed runtime to what DirectML needs on a machine with an NVIDIA GPU and without a network.

    python scripts/gpu_pack.py runtime.tar.xz [--release 1.30.0]

An installation has 1.4 GB, but models on the GPU open only a twentieth of it. So this script runs the self-test under
strace, and archives the files that the sandbox opened. It adds the libraries that the host's driver needs. Mesa's
drivers are omitted: the other machine has no lavapipe, and sessions need --gpu. On that machine, with the same dmlprep:

    mkdir cache && tar xf runtime.tar.xz -C cache
    XDG_CACHE_HOME=$PWD/cache dmlprep runtime status --gpu auto

The archive contains Microsoft's libraries, so use it only for your own machines. Exit codes: 0 good, 3 the runtime or
strace is not installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from dmlprep.runtime.linux import inventory, sandbox, shared_folders
from dmlprep.runtime.linux.install import missing_piece
from dmlprep.runtime.linux.layout import Layout

LIBRARIES = "usr/lib/x86_64-linux-gnu"

MODULES = f"{LIBRARIES}/wine/"
"""The folder of Wine's own libraries, which the links in its folders name."""

ALWAYS = (
    *("usr/bin/bwrap", "usr/bin/cp", "usr/bin/mkdir", "usr/bin/sh", "usr/bin/sleep", "usr/bin/true"),
    *("usr/sbin/chroot", "usr/lib64/ld-linux-x86-64.so.2", "usr/share/wine/wine.inf"),
    *(f"{MODULES}x86_64-windows/{name}.dll" for name in ("vulkan-1", "winmm", "bcrypt", "cfgmgr32", "psapi", "dwmapi")),
    f"{MODULES}x86_64-unix/bcrypt.so",
)
"""Files that are opened in other cases: by another user's sandbox, by a Wine that checks its folders, or after a
failure."""

WHOLE = ("etc/fonts", "usr/share/X11/xkb", "usr/share/wine/nls", "usr/share/wine/fonts")
"""Folders whose files are opened by relative paths."""

FOR_A_DRIVER = re.compile(
    r"lib(EGL|GL|GLX|GLdispatch|vulkan|X11|X11-xcb|Xau|Xdmcp|Xext|bsd|c|dl|drm|expat|gcc_s|m|md|pthread|rt|stdc\+\+|"
    r"wayland-client|xcb(-[a-z0-9]+)?|xshmfence|z)\.so[\w.]*"
)
"""Libraries that the host's driver may load, but lavapipe does not."""

DROPPED = re.compile(r"lib(LLVM|z3|vulkan_|gallium|clang)|VkLayer")
"""Mesa's drivers, and lavapipe's compiler."""

OPENING = ("open", "openat", "execve")

CALL = re.compile(
    r"\b(open|openat|execve|stat|lstat|newfstatat|statx|access|faccessat2?)\((?:AT_FDCWD, )?\"(/[^\"]*)\""
)
"""A system call on a path, in a line of strace's output."""

SMALL = 64 << 10
"""Largest size in bytes of files that are included although a program only checked whether they exist."""


TEST = """
import sys
from pathlib import Path
from dmlprep.runtime.linux.host import LinuxHost
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.selftest import self_test
with LinuxHost(Layout(Path(sys.argv[1])), sys.argv[2]) as host:
    sys.exit("; ".join(self_test(host).failures) or 0)
"""
"""The self-test alone, because ``dml_status`` first reads every file of the installation."""


class NotRun(Exception):
    """A requirement is missing here."""


def traced(layout: Layout, release: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths in the root file system that the self-test reached, and whether each was opened."""
    if shutil.which("strace") is None:
        raise NotRun("strace is not installed")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "trace"
        line = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(log), sys.executable, "-c", TEST]
        done = subprocess.run([*line, str(layout.home), release], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotRun(f"the self-test does not pass here: {(done.stdout + done.stderr)[-500:]}")
        with log.open(errors="replace") as rows:
            yield from reached_by(rows, str(layout.root))


def reached_by(rows: Iterable[str], root: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths in the lines of a trace, and whether each was opened, or only checked."""
    for row in rows:
        call = CALL.search(row)
        if call and " = -1 " not in row:
            yield call[2].removeprefix(root), call[1] in OPENING


def chosen(layout: Layout, reached: Iterator[tuple[str, bool]]) -> set[str]:
    """Return the files and links of the root file system to include, by their paths in it."""
    wanted: set[str] = set(ALWAYS)
    for path, opened in reached:
        name = os.path.normpath(path).lstrip("/")  # Wine uses .. in folders that are not links
        here = layout.root / name
        small = here.is_file() and here.stat().st_size < SMALL and not name.startswith(MODULES)
        if opened or here.is_symlink() or small:
            wanted.add(name)
    wanted |= {f"{LIBRARIES}/{n}" for n in os.listdir(layout.root / LIBRARIES) if FOR_A_DRIVER.fullmatch(n)}
    for folder in WHOLE:
        wanted |= {str(path.relative_to(layout.root)) for path in (layout.root / folder).rglob("*")}
    names: set[str] = set()
    for name in wanted:
        names |= set(followed(layout.root, name))
    return {name for name in names if not DROPPED.search(name)}


def followed(root: Path, name: str) -> Iterator[str]:
    """Yield the file that a path in the root file system leads to, and the links on the way."""
    for _ in range(20):
        here = PurePosixPath()
        for part, rest in (
            (p, PurePosixPath(*PurePosixPath(name).parts[i + 1 :])) for i, p in enumerate(PurePosixPath(name).parts)
        ):
            here /= part
            if (root / here).is_symlink():
                yield str(here)
                target = PurePosixPath(os.readlink(root / here))
                whole = target if target.is_absolute() else PurePosixPath("/") / here.parent / target
                name = os.path.normpath(whole / rest).lstrip("/")
                break
        else:
            if (root / name).is_file():
                yield name
            return


def cut(layout: Layout, release: str, to: Layout) -> None:
    """Make a reduced installation of ``layout`` in ``to``."""
    names = chosen(layout, traced(layout, release))
    to.home.mkdir(parents=True)
    for path, folders, _files in os.walk(layout.root):
        below = Path(path).relative_to(layout.root)
        for folder in folders:
            parts = (below / folder).parts
            if not (Path(path) / folder).is_symlink() and (len(parts) < 4 or parts[0] == "sys"):
                to.root.joinpath(*parts).mkdir(parents=True, exist_ok=True)
    for link in layout.root.iterdir():
        if link.is_symlink():
            names.add(link.name)
    for name in sorted(names):
        target = to.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(layout.root / name, target, follow_symlinks=False)
    shutil.copytree(layout.built, to.built, symlinks=True)
    shutil.copytree(layout.prefix, to.prefix, symlinks=True)
    shutil.copytree(layout.release(release), to.release(release))
    shutil.copy2(layout.manifest, to.manifest)
    strip(layout, to.root / MODULES / "x86_64-windows")
    for piece, piece_folder in inventory.pieces(to).items():
        shared_folders.open_to_all(piece_folder)
        inventory.record(to, piece, piece_folder)


def strip(layout: Layout, folder: Path) -> None:
    """Remove debug information from Wine's libraries: three quarters of their size."""
    shared_folders.lend(folder, *folder.iterdir())
    script = "/usr/bin/x86_64-linux-gnu-strip --strip-debug /out/*"
    line = sandbox.command(layout.root, ["/usr/bin/sh", "-c", script], write={"/out": folder})
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    shared_folders.take_back(folder)
    if done.returncode:
        raise NotRun(f"Wine's libraries cannot be stripped: {done.stderr[-500:]}")


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the archive to write, .tar.xz")
    parser.add_argument("--release", default="", help="release of ONNX Runtime; by default the installed one")
    asked = parser.parse_args(list(arguments))
    layout = Layout.of_user()
    try:
        if reason := missing_piece(layout, asked.release):
            raise NotRun(reason)
        with tempfile.TemporaryDirectory() as folder:
            to = Layout(Path(folder) / "dmlprep" / "runtime")
            cut(layout, asked.release or layout.release_for(), to)
            with tarfile.open(asked.archive, "w:xz") as archive:
                archive.add(Path(folder) / "dmlprep", "dmlprep")
    except NotRun as error:
        print(f"gpu_pack: NOT RUN ({error})", file=sys.stderr)
        return 3
    print(f"{asked.archive}: {asked.archive.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
