"""Install the runtime in stages. Each stage is recorded, so a second run continues after the last finished stage."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import CheckNotRun, OutputError, UsageError
from dmlprep.core.files import remove_tree
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.process.failure import FULL
from dmlprep.process.tools import run_tool
from dmlprep.runtime.linux import base, first_use, inventory, sandbox, shaders, shared_folders
from dmlprep.runtime.linux.install_locks import alone, installing
from dmlprep.runtime.linux.layout import NATIVE, Layout, native_digest, read_json, write_json
from dmlprep.runtime.linux.libraries import archive_version, unpack_libraries
from dmlprep.runtime.linux.pins import known_digests
from dmlprep.runtime.linux.rootfs import WINE, make_root
from dmlprep.runtime.linux.safe_fs import Beneath, LeadsOut
from dmlprep.runtime.linux.source import Say, Source
from dmlprep.runtime.linux.wheel import fetch_release

_WINE_AS_MADE = 3 << 30
"""Limit in bytes for scratch space while Wine makes its folders. They have 770 MB, before copies of libraries are
replaced by links."""

_WINE_SYSTEM = "drive_c/windows/system32"

_MODULE = 1 << 20
"""Limit for the size of a module without code, in bytes; it has 1.5 kB."""

WINE_ENVIRONMENT = {
    "WINEPREFIX": "/home/wine",
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",
    # No .NET, no browser, no menus, and no debugger, which would stop at a crash.
    "WINEDLLOVERRIDES": "mscoree=d;mshtml=d;winemenubuilder.exe=d;winedbg.exe=d",
    "WINE_D3D_CONFIG": "renderer=vulkan",  # DXGI finds its adapters by Vulkan, because there is no OpenGL
    "WINEDLLPATH": "/native",
    "DISPLAY": ":1",
}


class _Package(msgspec.Struct):
    name: str
    version: str
    suite: str
    sha256: str


class _Manifest(msgspec.Struct):
    """The record of the finished stages of an installation (``manifest.json``)."""

    base: str = ""
    native: str = ""
    prefix: bool = False
    mirror: str = ""
    signatures: dict[str, str] = {}
    packages: list[_Package] = []


def check_machine() -> None:
    """Refuse machines on which the runtime cannot work.

    Raises:
        CheckNotRun: this is not Linux on x86-64.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        what = f"the runtime is for Linux on x86-64, this is {platform.system()} on {platform.machine()}"
        raise CheckNotRun(what, fix="on Windows DirectML needs no runtime: install onnxruntime-directml")


def install(layout: Layout, source: Source, say: Say) -> str:
    """Install the missing pieces, and repair changed ones; return the release of ONNX Runtime that is then installed.

    A piece is one folder of the runtime, such as the root file system or a release. ``say`` reports the progress.

    Raises:
        CheckNotRun: a piece is not available or not as expected, or another process installs or uses the runtime. The
            message gives the next step.
        UsageError: an option is not valid, or the package of ONNX Runtime is broken or has another digest.
        OutputError: the cache folder cannot be written.
    """
    check_machine()
    where = str(layout.home)
    try:
        with installing(layout):
            return install_into(layout, source, say)
    except LeadsOut as error:
        fix = "the packages are broken or hostile: use another mirror"
        raise CheckNotRun(f"dmlprep refuses the downloaded packages: {error}", where=where, fix=fix) from error
    except OSError as error:
        fix = "free some space (the installation needs 1.7 GB), or set XDG_CACHE_HOME; then run it again"
        raise OutputError(f"cannot be written: {error}", where=where, fix=fix) from error


