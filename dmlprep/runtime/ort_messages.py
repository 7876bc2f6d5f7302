"""What ONNX Runtime says in words alone: its errors have a kind and a text, and no field for these facts.

The texts are those of ONNX Runtime 1.24 to 1.30. HRESULTs in them are read by ``processes.hresult``.
"""

from __future__ import annotations

import re

_OPSET = re.compile(r"Opset (\d+) is under development.* till opset (\d+)", re.DOTALL)
_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation")
_FUSED_AWAY = "is not a graph input"
_PLACE = re.compile(r"\b8[0-9A-Fa-f]{7}\b|\w+\.cpp\(\d+\)")


def newest_opset(message: str) -> tuple[str, str] | None:
    """The opset of a model that is refused for it, and the newest that this release loads."""
    match = _OPSET.search(message)
    return (match[1], match[2]) if match else None


def lacks_a_kernel(message: str) -> bool:
    """Whether no provider of the session has a kernel for a node."""
    return any(text in message for text in _NO_KERNEL)


def fuses_an_output_away(message: str) -> bool:
    """Whether a fusion takes away the value that an output is a copy of."""
    return _FUSED_AWAY in message


def signature(message: str) -> tuple[str, ...]:
    """What two messages of one failure have in common: HRESULTs and places in the source, or the text."""
    return tuple(sorted(set(_PLACE.findall(message)))) or (message,)
