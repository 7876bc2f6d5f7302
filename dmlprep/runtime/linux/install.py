"""Build the runtime in stages, each of which leaves its mark: a second run goes on where one ended."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmlprep.errors import CheckNotRun, OutputError, UsageError
from dmlprep.runtime.failure import FULL
from dmlprep.runtime.linux import base, inventory, sandbox
from dmlprep.runtime.linux.archive import Package, Unmet, compare_versions, resolve
from dmlprep.runtime.linux.claims import alone, installing
from dmlprep.runtime.linux.layout import DEFAULT_RELEASE, NATIVE, Layout, native_digest, read_json, write_json
from dmlprep.runtime.linux.mirror import DEFAULT_KEYRING, Mirror, mirror_of_this_system
from dmlprep.runtime.linux.unpack import BadPackage, unpack
from dmlprep.runtime.linux.wheel import fetch_release, unpack_libraries

__all__ = [
    "Source",
    "check_machine",
    "fingerprint",
    "install",
    "last_test",
    "missing_piece",
    "read_manifest",
    "remove",
]

Say = Callable[[str, int, int], None]

_WINE = "usr/lib/x86_64-linux-gnu/wine"
_WINE_SYSTEM = "drive_c/windows/system32"

WINE_ENVIRONMENT = {
    "WINEPREFIX": "/home/wine",
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",
    # No .NET, no browser, no menus, and no debugger that would hold a crashed process.
    "WINEDLLOVERRIDES": "mscoree=d;mshtml=d;winemenubuilder.exe=d;winedbg.exe=d",
    "WINE_D3D_CONFIG": "renderer=vulkan",  # DXGI finds its adapters by Vulkan; there is no OpenGL here
    "WINEDLLPATH": "/native",
    "DISPLAY": ":1",
}


@dataclass(frozen=True)
class Source:
    """Where the pieces come from.

    Attributes:
        mirror: address of a Debian mirror; empty takes the one that apt uses here.
        keyring: keys of Debian's archive.
        unverified: take indexes without verifying their signature.
        release: of ONNX Runtime with DirectML.
        wheel: a wheel file in place of what pip would fetch.
    """

    mirror: str = ""
    keyring: Path = DEFAULT_KEYRING
    unverified: bool = False
    release: str = DEFAULT_RELEASE
    wheel: Path | None = None


def check_machine() -> None:
    """Refuse machines on which the runtime cannot work.

    Raises:
        CheckNotRun: not Linux on x86-64.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        raise CheckNotRun(
            f"the runtime is for Linux on x86-64, this is {platform.system()} on {platform.machine()}",
            fix="on Windows DirectML needs no runtime: install onnxruntime-directml",
        )


def install(layout: Layout, source: Source, say: Say) -> str:
    """Install what is missing; the release of ONNX Runtime that stands afterwards.

    Raises:
        CheckNotRun: something cannot be had here; the message says what to install or to pass.
        UsageError: an option makes no sense.
        OutputError: the cache folder cannot be written.
    """
    check_machine()
    try:
        with installing(layout):
            return _install(layout, source, say)
    except OSError as error:
        fix = "make room (1.7 GB while installing), or name another folder in XDG_CACHE_HOME; then run it again"
        raise OutputError(f"cannot be written: {error}", where=str(layout.home), fix=fix) from error


def _install(layout: Layout, source: Source, say: Say) -> str:
    manifest = read_manifest(layout)
    broken = _broken(layout, source.release, say)
    if not layout.root.is_dir() or manifest.get("base") != base.digest() or "root" in broken:
        with alone(layout):
            manifest |= {"packages": _make_root(layout, source, say, manifest), "base": base.digest()}
        _made(layout, manifest, "root", layout.root)
    if reason := sandbox.why_not(layout.root):
        raise CheckNotRun(reason)
    if manifest.get("native") != native_digest() or not layout.built.is_dir() or "native" in broken:
        say("compiling", 0, 0)
        with alone(layout):
            _compile(layout)
        manifest["native"] = native_digest()
        manifest.pop("prefix", None)
        _made(layout, manifest, "native", layout.built)
    if "prefix" not in manifest or not layout.prefix.is_dir() or "prefix" in broken:
        say("Windows folders", 0, 0)
        with alone(layout):
            _make_prefix(layout)
        manifest["prefix"] = True
        _made(layout, manifest, "prefix", layout.prefix)
    version = source.release
    package = source.wheel
    if package is None and (version not in layout.installed() or f"release {version}" in broken):
        package = fetch_release(version, layout.downloads, say)
    if package is not None:
        # One that stands there already may be in use.
        with alone(layout) if layout.releases.is_dir() else contextlib.nullcontext():
            version = unpack_libraries(package, layout.releases)
        inventory.record(layout, f"release {version}", layout.release(version))
    shutil.rmtree(layout.downloads, ignore_errors=True)
    for piece, folder in inventory.pieces(layout).items():
        if not inventory.known(layout, piece):  # made by an older dmlprep
            inventory.record(layout, piece, folder)
    return version