def install_into(layout: Layout, source: Source, say: Say) -> str:
    """Install the missing and the damaged pieces of the runtime, and return its release.

    Raises the errors of ``install``, but ``LeadsOut`` and ``OSError`` as they are.
    """
    if source.wheel is not None:
        archive_version(source.wheel)  # before the downloads
    manifest = read_manifest(layout)
    broken = broken_pieces(layout, source.release, say)
    if not layout.root.is_dir() or manifest.get("base") != base.digest() or "root" in broken:
        with alone(layout):
            manifest |= {**make_root(layout, source, say), "base": base.digest()}
        _record_piece(layout, manifest, "root", layout.root)
    if reason := sandbox.why_not(layout.root):
        raise CheckNotRun(reason)
    if manifest.get("native") != native_digest() or not layout.built.is_dir() or "native" in broken:
        say("compiling", 0, 0)
        with alone(layout):
            compile_programs(layout)
        manifest["native"] = native_digest()
        manifest.pop("prefix", None)
        _record_piece(layout, manifest, "native", layout.built)
    if "prefix" not in manifest or not layout.prefix.is_dir() or "prefix" in broken:
        say("Windows folders", 0, 0)
        with alone(layout):
            make_prefix(layout)
        manifest["prefix"] = True
        _record_piece(layout, manifest, "prefix", layout.prefix)
    version = source.release
    package = source.wheel
    if package is None and (version not in layout.installed() or f"release {version}" in broken):
        package = fetch_release(version, layout.downloads, say)
    if package is not None:
        # A file that the user names may differ from the installed one; a file from an index may not.
        known = "" if source.wheel else first_use.file_seen(layout, package.name)
        # A session may use a release that is already installed.
        with alone(layout) if layout.releases.is_dir() else contextlib.nullcontext():
            version = unpack_libraries(package, layout.releases, known)
        inventory.record(layout, f"release {version}", layout.release(version))
        first_use.remember_file(layout, package.name, package_of(layout, version)["sha256"])
    shutil.rmtree(layout.downloads, ignore_errors=True)
    for piece, folder in inventory.pieces(layout).items():
        shared_folders.open_to_all(folder)
        if not inventory.known(layout, piece):  # installed by an older dmlprep
            inventory.record(layout, piece, folder)
    return version


def broken_pieces(layout: Layout, release: str, say: Say) -> dict[str, str]:
    """Return the problem of each piece that changed since its installation, by name, and report it with ``say``.

    Files that were added to pieces are removed. If a piece changed, all compiled shaders are removed too. Contents are
    read only if files were written since the self-test.
    """
    if not layout.root.is_dir():
        return {}
    tested = last_test(layout, release).get("fingerprint")
    unchanged = release in layout.installed() and tested == fingerprint(layout, release)
    pieces = inventory.pieces(layout)
    for path in inventory.added(layout, pieces):
        say(f"removing {path.relative_to(layout.home)}, which does not belong to the installation", 0, 0)
        with alone(layout):
            path.unlink()
    broken = inventory.damage(layout, pieces, contents=not unchanged)
    for what in broken.values():
        say(f"repairing, because {what}", 0, 0)
    if broken:
        # The broken driver may have left broken shaders.
        shaders.forget(layout)
    return broken


def _record_piece(layout: Layout, manifest: dict[str, object], piece: str, folder: Path) -> None:
    shared_folders.open_to_all(folder)
    inventory.record(layout, piece, folder)
    write_json(layout.manifest, manifest)


def result_file(layout: Layout, release: str, device: str = "") -> Path:
    """Return the path of the saved self-test result. ``device`` is ``Gpu.slug``, or empty for the CPU driver."""
    return layout.checks / (f"{release}.{device}.json" if device else f"{release}.json")


def last_test(layout: Layout, release: str, device: str = "") -> dict[str, Any]:
    """Return the result of the last passed self-test, with the ``fingerprint`` of its files; empty if there is none."""
    return read_json(result_file(layout, release, device))


