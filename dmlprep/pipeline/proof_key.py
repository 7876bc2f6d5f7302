"""The key of a cached DirectML verdict: a digest of everything that the verdict depends on, except paths of files."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import onnx

from dmlprep.core._version import __version__
from dmlprep.core.text.documents import canonical
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import data_files
from dmlprep.parity import Reference
from dmlprep.pipeline.recipe import ParitySettings
from dmlprep.portable.integrity import file_digest
from dmlprep.record.origin import code_digest
from dmlprep.runtime import SessionFailure, SessionOptions, identity

_NO_MATTER = ("time_limit", "memory_limit", "model_bytes")
"""Session options that are not part of the key: limits do not change the verdict of a run that keeps them."""


def proof_key(reference: Reference, model: Model, settings: ParitySettings, session: SessionOptions | None) -> str:
    """Return the cache key of the DirectML verdict on ``model``: a SHA-256 in hexadecimal.

    The key is empty if the verdict must not be cached: the device or a file cannot be identified, the user has a
    metric, or the original does not run. The original runs on the feeds, unless it already has.
    """
    device = identity.dml_identity(session) if reference.judging_options.metric is None else ""
    if not device:
        return ""
    try:
        count = reference.compute()
    except SessionFailure:
        return ""  # the verdict reports it
    options = {k: v for k, v in asdict(session or SessionOptions()).items() if k not in _NO_MATTER}
    feeds = range(len(reference.feeds))
    try:
        facts = {
            "dmlprep": [__version__, code_digest()],
            "libraries": [sys.version, np.__version__, onnx.__version__],
            "device": device,
            "session": options,
            "original": _files(reference.model),
            "made": _files(model),
            "feeds": [_digest(reference.feeds[index]) for index in feeds],
            "expected": [count, *(_digest(reference.outputs(index)) for index in feeds)],
            "reference": [str(reference.device), str(reference.lowered), reference.mended, reference.written_out],
            "judged": [settings.tolerance, settings.measures, settings.noise],
        }
    except OSError:
        return ""
    return hashlib.sha256(canonical(facts)).hexdigest()


def _files(model: Model) -> list[str]:
    """Return the SHA-256 of the model's file and of each of its data files, these with their names before it."""
    assert model.path is not None
    return [f" {file_digest(model.path)[1]}", *(f"{path.name} {file_digest(path)[1]}" for path in data_files(model))]


def _digest(values: Mapping[str, object]) -> str:
    """Return the SHA-256 over names, element types, shapes and elements of the arrays, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(values):
        _add(digest, name, values[name])
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, value: object) -> None:
    if isinstance(value, Sequence):
        digest.update(f"{name!r} {len(value)}\n".encode())
        for item in value:
            _add(digest, name, item)
        return
    if value is None:
        digest.update(f"{name!r} none\n".encode())
        return
    array = np.asarray(value)
    digest.update(f"{name!r} {array.dtype.str} {array.dtype.name} {array.shape}\n".encode("utf-8", "surrogatepass"))
    if array.dtype.kind in "OUST":
        digest.update(repr(array.tolist()).encode("utf-8", "surrogatepass"))
    else:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