def _broken(layout: Layout, release: str, say: Say) -> dict[str, str]:
    """Pieces that are not as they were made. Reads contents only where something was written since they were tested."""
    if not layout.root.is_dir():
        return {}
    unchanged = release in layout.installed() and last_test(layout, release).get("fingerprint") == fingerprint(
        layout, release
    )
    found = inventory.damage(layout, inventory.pieces(layout).items(), contents=not unchanged)
    for what in found.values():
        say(f"repairing, because {what}", 0, 0)
    if found:
        # A driver that was broken may have left shaders that are.
        shutil.rmtree(layout.shaders, ignore_errors=True)
    return found


def _made(layout: Layout, manifest: dict[str, Any], piece: str, folder: Path) -> None:
    inventory.record(layout, piece, folder)
    write_json(layout.manifest, manifest)


def last_test(layout: Layout, release: str) -> dict[str, Any]:
    """What the last self-test that passed found, with the ``fingerprint`` of what it was run on; empty for none."""
    return read_json(layout.checks / f"{release}.json")


def read_manifest(layout: Layout) -> dict[str, Any]:
    """The manifest, empty when there is none that can be read."""
    return read_json(layout.manifest)


def _make_root(layout: Layout, source: Source, say: Say, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    url = source.mirror or mirror_of_this_system()
    if not url:
        raise UsageError(
            "no Debian mirror is known on this system",
            fix="pass --mirror URL with the address of a Debian mirror near you (the folder that holds dists and pool)",
        )
    mirror = Mirror(url, None if source.unverified else source.keyring, say)
    archives = [mirror.archive(suite) for suite in base.SUITES]
    try:
        packages = resolve(archives, base.ROOTS, prefer=base.PREFER, without=base.WITHOUT)
    except Unmet as error:
        raise CheckNotRun(
            f"the mirror lacks {error}", where=url, fix="use another mirror, or a newer dmlprep"
        ) from error
    for package in packages:
        least = base.LEAST.get(package.name)
        if least and compare_versions(package.version, least) < 0:
            raise CheckNotRun(f"{package.name} {package.version} is too old, {least} is needed", where=url)
    mirror.fetch(packages, layout.downloads)
    _unpack_all(layout, packages, say)
    manifest["mirror"] = url
    manifest["signatures"] = mirror.signatures
    return [{key: value for key, value in asdict(p).items() if key != "needs"} for p in packages]


def _unpack_all(layout: Layout, packages: list[Package], say: Say) -> None:
    part = layout.home / "root.part"
    shutil.rmtree(part, ignore_errors=True)
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", *sandbox.MOUNT_POINTS):
        (part / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (part / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "sys/devices/system/cpu", "tmp"):
        (part / name).mkdir(parents=True, exist_ok=True)
    total = sum(package.size for package in packages)
    done = 0

    def one(package: Package) -> int:
        try:
            unpack(layout.downloads / Path(package.filename).name, part, base.SKIP)
        except OSError as error:
            if error.errno in FULL:
                raise  # the package is not at fault
            raise CheckNotRun(f"cannot be unpacked: {error}", where=package.filename) from error
        except (BadPackage, EOFError, lzma.LZMAError, tarfile.TarError, zlib.error) as error:
            raise CheckNotRun(f"cannot be unpacked: {error}", where=package.filename) from error
        return package.size

    with ThreadPoolExecutor(2) as pool:
        # The largest first, so that the two threads end together.
        for size in pool.map(one, sorted(packages, key=lambda package: -package.size)):
            done += size
            say("unpacking", done, total)
    _finish_root(part)
    shutil.rmtree(layout.root, ignore_errors=True)
    part.replace(layout.root)


def _finish_root(root: Path) -> None:
    """What the packages' own scripts would have done, as far as it matters here."""
    # libwine's script: zlib from MinGW becomes one of Wine's own libraries by a mark at byte 64.
    zlib = (root / "usr/x86_64-w64-mingw32/lib/zlib1.dll").read_bytes()
    marked = zlib[:64] + b"Wine builtin DLL" + bytes(16) + zlib[96:]
    (root / _WINE / "x86_64-windows/zlib1.dll").write_bytes(marked)
    # winegcc looks for a C++ compiler before it does anything; C files never reach it.
    if not (root / "usr/bin/g++").exists():
        (root / "usr/bin/g++").symlink_to("gcc-14")
    # Wine's own Direct3D 12 stays out of the way of ours.
    (root / _WINE / "x86_64-windows/d3d12.dll").unlink(missing_ok=True)


def _compile(layout: Layout) -> None:
    part = layout.home / "native.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    line = sandbox.command(
        layout.root, ["/usr/bin/sh", "/native/build.sh"], read={"/native": NATIVE}, write={"/out": part}
    )
    _run(line, "the native code cannot be compiled", 120)
    shutil.copy2(NATIVE / "launch.sh", part / "launch.sh")
    shutil.rmtree(layout.built, ignore_errors=True)
    part.replace(layout.built)
    # Compiled shaders depend on the interposer, which may have changed.
    shutil.rmtree(layout.shaders, ignore_errors=True)
    layout.shaders.mkdir()


def _make_prefix(layout: Layout) -> None:
    part = layout.home / "prefix.part"
    shutil.rmtree(part, ignore_errors=True)
    (part / "empty").mkdir(parents=True)
    script = "sh /native/launch.sh wineboot -i && /usr/lib/wine/wineserver64 -w && cp -a /home/wine /out/prefix"
    line = sandbox.command(
        layout.root,
        ["/usr/bin/sh", "-c", script],
        read={"/native": layout.built, "/prefix": part / "empty"},
        write={"/out": part},
        environment=WINE_ENVIRONMENT,
    )
    _run(line, "Wine cannot make its folders", 180)
    made = part / "prefix"
    if not (made / "system.reg").is_file():
        raise CheckNotRun(
            "Wine made no registry", where=str(made), fix="run dmlprep runtime remove, then install again"
        )
    _link_libraries(made, layout.root)
    # A module that only says "ask for the built-in d3d12.dll", which Wine then finds in /native.
    target = made / _WINE_SYSTEM / "d3d12.dll"
    target.unlink(missing_ok=True)
    shutil.copyfile(layout.built / "d3d12.dll", target)
    shutil.rmtree(layout.prefix, ignore_errors=True)
    made.replace(layout.prefix)
    shutil.rmtree(part, ignore_errors=True)


def _link_libraries(prefix: Path, root: Path) -> None:
    """Wine copies 770 MB of its own libraries into a prefix; links serve as well, and the prefix is copied often."""
    for path in [*(prefix / "drive_c").rglob("*")]:
        own = root / _WINE / "x86_64-windows" / path.name.lower()
        if path.is_file() and not path.is_symlink() and own.is_file() and path.stat().st_size == own.stat().st_size:
            path.unlink()
            path.symlink_to(f"/{_WINE}/x86_64-windows/{own.name}")


def _run(line: list[str], what: str, limit: float) -> None:
    try:
        result = subprocess.run(
            line, capture_output=True, text=True, errors="replace", timeout=limit, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise CheckNotRun(f"{what}: it took longer than {limit:g} s") from None
    if result.returncode:
        said = "; ".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise CheckNotRun(f"{what}: {said or f'exit code {result.returncode}'}")


def remove(layout: Layout, release: str = "") -> list[Path]:
    """Remove the runtime, or one release of it; what was removed.

    Raises:
        CheckNotRun: it is being installed at this moment, or a session uses it.
        OutputError: the cache folder cannot be written.
    """
    if not layout.home.is_dir():
        return []
    with installing(layout), alone(layout):
        if release:
            target = layout.release(release)
            if not target.is_dir() or target.parent != layout.releases:
                raise UsageError("this release is not installed", where=release)
            shutil.rmtree(target)
            (layout.checks / f"{release}.json").unlink(missing_ok=True)
            inventory.forget(layout, f"release {release}")
            return [target]
        for path, folders, _files in os.walk(layout.home):
            # Folders of packages can come without the right to write; they go with the rest.
            for folder in folders:
                if not (Path(path) / folder).is_symlink():
                    (Path(path) / folder).chmod(0o700)
        shutil.rmtree(layout.home)
    return [layout.home]


def missing_piece(layout: Layout, release: str = "") -> str:
    """What is missing for sessions on ``release`` (empty: on any), as a sentence with its remedy; empty for nothing."""
    install = "run dmlprep runtime install"
    try:
        check_machine()
    except CheckNotRun as error:
        return str(error)
    if not layout.home.is_dir():
        return f"the runtime is not installed; {install}"
    manifest = read_manifest(layout)
    if not layout.root.is_dir() or "packages" not in manifest or "prefix" not in manifest or not layout.prefix.is_dir():
        return f"the installation of the runtime was not finished; {install}"
    if manifest.get("native") != native_digest() or manifest.get("base") != base.digest() or not layout.built.is_dir():
        return f"the runtime was built by another release of dmlprep; {install}"
    releases = layout.installed()
    if not releases:
        return f"no release of ONNX Runtime is installed in the runtime; {install}"
    if release and release not in releases:
        return f"ONNX Runtime {release} is not installed in the runtime; {install} --release {release}"
    needed = inventory.pieces(layout, release or layout.release_for())
    for piece, what in inventory.damage(layout, needed.items()).items():
        option = f" --release {piece.partition(' ')[2]}" if piece.startswith("release") and release else ""
        return f"the runtime is damaged: {what}; {install}{option}, which repairs it"
    return ""


def fingerprint(layout: Layout, release: str) -> str:
    """SHA-256 over everything that a result of the self-test depends on."""
    digest = hashlib.sha256()
    digest.update(layout.manifest.read_bytes())
    digest.update((layout.release(release) / "piece.json").read_bytes())
    digest.update((NATIVE.parent / "selftest.py").read_bytes())
    digest.update(inventory.stamp(inventory.pieces(layout, release).items()).encode())
    with contextlib.suppress(OSError):
        # The driver compiles for the processor it finds.
        flags = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "model name"))
        ]
        digest.update("\n".join(sorted(set(flags))).encode())
    return digest.hexdigest()
