"""Text attributes of nodes, whose bytes need not be text."""

from __future__ import annotations

import onnx_ir as ir


def as_text(attribute: ir.Attr) -> str:
    """The text of a STRING attribute; bytes that are no UTF-8 as escapes."""
    value = attribute.value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def text_of(node: ir.Node, name: str, default: str = "") -> str:
    """The text of an attribute; ``default`` where the node has none, or a function's caller says it."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.STRING:
        return default
    return as_text(attribute)
