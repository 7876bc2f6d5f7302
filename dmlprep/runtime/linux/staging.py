"""Make a model and its data files, and no other files, readable for the sandboxed worker."""

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
"""Largest file in bytes that is copied (0.2 s). A larger file is linked while the model is loaded. Small files are
copied, because onnx refuses to read data files that have a second name."""


def external_files(path: Path, folder: Path) -> list[str]:
    """Return the locations of a model's external data files, relative to ``folder``. Weights are not read.

    Raises:
        SessionFailure: the file cannot be read as an ONNX model, or a data file is missing or outside the folder.
    """
    from google.protobuf.message import DecodeError

    from dmlprep.graph.model.wire import data_locations

    try:
        locations = data_locations(path)
    except (DecodeError, OSError, ValueError, InputError) as error:
        raise failure("load", f"cannot be read as an ONNX model: {error}", str(path)) from error
    folder = folder.resolve()
    for location in locations:
        target = (folder / location).resolve()
        if Path(location).is_absolute() or not target.is_relative_to(folder):
            raise failure("load", f"external data {location!r} is outside the folder of its model", str(path))
        if not target.is_file():
            raise failure("load", f"external data {location!r} is missing", str(path))
    return locations


def stage(path: Path, folder: Path, data: Path, locations: Sequence[str]) -> None:
    """Put the model into ``folder`` as ``model.onnx``, and its data files next to it.

    The files are copies, readable for all. Files above ``COPY_LIMIT`` are hard links, if the file system allows it and
    the worker may read the file. The worker sees the folder read-only.

    Args:
        path: the model.
        data: the folder that ``locations`` are relative to.
        locations: the data files, as ``external_files`` returns them.

    Raises:
        SessionFailure: a file cannot be read.
        OutputError: the disk is full.
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
    """Make a folder and its parents below ``top``, with rights to enter for all users, whatever the umask is."""
    for missing in (*reversed([above for above in folder.parents if above.is_relative_to(top)]), folder):
        missing.mkdir(exist_ok=True)
        missing.chmod(0o755)


def _give(source: Path, target: Path) -> None:
    status = source.stat()
    # A link has the mode of the user's file, which must not be changed.
    if status.st_size > COPY_LIMIT and (status.st_mode & stat.S_IROTH or not sandbox.becomes_worker()):
        with contextlib.suppress(OSError):  # another file system, or the file belongs to another user
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    target.chmod(0o644)