def package_of(layout: Layout, release: str) -> dict[str, str]:
    """Return ``file``, ``sha256`` and ``pin`` of the package that a release came from; unknown values are empty.

    ``file`` is the package's file name. ``pin`` is a verdict of ``pins.Pin``, and never empty.
    """
    package = read_json(layout.release(release) / "piece.json").get("package")
    row = {key: str(package.get(key, "") if isinstance(package, dict) else "") for key in ("file", "sha256", "pin")}
    if not row["pin"]:  # installed by an older dmlprep
        wanted = known_digests().get(row["file"], "")
        row["pin"] = "unpinned" if not wanted else "pinned" if wanted == f"sha256-{row['sha256']}" else "another"
    return row


def read_manifest(layout: Layout) -> dict[str, Any]:
    """Return the content of ``manifest.json``; empty if it is missing or not valid."""
    manifest = read_json(layout.manifest)
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(manifest, _Manifest)
        return manifest
    return {}


def compile_programs(layout: Layout) -> None:
    """Compile the native code in the sandbox, and remove its old shaders; raise ``CheckNotRun`` if it fails."""
    part, sources = shared_folders.fresh(layout.home / "native.part"), layout.home / "native.sources"
    remove_tree(sources)
    shutil.copytree(NATIVE, sources)
    shared_folders.open_to_all(sources)
    program = ["/usr/bin/sh", "/native/build.sh"]
    line = sandbox.command(layout.root, program, read={"/native": sources}, write={"/out": part})
    run_or_fail(line, "the native code cannot be compiled", 120)
    shared_folders.take_back(part)
    remove_tree(sources)
    with Beneath(part) as below, below.create("launch.sh") as out:  # the build may have left a link of this name
        out.write((NATIVE / "launch.sh").read_bytes())
    shutil.rmtree(layout.built, ignore_errors=True)
    part.replace(layout.built)
    # Compiled shaders depend on the interposer, which may have changed.
    remove_tree(layout.shaders, ignore_errors=True)


def make_prefix(layout: Layout) -> None:
    """Create Wine's prefix in the sandbox; raise ``CheckNotRun`` if Wine fails."""
    part = shared_folders.fresh(layout.home / "prefix.part")
    empty = shared_folders.fresh(layout.home / "prefix.empty")
    script = "sh /native/launch.sh wineboot -i && /usr/lib/wine/wineserver64 -w && cp -a /home/wine /out/prefix"
    line = sandbox.command(
        layout.root,
        ["/usr/bin/sh", "-c", script],
        read={"/native": layout.built, "/prefix": empty},
        write={"/out": part},
        environment=WINE_ENVIRONMENT,
        scratch=_WINE_AS_MADE,
    )
    run_or_fail(line, "Wine cannot create its folders", 180)
    shared_folders.take_back(part)
    remove_tree(empty)
    with Beneath(part) as below:
        registry = below.stat("prefix/system.reg")
    prefix = part / "prefix"
    if registry is None or not stat.S_ISREG(registry.st_mode):
        fix = "run dmlprep runtime remove, then install again"
        raise CheckNotRun("Wine created no registry", where=str(prefix), fix=fix)
    with Beneath(prefix) as below, Beneath(layout.root) as root, Beneath(layout.built) as built:
        _link_libraries(below, root)
        # This module only requests the built-in d3d12.dll, which Wine then finds in /native.
        with built.read("d3d12.dll") as source, below.create(f"{_WINE_SYSTEM}/d3d12.dll") as out:
            out.write(source.read(_MODULE))
    shutil.rmtree(layout.prefix, ignore_errors=True)
    prefix.replace(layout.prefix)
    remove_tree(part, ignore_errors=True)


def _link_libraries(prefix: Beneath, root: Beneath) -> None:
    """Replace the copies of Wine's libraries (770 MB) in a prefix by links to the root file system.

    Each worker copies the prefix.
    """
    for path in prefix.files():
        name = path.rpartition("/")[2].lower()
        mine, own = prefix.stat(path), root.stat(f"{WINE}/x86_64-windows/{name}")
        if mine is None or own is None or not path.startswith("drive_c/"):
            continue
        if stat.S_ISREG(mine.st_mode) and stat.S_ISREG(own.st_mode) and mine.st_size == own.st_size:
            prefix.link(path, f"/{WINE}/x86_64-windows/{name}")


