"""Put a model and its data files where the sandboxed worker can read them, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dmlprep.runtime.failure import FULL, disk_full, failure

__all__ = ["COPY_LIMIT", "external_files", "stage"]

COPY_LIMIT = 256 << 20
"""Bytes up to which a file is copied (0.2 s). onnx refuses to read data files that have a second name, so a link, which
stands while the model is loaded, is kept for files that cost more to copy."""


def external_files(path: Path, folder: Path) -> list[str]:
    """Locations of the external data of a model, relative to ``folder``; reads no weights from them.

    Raises:
        SessionFailure: the file is no ONNX model, or a location leads out of the folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    from dmlprep.model import protos

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise failure("load", f"not an ONNX model: {error}", str(path)) from error
    found: dict[str, None] = {}
    for tensor in protos.tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        for entry in tensor.external_data:
            if entry.key == "location":
                found[entry.value] = None
    folder = folder.resolve()
    for location in found:
        target = (folder / location).resolve()
        if Path(location).is_absolute() or not target.is_relative_to(folder):
            raise failure("load", f"external data {location!r} lies outside the folder of its model", str(path))
        if not target.is_file():
            raise failure("load", f"external data {location!r} is missing", str(path))
    return list(found)


def stage(path: Path, folder: Path, data: Path) -> None:
    """Give ``folder`` the model as ``model.onnx`` and its data files, which lie below ``data``, under their own names.

    Copies; of files above ``COPY_LIMIT`` hard links where the file system allows. The worker sees the folder read-only.

    Raises:
        SessionFailure: see ``external_files``, or a file cannot be read.
        OutputError: they do not fit on the disk.
    """
    locations = external_files(path, data)
    folder.mkdir(parents=True)
    try:
        _give(path.resolve(), folder / "model.onnx")
        for location in locations:
            (folder / location).parent.mkdir(parents=True, exist_ok=True)
            _give((data / location).resolve(), folder / location)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(folder, error) from error
        raise failure("load", f"the model cannot be read: {error}", str(path)) from error


def _give(source: Path, target: Path) -> None:
    if source.stat().st_size > COPY_LIMIT:
        try:
            os.link(source, target)
            return
        except OSError:
            pass  # another file system, or not the owner of the file
    shutil.copyfile(source, target)
