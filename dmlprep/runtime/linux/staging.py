"""Put a model and its data files where the sandboxed worker can read them, and nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from dmlprep.core.errors import InputError
from dmlprep.process.failure import FULL, disk_full, failure
from dmlprep.runtime.linux import sandbox

COPY_LIMIT = 256 << 20
"""Bytes up to which a file is copied (0.2 s). onnx refuses to read data files that have a second name, so a link, which
stands while the model is loaded, is kept for files that cost more to copy."""


def external_files(path: Path, folder: Path) -> list[str]:
    """Locations of the external data of a model, relative to ``folder``; reads no weights from them.

    Raises:
        SessionFailure: the file is no ONNX model, or a location leads out of the folder.
    """
    from google.protobuf.message import DecodeError

    from dmlprep.graph.model.wire import data_locations

    try:
        locations = data_locations(path)
    except (DecodeError, OSError, ValueError, InputError) as error:
        raise failure("load", f"not an ONNX model: {error}", str(path)) from error
    folder = folder.resolve()
    for location in locations:
        target = (folder / location).resolve()
        if Path(location).is_absolute() or not target.is_relative_to(folder):
            raise failure("load", f"external data {location!r} is outside the folder of its model", str(path))
        if not target.is_file():
            raise failure("load", f"external data {location!r} is missing", str(path))
    return locations


def stage(path: Path, folder: Path, data: Path, locations: Sequence[str]) -> None:
    """Give ``folder`` the model as ``model.onnx`` and its data files, ``locations`` below ``data``, by their own names.

    Copies, readable for all; of files above ``COPY_LIMIT`` hard links where the file system allows, and the worker may
    read the file. The worker sees the folder read-only.

    Raises:
        SessionFailure: a file cannot be read.
        OutputError: they do not fit on the disk.
    """
    try:
        _make(folder, folder)
        _give(path.resolve(), folder / "model.onnx")
        for location in locations:
            _make((folder / location).parent, folder)
            _give((data / location).resolve(), folder / location)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(folder, error) from error
        raise failure("load", f"the model cannot be read: {error}", str(path)) from error


def _make(folder: Path, top: Path) -> None:
    """Make a folder and those between it and ``top``; a worker of another user's may enter them, whatever the umask."""
    for missing in (*reversed([above for above in folder.parents if above.is_relative_to(top)]), folder):
        missing.mkdir(exist_ok=True)
        missing.chmod(0o755)


def _give(source: Path, target: Path) -> None:
    status = source.stat()
    # The mode of a link is that of the user's file, which is not ours to change.
    if status.st_size > COPY_LIMIT and (status.st_mode & stat.S_IROTH or not sandbox.becomes_worker()):
        with contextlib.suppress(OSError):  # another file system, or not the owner of the file
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    target.chmod(0o644)
