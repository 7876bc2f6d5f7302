"""Recognise facts in ONNX Runtime's error texts, because its errors have no fields for these facts.

The texts are those of ONNX Runtime 1.24 to 1.30. ``portable.hresult`` reads the HRESULTs in them.
"""

from __future__ import annotations

import re

_OPSET = re.compile(r"Opset (\d+) is under development.* till opset (\d+)", re.DOTALL)
_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation")
_FUSED_AWAY = "is not a graph input"
_PLACE = re.compile(r"\b8[0-9A-Fa-f]{7}\b|\w+\.cpp\(\d+\)")


def newest_opset(message: str) -> tuple[str, str] | None:
    """Return the opset of a refused model, and the newest opset that this release loads.

    Return ``None`` if the message is another one.
    """
    match = _OPSET.search(message)
    return (match[1], match[2]) if match else None


def lacks_a_kernel(message: str) -> bool:
    """Return whether the message says that no provider of the session has a kernel for a node."""
    return any(text in message for text in _NO_KERNEL)


def fuses_an_output_away(message: str) -> bool:
    """Return whether the message says that a fusion removed the value that an output copies."""
    return _FUSED_AWAY in message


def signature(message: str) -> tuple[str, ...]:
    """Return the part that all messages of one failure share.

    It consists of HRESULTs and places in the source; without them, of the whole text.
    """
    return tuple(sorted(set(_PLACE.findall(message)))) or (message,)
