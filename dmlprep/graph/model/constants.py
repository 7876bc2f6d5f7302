"""The tensor that a value holds, of models that nobody has checked yet."""

from __future__ import annotations

import onnx_ir as ir


def held_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; ``None`` where there is none, or the node has a wrong form.

    onnx-ir's own look-up raises where a Constant has two outputs, or no attribute that it knows. It gives the tensor
    of a Constant the name of its value as well, which changes the model.
    """
    if value is None:
        return None
    node = value.producer() if value.const_value is None else None
    try:
        if node is not None and node.op_type == "Constant" and "value" in node.attributes:
            lone = not node.domain and len(node.outputs) == len(node.attributes) == 1
            attribute = node.attributes["value"]
            return attribute.as_tensor() if lone and not attribute.is_ref() else None
        return ir.convenience.get_const_tensor(value)
    except (TypeError, ValueError):
        return None
