"""A model written for one run: its weights stay where they are.

Running a 5 GB model to look at its values must not cost a copy of it. The file written here is kilobytes; each weight
that lies unchanged in a file is external data whose path is relative to the root of the file system, and ONNX Runtime
is told to look from there (``session.model_external_initializers_file_folder_path``; it must be given bytes, not a
path). For sessions of our own only: such a file is never a result.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from dmlprep.graph.model import protos
from dmlprep.graph.model.frozen import freeze, stub_index
from dmlprep.graph.model.tensors import append_aligned, as_mapped


def write_external_view(model: ir.Model, path: Path) -> Path:
    """Write ``model`` to ``path``; tensors that exist only in memory, or as lazy ones, go to ``PATH.own``.

    Returns:
        the folder that the locations are relative to: the root, or ``path``'s own folder where the files lie on several
        drives (then every tensor was copied).
    """
    frozen = freeze(model, attributes=False)
    path = path.resolve()
    root = Path(path.anchor)
    own = path.with_name(path.name + ".own")
    one_drive = all(Path(m.path.resolve().anchor) == root for m in map(as_mapped, frozen.tensors) if m is not None)
    folder = root if one_drive else path.parent
    offsets: dict[int, int] = {}
    with open(own, "wb") as file:
        for graph in protos.graphs(frozen.proto):
            for proto in graph.initializer:
                index = stub_index(proto)
                if index is None:
                    continue
                tensor = frozen.tensors[index]
                mapped = as_mapped(tensor)
                if mapped is not None and one_drive:
                    place, offset = mapped.path.resolve(), mapped.offset
                else:
                    if id(tensor) not in offsets:
                        offsets[id(tensor)] = append_aligned(tensor, file)
                    place, offset = own, offsets[id(tensor)]
                protos.refer(proto, place.relative_to(folder).as_posix(), offset, tensor.nbytes)
    path.write_bytes(frozen.proto.SerializeToString())
    return folder
