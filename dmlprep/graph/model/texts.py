"""Read text attributes of nodes, whose bytes may be invalid, and the target type of a Cast (text up to opset 5)."""

from __future__ import annotations

import onnx_ir as ir


def as_text(attribute: ir.Attr) -> str:
    """Return the text of a STRING attribute; bytes that are not UTF-8 become escapes."""
    value = attribute.value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def text_of(node: ir.Node, name: str, default: str = "") -> str:
    """Return the text of an attribute; ``default`` if it is absent, no text, or set by the caller of a function."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.STRING:
        return default
    return as_text(attribute)


def cast_target(node: ir.Node) -> ir.DataType | None:
    """Return the element type of a Cast's output; ``None`` if it is missing, invalid, or set by a function's caller."""
    attribute = node.attributes.get("to")
    if attribute is None or attribute.is_ref():
        return None
    try:
        if attribute.type == ir.AttributeType.STRING:
            return ir.DataType[as_text(attribute).upper()]
        return ir.DataType(attribute.as_int())
    except (KeyError, TypeError, ValueError):
        return None
