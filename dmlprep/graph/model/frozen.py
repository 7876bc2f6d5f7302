"""A model as bytes, with its large tensors separate: the form for snapshots, checks and saving.

``freeze`` writes the ModelProto with every large tensor as a numbered reference. ``thaw`` reads it back with the same
tensor objects. Weights are neither read nor copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from dmlprep.core.errors import DmlprepError
from dmlprep.graph.model import protos
from dmlprep.graph.model.walk import map_tensors

_STUB = "\x00stub:"


@dataclass(frozen=True)
class Frozen:
    """A ModelProto whose large tensors are references into ``tensors``.

    Functions with an argument ``frozen`` use it instead of freezing the same model again.

    Attributes:
        complete: True if only initializers are references; False if tensor attributes are references too.
        inferred: empty, until onnx's strict inference of the model succeeds; then its result, and ``None`` after the
            first use of the result, which saves memory.
    """

    proto: onnx.ModelProto
    tensors: list[ir.TensorProtocol] = field(repr=False)
    complete: bool = True
    inferred: list[onnx.ModelProto | None] = field(default_factory=list, repr=False, compare=False)

    def completed(self) -> Frozen:
        """Return the form in which only initializers are references: ``self``, or a new one if it is not complete."""
        if self.complete:
            return self
        proto = protos.copy(self.proto)
        for tensor in (t for node in protos.nodes(proto) for a in node.attribute for t in (a.t, *a.tensors)):
            if (index := stub_index(tensor)) is not None:
                tensor.Clear()
                ir.serde.serialize_tensor_into(tensor, self.tensors[index])
        return Frozen(proto, self.tensors, inferred=self.inferred)

    def same_as(self, other: Frozen) -> bool:
        """Return True if both have the same graph and the same tensor objects."""
        return self is other or (
            len(self.tensors) == len(other.tensors)
            and all(a is b for a, b in zip(self.tensors, other.tensors, strict=True))
            and self.proto.SerializeToString(deterministic=True) == other.proto.SerializeToString(deterministic=True)
        )


class _Stub(ir.ExternalTensor):
    """A tensor without values that replaces a large tensor while the graph is written; it contains its number."""

    def __init__(self, index: int, tensor: ir.TensorProtocol) -> None:
        super().__init__(
            f"{_STUB}{index}",
            None,
            None,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=tensor.name or "",
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props) or None,
        )


def stub_index(tensor: onnx.TensorProto) -> int | None:
    """Return the index in ``Frozen.tensors`` that a TensorProto refers to, ``None`` for one with its own values."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    location = next((e.value for e in tensor.external_data if e.key == "location"), "")
    return int(location.removeprefix(_STUB)) if location.startswith(_STUB) else None


def freeze(model: ir.Model, threshold: int = 1024, *, attributes: bool = True) -> Frozen:
    """Return the model as a ModelProto with references for tensors of more than ``threshold`` bytes.

    Tensors of text stay in it. ``model`` does not change.

    Args:
        attributes: True to replace tensor attributes (of Constant) by references too, not only initializers.

    Raises:
        ModelRefused, InputError: the values of a small tensor are computed or read only now, and that fails.
    """
    held: list[ir.TensorProtocol] = []

    def out(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if tensor.nbytes <= threshold or tensor.dtype == ir.DataType.STRING:
            return tensor
        held.append(tensor)
        return _Stub(len(held) - 1, tensor)

    replacements = map_tensors(model, out, attributes=attributes)
    try:
        proto = ir.to_proto(model)
    except ir.serde.SerdeError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DmlprepError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from error  # a tensor that is computed only now refuses the model
    finally:
        for replaced in replacements:
            replaced.undo()
    return Frozen(proto, held, not any(isinstance(replaced.was, ir.Attr) for replaced in replacements))


def thaw(frozen: Frozen) -> ir.Model:
    """Return a new model from its frozen form. Large tensors are the same objects as when it was frozen."""

    def back(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if isinstance(tensor, ir.ExternalTensor) and str(tensor.location).startswith(_STUB):
            return frozen.tensors[int(str(tensor.location).removeprefix(_STUB))]
        return tensor

    # Copy the proto: onnx-ir keeps pointers into it, and changes of the model must not change a snapshot.
    model = ir.from_proto(protos.copy(frozen.proto))
    if frozen.tensors:
        map_tensors(model, back)
    return model
