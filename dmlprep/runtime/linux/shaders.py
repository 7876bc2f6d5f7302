"""Cache compiled shaders, in a separate folder for each model.

The driver runs the shaders in this folder. A malicious model that controls its worker could leave false shaders for
other models. So a worker gets only the folder of the first model that it loads. With compiled shaders, the first run of
a model takes 0.2 s instead of 1 s.
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

MOST_FOLDERS = 48
"""Limit for the number of folders, one for each model; the last used ones stay. One has 1 to 3 MB."""

DEVICES = 4
"""Limit for the number of GPUs (each with one version of its driver) with a cache."""

LARGEST = 64 << 20
"""Limit for the size of a folder, in bytes. The driver's own limit is half of that."""

_READ = 256 << 20
"""Limit for the size of a model that is read for its key, in bytes (0.2 s). The first run of a larger model takes
longer than its compilation."""


def key_of(files: Sequence[Path]) -> str:
    """Return the digest of a model's files, the key of its shader cache.

    Empty for files above ``_READ`` in total: such a model has no cache.

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
    """Return the shader folder of a model, which a worker can write.

    The folder is made if necessary. Other folders are removed if there are too many, or if one is larger than the
    driver's limit allows. The result is ``None`` for an empty key, or if the folder cannot be made or written.

    Args:
        shaders: the cache of a device (``of_device``).
        key: the model's key (``key_of``).
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
    """Return the folder with the shader cache of a device with one version of its driver.

    Old caches of other devices are removed. ``device`` is its ``Gpu.slug``, or empty for the CPU driver.
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
    """Remove all compiled shaders, for all devices."""
    for folder in (layout.shaders, layout.gpu_shaders):
        if folder.is_dir():
            remove_tree(folder, ignore_errors=True)


def _trim(shaders: Path, own: Path) -> None:
    folders = (entry for entry in os.scandir(shaders) if len(entry.name) == 64 and entry.is_dir(follow_symlinks=False))
    for place, entry in enumerate(sorted(folders, key=lambda entry: -entry.stat().st_mtime)):
        if _too_large(entry.path) or (place >= MOST_FOLDERS and Path(entry.path) != own):
            remove_tree(Path(entry.path), ignore_errors=True)


def _too_large(folder: str) -> bool:
    """Return whether a folder is above its limit or unreadable, which the driver itself would not cause."""
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
            pass  # another session's driver replaced a file
        except OSError:
            return True
    return False