def run_or_fail(line: list[str], what: str, limit: float) -> None:
    """Run a command; raise ``CheckNotRun`` if it fails, takes more than ``limit`` seconds, or needs too much memory."""
    try:
        result = run_tool(line, limit=limit)
    except subprocess.TimeoutExpired:
        raise CheckNotRun(f"{what}: it took longer than {limit:g} s") from None
    except OSError as error:
        if error.errno in FULL:
            raise
        raise CheckNotRun(f"{what}: {error}") from error
    if result.returncode:
        reason = "; ".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise CheckNotRun(f"{what}: {reason or f'exit code {result.returncode}'}")


def remove(layout: Layout, release: str = "") -> list[Path]:
    """Remove the runtime, or only one release of ONNX Runtime; return the removed folders, none if there is no runtime.

    Raises:
        CheckNotRun: it is being installed at the moment, or a session uses it.
        UsageError: this release is not installed.
    """
    if not layout.home.is_dir():
        return []
    with installing(layout), alone(layout):
        if release:
            target = layout.release(release)
            if file_name_problem(release) or not target.is_dir():
                raise UsageError("this release is not installed", where=release)
            shutil.rmtree(target)
            for file in (result_file(layout, release), *layout.checks.glob(f"{release}.*-*.json")):
                file.unlink(missing_ok=True)
            inventory.forget(layout, f"release {release}")
            return [target]
        # Some folders of packages have no write permission; this removes them as well.
        remove_tree(layout.home)
    return [layout.home]


def missing_piece(layout: Layout, release: str = "") -> str:
    """Return what sessions on ``release`` lack, as a sentence with its remedy; empty if nothing is missing.

    An empty ``release`` is the release that sessions use by default.
    """
    install = "run dmlprep runtime install"
    try:
        check_machine()
    except CheckNotRun as error:
        return str(error)
    if not layout.home.is_dir():
        return f"the runtime is not installed; {install}"
    manifest = read_manifest(layout)
    if not {"packages", "prefix"} <= manifest.keys() or not layout.root.is_dir() or not layout.prefix.is_dir():
        return f"the installation of the runtime is incomplete; {install}"
    if manifest.get("native") != native_digest() or manifest.get("base") != base.digest() or not layout.built.is_dir():
        return f"another release of dmlprep built the runtime; {install}"
    if not (releases := layout.installed()):
        return f"no release of ONNX Runtime is installed in the runtime; {install}"
    if release and release not in releases:
        return f"ONNX Runtime {release} is not installed in the runtime; {install} --release {release}"
    needed = inventory.pieces(layout, release or layout.release_for())
    for piece, what in inventory.damage(layout, needed).items():
        return f"the runtime is damaged: {what}; {repair_line(piece)}"
    return ""


def repair_line(piece: str) -> str:
    """Return the remedy for a damaged piece, by its name in ``inventory.pieces``."""
    option = f" --release {piece.partition(' ')[2]}" if piece.startswith("release ") else ""
    return f"run dmlprep runtime install{option} to repair it"


def fingerprint(layout: Layout, release: str, device: Sequence[object] = ()) -> str:
    """Return the SHA-256 of everything that the result of the self-test depends on.

    ``device`` identifies a GPU and its driver (``Gpu.stamp``); it is empty for the CPU driver.
    """
    digest = hashlib.sha256()
    for file in (layout.manifest, layout.release(release) / "piece.json", NATIVE.parent / "selftest.py"):
        digest.update(file.read_bytes())
    digest.update(inventory.stamp(inventory.pieces(layout, release)).encode())
    with contextlib.suppress(OSError):
        # The driver compiles for the processor of this machine.
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        digest.update("\n".join(sorted({one for one in lines if one.startswith(("flags", "model name"))})).encode())
    if device:
        digest.update(repr(device).encode())
    return digest.hexdigest()
