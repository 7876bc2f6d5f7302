"""Compiled shaders that the driver keeps: for each model a folder of its own.

The driver runs what it finds there. A model that takes its worker over could leave shaders that compute what it likes
for every other model; so a worker is given the folder of the first model that it loads, and of no other. With compiled
shaders the first run of a model takes 0.2 s instead of 1 s.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from dmlprep.core.files import remove_tree
from dmlprep.runtime.linux import shared_folders
from dmlprep.runtime.linux.layout import Layout

KEPT = 48
"""Folders that are kept, the latest used ones; one takes 1 to 3 MB."""

DEVICES = 4
"""GPUs, with one version of the driver each, whose shaders are kept."""

LARGEST = 64 << 20
"""Bytes of a folder that is kept. The driver's own limit, which a worker is told, is half of that."""

_READ = 256 << 20
"""Bytes of a model that are read for its key (0.2 s). The first run of a larger one takes longer than its compiling."""


def key_of(files: Sequence[Path]) -> str:
    """What tells a model from all others: a digest of its files; empty for one that keeps nothing.

    Raises:
        OSError: a file cannot be read.
    """
    if sum(path.stat().st_size for path in files) > _READ:
        return ""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def folder_of(shaders: Path, key: str) -> Path | None:
    """The folder of a model, which a worker can write; ``None`` where none can be kept.

    Others are removed where there are too many, or one has grown beyond what the driver makes.
    """
    if not key:
        return None
    own = shaders / key
    with contextlib.suppress(OSError):
        shaders.mkdir(exist_ok=True)
        _trim(shaders, own)
        own.mkdir(exist_ok=True)
        if not own.is_symlink() and os.access(own, os.W_OK | os.X_OK):
            os.utime(own)
            shared_folders.lend(own)
            return own
    return None


def of_device(layout: Layout, device: str) -> Path:
    """Where the shaders of one device are kept, with one version of its driver; those of others go after a while.

    ``device`` is its ``Gpu.slug``; empty for the driver on the CPU.
    """
    if not device:
        return layout.shaders
    own = layout.gpu_shaders / device
    with contextlib.suppress(OSError):
        own.mkdir(parents=True, exist_ok=True)
        os.utime(own)
        for path in sorted(layout.gpu_shaders.iterdir(), key=lambda path: -path.stat().st_mtime)[DEVICES:]:
            remove_tree(path, ignore_errors=True)
    return own


def forget(layout: Layout) -> None:
    """Remove all that drivers compiled."""
    for folder in (layout.shaders, layout.gpu_shaders):
        if folder.is_dir():
            remove_tree(folder, ignore_errors=True)


def _trim(shaders: Path, own: Path) -> None:
    folders = (entry for entry in os.scandir(shaders) if len(entry.name) == 64 and entry.is_dir(follow_symlinks=False))
    for place, entry in enumerate(sorted(folders, key=lambda entry: -entry.stat().st_mtime)):
        if _too_large(entry.path) or (place >= KEPT and Path(entry.path) != own):
            remove_tree(Path(entry.path), ignore_errors=True)


def _too_large(folder: str) -> bool:
    """Whether it is, or cannot be looked through: the driver makes no such thing."""
    held, folders = 0, [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    held += entry.stat(follow_symlinks=False).st_size + 4096
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if held > LARGEST:
                        return True
        except FileNotFoundError:
            pass  # another session's driver put a file in its place
        except OSError:
            return True
    return False
