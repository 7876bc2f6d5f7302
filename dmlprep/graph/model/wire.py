"""Read an ONNX file without reading its weights.

An ONNX file is one protobuf message; its weights are byte strings inside. ``skeleton`` walks the wire format of the
mapped file and copies everything but large tensor payloads. These become references (offset, length) into the file
itself, in ONNX's own external data form. So kilobytes are parsed instead of gigabytes.

Field numbers are those of onnx.proto3 (onnx 1.23, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3).
"""

from __future__ import annotations

import secrets
from mmap import ACCESS_READ, mmap
from pathlib import Path

import onnx

from dmlprep.core.errors import InputError
from dmlprep.graph.model import protos
from dmlprep.graph.model.bounds import LESS_NESTED

Buffer = bytes | mmap

_OURS = f"\x00{secrets.token_hex(16)}"
"""Prefix of external data locations that dmlprep itself makes and that are not files.

A file cannot have such a name, and a file written before this process began cannot contain it. Otherwise a hostile
model could name one of these locations, and its bytes would be read as weights.
"""

SELF = f"{_OURS}self"
"""Location of a tensor whose bytes are in the model file itself."""

SPARSE = f"{_OURS}sparse"
"""Location of a tensor that was sparse; the offset is its index."""

_MAX_DEPTH = 96  # protobuf itself stops at 100 nested messages
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5

# message kind -> field number -> kind of the message inside that may contain tensors
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 10: "tensor", 6: "graph", 11: "graph"},
}
_T_DATA_TYPE, _T_FLOAT_DATA, _T_NAME, _T_RAW, _T_DOUBLE_DATA, _T_EXTERNAL, _T_LOCATION = 2, 4, 8, 9, 10, 13, 14
_FLOAT, _DOUBLE = 1, 11


def varint(value: int) -> bytes:
    """Encode an unsigned integer as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """Return the varint at ``at``, and the position after it.

    Raises:
        InputError: DP001, the data is truncated or not protobuf.
    """
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise InputError("the file is truncated or not ONNX", code="DP001", fix="export or copy the model again")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def skip(data: Buffer, at: int, end: int, wire: int) -> tuple[int, int]:
    """Return start and end of the payload of a protobuf field whose tag ends at ``at``; ``wire`` is its wire type.

    Raises:
        InputError: DP001, the data is truncated or not protobuf.
    """
    if wire == _LEN:
        length, at = read_varint(data, at, end)
        stop = at + length
    elif wire == _VARINT:
        _, stop = read_varint(data, at, end)
    elif wire in (_I64, _I32):
        stop = at + (8 if wire == _I64 else 4)
    else:
        raise InputError("the file is not an ONNX model", code="DP001", fix="pass a file that an ONNX exporter wrote")
    if stop > end:
        raise InputError("the file is truncated", code="DP001", fix="export or copy the model again")
    return at, stop


def _length_delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | _LEN) + varint(len(payload)) + payload


def _tensor(data: Buffer, start: int, end: int, threshold: int) -> bytes:
    """Return a TensorProto as bytes, with a payload over ``threshold`` bytes turned into a reference into the file."""
    pieces: list[bytes] = []
    packed: dict[int, tuple[int, int]] = {}
    data_type = 0
    external = False
    at = start
    while at < end:
        field_start = at
        tag, at = read_varint(data, at, end)
        payload, at = skip(data, at, end, tag & 7)
        field = tag >> 3
        if field in (_T_RAW, _T_FLOAT_DATA, _T_DOUBLE_DATA) and tag & 7 == _LEN and at - payload > threshold:
            if field in packed:
                return data[start:end]  # a payload in several pieces: leave it to protobuf
            packed[field] = (payload, at)
            continue
        if field == _T_DATA_TYPE:
            data_type, _ = read_varint(data, payload, end)
        external = external or field in (_T_EXTERNAL, _T_LOCATION)
        pieces.append(data[field_start:at])
    # Packed floats and doubles are little-endian bytes, just as raw_data is.
    as_raw = {_T_RAW: data_type, _T_FLOAT_DATA: _FLOAT, _T_DOUBLE_DATA: _DOUBLE}
    if len(packed) != 1 or external or any(as_raw[f] != data_type for f in packed):
        return data[start:end]
    ((payload, stop),) = packed.values()
    place = {"location": SELF, "offset": str(payload), "length": str(stop - payload)}
    entries = (
        _length_delimited(1, key.encode()) + _length_delimited(2, value.encode()) for key, value in place.items()
    )
    references = (_length_delimited(_T_EXTERNAL, entry) for entry in entries)
    return b"".join((*pieces, varint(_T_LOCATION << 3), varint(1), *references))


def skeleton(
    data: Buffer, threshold: int = 1024, kind: str = "model", *, _bounds: tuple[int, int] | None = None, _depth: int = 0
) -> bytes:
    """Return a serialized ModelProto without the tensor payloads of more than ``threshold`` bytes.

    Payloads are ``raw_data``, ``float_data`` and ``double_data``; values in other fields stay.

    Returns:
        a serialized ModelProto whose large tensors are external, with location ``SELF``, offset and length in bytes.

    Raises:
        InputError: the bytes are truncated, nested too deep, or not protobuf.
    """
    start, end = _bounds or (0, len(data))
    if _depth > _MAX_DEPTH:
        what = "graphs are nested too deeply: protobuf reads at most 100 nested messages"
        raise InputError(what, code="DP003", fix=LESS_NESTED)
    inside = _INSIDE[kind]
    out: list[bytes] = []
    run = at = start
    while at < end:
        field_start = at
        tag, at = read_varint(data, at, end)
        payload, at = skip(data, at, end, tag & 7)
        child = inside.get(tag >> 3)
        if child is None or tag & 7 != _LEN or at - payload <= threshold:
            continue
        if child == "tensor":
            body = _tensor(data, payload, at, threshold)
        else:
            body = skeleton(data, threshold, child, _bounds=(payload, at), _depth=_depth + 1)
        out += [data[run:field_start], varint(tag), varint(len(body)), body]
        run = at
    out.append(data[run:end])
    return b"".join(out)


def data_locations(path: Path) -> list[str]:
    """Return the locations of a model's external data, each once, as written in the model.

    Raises:
        OSError: the file cannot be read.
        InputError, google.protobuf.message.DecodeError, ValueError: it is not an ONNX model.
    """
    with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        if mapped.find(b"location") < 0:  # the key of each location
            return []
        model = onnx.ModelProto.FromString(skeleton(mapped))
    named: dict[str, None] = {}
    own = sum(entry.key == "location" for tensor in model.graph.initializer for entry in tensor.external_data)
    others = model.SerializeToString().count(b"\x0a\x08location") > own  # tensors of nodes: a walk over all of them
    for tensor in protos.tensors(model) if others else model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            named.update((entry.value, None) for entry in tensor.external_data if entry.key == "location")
    return [location for location in named if location != SELF]
