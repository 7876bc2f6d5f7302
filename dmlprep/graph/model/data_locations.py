"""Which data files a model file names, without reading weights from either."""

from __future__ import annotations

import mmap
from pathlib import Path

import onnx

from dmlprep.graph.model import protos
from dmlprep.graph.model.wire import SELF, skeleton


def data_locations(path: Path) -> list[str]:
    """Locations of the external data of a model, each once, as the model writes them.

    Raises:
        OSError: the file cannot be read.
        InputError, google.protobuf.message.DecodeError, ValueError: it is no ONNX model.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if mapped.find(b"location") < 0:  # the key of each
            return []
        model = onnx.ModelProto.FromString(skeleton(mapped))
    named: dict[str, None] = {}
    for tensor in protos.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            named.update((entry.value, None) for entry in tensor.external_data if entry.key == "location")
    return [location for location in named if location != SELF]
