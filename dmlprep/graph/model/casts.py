"""The type that a Cast gives. Up to opset 5 it is a word, from opset 6 on a number."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.texts import as_text


def cast_target(node: ir.Node) -> ir.DataType | None:
    """The element type of a Cast's output; ``None`` where its attribute says none, or a function's caller does."""
    attribute = node.attributes.get("to")
    if attribute is None or attribute.is_ref():
        return None
    try:
        if attribute.type == ir.AttributeType.STRING:
            return ir.DataType[as_text(attribute).upper()]
        return ir.DataType(attribute.as_int())
    except (KeyError, TypeError, ValueError):
        return None
