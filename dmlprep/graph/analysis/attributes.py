"""Values inside a node: the tensor of a Constant, numbers and lists in attributes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_TENSOR_BYTES = 4096


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the value of a Constant node as a tensor, from whichever attribute has it.

    ``None`` if no attribute can be read: a sparse value, or a reference to an attribute of a function.

    Raises:
        TypeError: the attribute ``value`` is not a tensor.
    """
    for name, attr in node.attributes.data.items():
        if attr.is_ref():
            return None
        if name == "value" and attr.type == ir.AttributeType.TENSOR:
            # as_tensor() examines each of its methods, ten times slower than the rest
            tensor: ir.TensorProtocol = attr.value
            return tensor
        if name == "value":
            raise TypeError(f"the value of Constant {node.name!r} is not a tensor")
        if name in ("value_int", "value_ints"):
            return ir.Tensor(np.array(attr.value, np.int64))
        if name in ("value_float", "value_floats"):
            return ir.Tensor(np.array(attr.value, np.float32))
        if name in ("value_string", "value_strings"):
            texts = [attr.value] if name == "value_string" else attr.value
            # Text that is not UTF-8 is bytes already.
            encoded = [text if isinstance(text, bytes) else text.encode() for text in texts]
            return ir.StringTensor(np.array(encoded[0] if name == "value_string" else encoded, object))
    return None


def plain_attributes(node: ir.Node) -> dict[str, object]:
    """Return the values of a node's attributes by name, small tensors as arrays.

    Graphs and tensors over 4096 bytes are left out.
    """
    values: dict[str, object] = {}
    for name, attr in node.attributes.items():
        if attr.type == ir.AttributeType.TENSOR:
            if attr.value.nbytes <= _TENSOR_BYTES:
                values[name] = attr.value.numpy()
        elif attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            values[name] = attr.value
    return values
