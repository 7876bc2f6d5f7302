"""A model for an app, on DirectML: ``README.md`` describes it.

    with Model(device="dml-or-cpu") as model:
        outputs = model.run({"image": array})  # numpy arrays by name

Requires numpy and ONNX Runtime with DirectML (``requirements.txt``), but not dmlprep.
"""

from __future__ import annotations

from .app_errors import (
    AdapterMissing,
    BadInput,
    DeviceRemoved,
    ModelError,
    OutOfMemory,
    PackageDamaged,
    RuntimeMissing,
)
from .buckets import Choice
from .loader import Device, Model, Tensor

__all__ = [
    "AdapterMissing",
    "BadInput",
    "Choice",
    "Device",
    "DeviceRemoved",
    "Model",
    "ModelError",
    "OutOfMemory",
    "PackageDamaged",
    "RuntimeMissing",
    "Tensor",
]
