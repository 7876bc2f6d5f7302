"""Windows as it is without onnxruntime-directml: Python imports this at its start where the folder is on its path.

A plain run of the tests must not use the GPU that happens to be there, in this process or in one that a test starts.
"""

from __future__ import annotations

from importlib import metadata

_HIDDEN = ("onnxruntime-directml", "onnxruntime-windowsml", "ort-nightly-directml")
_version = metadata.version


def _visible(name: str) -> str:
    if name in _HIDDEN:
        raise metadata.PackageNotFoundError(name)
    return _version(name)


metadata.version = _visible
