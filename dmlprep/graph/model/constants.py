"""The constant tensor of a value, in models that are not checked yet."""

from __future__ import annotations

import onnx_ir as ir


def held_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a valid Constant node; ``None`` for others. It changes nothing.

    The initializer may be the default of an input, which a caller can replace (see ``constant_of``).

    onnx-ir's own look-up raises where a Constant has two outputs, or no attribute that it knows. It also renames the
    tensor of a Constant to its value's name, which changes the model.
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
