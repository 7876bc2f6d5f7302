"""Match the values of a prepared model to those of its original: by name, or by how they are computed."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

_HAND_ON = frozenset(("Cast", "Identity"))


def may_be_compared(value: ir.Value) -> bool:
    """Return True if a value has a name, and is a tensor or has no declared type."""
    return bool(value.name) and (value.type is None or isinstance(value.type, ir.TensorType))


def match_values(candidate: ir.Graph, reference: ir.Graph) -> dict[str, str]:
    """Match the outputs of nodes in two main graphs.

    A value matches the reference's value of the same name, unless their types or sizes contradict. Otherwise it matches
    the only value that the same operators compute from the same inputs, ignoring Casts and Identities.

    Returns:
        names of the reference's values by the names of the candidate's values; values without a match are left out.
    """
    if candidate is reference:
        return {v.name or "": v.name or "" for n in candidate for v in n.outputs if may_be_compared(v)}
    named = {v.name: v for n in reference for v in n.outputs if may_be_compared(v)}
    by_structure = _unique(_hashes(reference), reference)
    hashes = _hashes(candidate)
    matches: dict[str, str] = {}
    for node in candidate:
        for value in node.outputs:
            if not may_be_compared(value) or value.name is None:
                continue
            for other in (named.get(value.name), by_structure.get(hashes[value])):
                if other is not None and other.name is not None and not _contradict(value, other):
                    matches[value.name] = other.name
                    break
    return matches


def _contradict(a: ir.Value, b: ir.Value) -> bool:
    if a.dtype is not None and b.dtype is not None and a.dtype.is_floating_point() != b.dtype.is_floating_point():
        return True
    if a.shape is None or b.shape is None:
        return False
    if len(a.shape) != len(b.shape):
        return True
    pairs = zip(a.shape.dims, b.shape.dims, strict=True)
    return any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in pairs)


def _hashes(graph: ir.Graph) -> dict[ir.Value, bytes]:
    """Return for each value a digest of its computation: operators, attributes and sources, up to the inputs.

    Weights count by their shapes only, because their values may be rounded. Attributes with a tensor or a graph count
    by name and type only. Casts and Identities do not count.
    """
    known: dict[ir.Value, bytes] = {}

    def of(value: ir.Value | None) -> bytes:
        if value is None:
            return b"-"
        if value not in known:
            shape = "" if value.shape is None else str([d if isinstance(d, int) else "?" for d in value.shape.dims])
            weight = value.name in graph.initializers
            known[value] = f"weight {shape}".encode() if weight else f"input {value.name}".encode()
        return known[value]

    for node in graph:
        if node.op_type in _HAND_ON and node.domain == "" and node.inputs:
            for value in node.outputs:
                known[value] = of(node.inputs[0])
            continue
        attributes = sorted(
            f"{name}={attr.type}"
            if attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)
            else f"{name}={attr.value}"
            for name, attr in node.attributes.items()
            if not attr.is_ref()
        )
        digest = hashlib.sha256(f"{node.domain}:{node.op_type}:{attributes}".encode())
        for source in node.inputs:
            digest.update(b"|" + of(source))
        for index, value in enumerate(node.outputs):
            known[value] = digest.digest() + index.to_bytes(2, "little")
    return known


def _unique(hashes: dict[ir.Value, bytes], graph: ir.Graph) -> dict[bytes, ir.Value]:
    """Return values by digest, without those that several nodes compute; Casts and Identities do not count as nodes."""
    by_digest: dict[bytes, ir.Value] = {}
    twice: set[bytes] = set()
    for node in graph:
        if node.op_type in _HAND_ON and node.domain == "":
            continue
        for value in node.outputs:
            if not may_be_compared(value):
                continue
            if hashes[value] in by_digest:
                twice.add(hashes[value])
            by_digest[hashes[value]] = value
    return {digest: value for digest, value in by_digest.items() if digest not in twice}
