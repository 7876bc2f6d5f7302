"""Make the root file system: download Debian's packages, unpack them, and do the work of their own scripts."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from datetime import UTC, datetime

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.process.failure import FULL
from dmlprep.runtime.linux import base, first_use, sandbox
from dmlprep.runtime.linux.archive import Archive, BadIndex, Package, Unmet, compare_versions, resolve
from dmlprep.runtime.linux.bounded import Budget
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.mirror import Mirror, file_name, with_each
from dmlprep.runtime.linux.release import Expectation
from dmlprep.runtime.linux.safe_fs import Beneath
from dmlprep.runtime.linux.source import Say, Source, mirror_of_this_system
from dmlprep.runtime.linux.unpack import BadPackage, unpack

WINE = "usr/lib/x86_64-linux-gnu/wine"
"""The folder of Wine's own libraries in the root file system."""

ROOT_LIMIT = 4 << 30
"""Limit for the unpacked size of all packages together, in bytes; they have 1.4 GB."""

_DLL_LIMIT = 16 << 20


def make_root(layout: Layout, source: Source, say: Say) -> dict[str, object]:
    """Download the packages, and replace the root file system by a new one; return its rows of the manifest.

    Raises:
        CheckNotRun: a file is not available, or not as expected.
        UsageError: no mirror is known, or its content is not signed.
    """
    mirror = _mirror(layout, source, say)
    archives = [mirror.archive(suite) for suite in base.SUITES]
    first_use.remember_suites(layout, mirror.dates)
    packages = _choose(archives, mirror.url)
    mirror.fetch(packages, layout.downloads)
    unpack_all(layout, packages, say)
    rows = [{key: value for key, value in asdict(p).items() if key != "needs"} for p in packages]
    return {"packages": rows, "mirror": mirror.url, "signatures": mirror.signatures}


def _mirror(layout: Layout, source: Source, say: Say) -> Mirror:
    here = mirror_of_this_system()
    url = source.mirror or here.url
    if not url:
        fix = "pass --mirror URL with the address of a Debian mirror near you (the folder with dists and pool)"
        raise UsageError("this system has no known Debian mirror", fix=fix)
    lenient = here.lenient if url.rstrip("/") == here.url else ""
    oldest = {suite: datetime.fromisoformat(date) for suite, date in base.OLDEST.items()}
    expected = Expectation(datetime.now(UTC), lenient, oldest, first_use.suites_seen(layout))
    return Mirror(url, source.keyring, expected, say)


def _choose(archives: list[Archive], url: str) -> list[Package]:
    try:
        packages = resolve(archives, base.ROOTS, prefer=base.PREFER, without=base.WITHOUT)
        for package in packages:
            least = base.LEAST.get(package.name)
            if least and compare_versions(package.version, least) < 0:
                raise CheckNotRun(f"{package.name} {package.version} is too old: {least} or newer is needed", where=url)
    except Unmet as error:
        fix = "use another mirror, or a newer dmlprep"
        raise CheckNotRun(f"the mirror lacks {error}", where=url, fix=fix) from error
    except (BadIndex, ValueError) as error:  # ValueError: invalid versions
        raise CheckNotRun(f"the mirror's index is broken: {error}", where=url, fix="use another mirror") from error
    size = sum(package.size for package in packages)
    if size > ROOT_LIMIT:
        raise CheckNotRun(f"the packages have {size >> 20} MiB; at most {ROOT_LIMIT >> 20} are allowed", where=url)
    return packages


def unpack_all(layout: Layout, packages: list[Package], say: Say) -> None:
    """Unpack downloaded packages into a new root file system, and replace the old one by it.

    Raises:
        CheckNotRun: a package cannot be unpacked.
    """
    part = layout.home / "root.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    with Beneath(part) as below:
        for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", *sandbox.MOUNT_POINTS):
            below.make(name)
        for name in ("bin", "sbin", "lib", "lib64"):
            below.link(name, f"usr/{name}")
        for name in ("dev", "proc", "sys/devices/system/cpu", "tmp"):
            below.make(name)
    budget = Budget(ROOT_LIMIT, "the root file system")

    def one(package: Package) -> int:
        try:
            unpack(layout.downloads / file_name(package), part, base.SKIP, budget)
        except (OSError, BadPackage) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise  # the package is not at fault
            raise CheckNotRun(f"cannot be unpacked: {error}", where=package.filename) from error
        return package.size

    # The largest packages come first, so that the two threads end together.
    largest_first = sorted(packages, key=lambda package: -package.size)
    with_each(largest_first, one, 2, lambda done, total: say("unpacking", done, total))
    with Beneath(part) as below:
        _finish_root(below)
    shutil.rmtree(layout.root, ignore_errors=True)
    part.replace(layout.root)


def _finish_root(root: Beneath) -> None:
    """Do those actions of the packages' own scripts that the runtime needs."""
    # libwine's script: a mark at byte 64 makes MinGW's zlib one of Wine's own libraries.
    with root.read("usr/x86_64-w64-mingw32/lib/zlib1.dll") as file:
        zlib = file.read(_DLL_LIMIT)
    with root.create(f"{WINE}/x86_64-windows/zlib1.dll") as out:
        out.write(zlib[:64] + b"Wine builtin DLL" + bytes(16) + zlib[96:])
    # winegcc first looks for a C++ compiler, although it compiles only C files here.
    if root.stat("usr/bin/g++") is None:
        root.link("usr/bin/g++", "gcc-14")
    # Wine's own Direct3D 12 must not be found before the one of this runtime.
    root.clear(f"{WINE}/x86_64-windows/d3d12.dll")
