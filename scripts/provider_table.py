"""Read DirectML's table of kernels from onnxruntime.dll.

The provider has a constant array with one record for each kernel (ONNX Runtime, DmlExecutionProvider/src/Operators/
OperatorRegistration.cpp, ``OperatorRegistrationInformation``). It has facts that no interface of ONNX Runtime reports:
inputs that must be constants on the CPU, and which kernels can be fused or have a support query. Kernels that are not
DirectML operators (``If``, the Sequence operators, DFT, STFT, GridSample) are registered elsewhere.

The offsets below are those of the 64-bit builds since 1.20. The reader refuses a file with other offsets.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

__all__ = ["ProviderRow", "UnknownLayout", "file_version", "option_names", "provider_table"]

_STRIDE = 160
_LABELS, _TYPES, _FUSION, _CONSTANTS, _FUSED_INPUTS, _QUERY = 0x50, 0x60, 0x70, 0x74, 0x88, 0x90
_ANCHOR = b"\0DmlFusedConv\0"
"""An operator of the provider, whose name occurs once."""

_SCALARS = {
    1: "float", 2: "int4", 3: "uint4", 4: "uint8", 5: "int8", 6: "uint16", 7: "int16", 8: "int32", 9: "int64",
    10: "string", 11: "bool", 12: "float16", 13: "double", 14: "uint32", 15: "uint64", 16: "complex64",
    17: "complex128",
}  # fmt: skip
"""Element type for each bit of a set of types. The source is a comparison of 1.24.4's table with ONNX Runtime's list.
int4 and uint4 only occur together; strings and complex numbers do not occur."""

_SEQUENCES = 17
"""Added to the bit of an element type for sequences of it."""

_ABSENT = frozenset({"string", "complex64", "complex128"})
"""Types for which a kernel of every type is not registered."""

_EVERY_TYPE = frozenset(_SCALARS.values()) - _ABSENT | {
    f"seq(tensor({name}))" for name in set(_SCALARS.values()) - _ABSENT - {"int4", "uint4"}
}
"""ONNX Runtime 1.24.4's list for a kernel whose set has all bits."""


class UnknownLayout(ValueError):
    """The file has no table of the known form."""


@dataclass(frozen=True)
class ProviderRow:
    """One kernel of the table.

    Attributes:
        types: label of the type constraint -> element types.
        const: inputs that must be constants on the CPU.
        fuses: whether it can be part of a fused graph.
        fused_inputs: how many inputs it must have in a fused graph, 0 for any.
        query: address of its support query, 0 for none; kernels with the same query have the same address.
    """

    op: str
    domain: str
    since: int
    types: dict[str, frozenset[str]]
    const: tuple[int, ...]
    fuses: bool
    fused_inputs: int
    query: int


class _Image:
    """A DLL for x86-64 in its file form, with its addresses (Microsoft, PE format)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:2] != b"MZ" or len(data) < 0x400:
            raise UnknownLayout("not a 64-bit DLL")
        head = self._number("<I", 0x3C)
        if data[head : head + 4] != b"PE\0\0" or self._number("<H", head + 24) != 0x20B:
            raise UnknownLayout("not a 64-bit DLL")
        self._base = self._number("<Q", head + 24 + 24)
        first = head + 24 + self._number("<H", head + 20)
        # Virtual address, offset in the file, bytes in the file.
        self._sections = [
            (address, offset, size)
            for address, size, offset in (
                struct.unpack_from("<III", data, first + 40 * index + 12)
                for index in range(self._number("<H", head + 6))
            )
        ]

    def _number(self, form: str, offset: int) -> int:
        return int(struct.unpack_from(form, self.data, offset)[0])

    def offset(self, address: int) -> int:
        """Return the offset of an address in the file; -1 if it is not in the file."""
        relative = address - self._base
        for start, offset, size in self._sections:
            if start <= relative < start + size:
                return offset + relative - start
        return -1

    def address(self, offset: int) -> int:
        """Return the address of an offset in the file; 0 if it has none."""
        for start, first, size in self._sections:
            if first <= offset < first + size:
                return self._base + start + offset - first
        return 0

    def text(self, offset: int) -> str | None:
        """Return the string at the pointer at an offset; ``None`` if it is not a name."""
        at = self.offset(self._number("<Q", offset))
        match = None if at < 0 else re.compile(rb"([\w.]*)\0").match(self.data, at)
        return match[1].decode() if match else None


def provider_table(data: bytes) -> list[ProviderRow]:
    """Return the table of an onnxruntime.dll, in its order.

    Raises:
        UnknownLayout: the file has no table, or one of another form.
    """
    image = _Image(data)
    try:
        start = _anchor(image)
        while _is_record(image, start - _STRIDE):
            start -= _STRIDE
        rows = []
        while _is_record(image, start):
            rows.append(_row(image, start))
            start += _STRIDE
    except struct.error as error:
        raise UnknownLayout(f"DirectML's table of kernels has another form: {error}") from error
    if len(rows) < 300:
        raise UnknownLayout(f"DirectML's table of kernels has another form: only {len(rows)} rows were read")
    return rows


def _anchor(image: _Image) -> int:
    """Return the offset of one record."""
    at = image.data.find(_ANCHOR)
    if at < 0:
        raise UnknownLayout("DirectML's table of kernels was not found")
    pointer = struct.pack("<Q", image.address(at + 1))
    positions = [m.start() for m in re.finditer(re.escape(pointer), image.data) if _is_record(image, m.start())]
    if len(positions) != 1:
        raise UnknownLayout("DirectML's table of kernels was not found")
    return positions[0]


def _is_record(image: _Image, offset: int) -> bool:
    since, labels, types = (struct.unpack_from("<Q", image.data, offset + at)[0] for at in (8, _LABELS, _TYPES))
    return bool(0 < since < 100 and types <= labels <= 8 and image.text(offset) and image.text(offset + 16) is not None)


def _row(image: _Image, offset: int) -> ProviderRow:
    data = image.data

    def span(at: int) -> tuple[int, int]:
        count, address = struct.unpack_from("<QQ", data, offset + at)
        return count, image.offset(address)

    label_count, labels = span(_LABELS)
    type_count, types = span(_TYPES)
    masks = struct.unpack_from(f"<{type_count}Q", data, types)
    names = [image.text(labels + 8 * index) for index in range(label_count)]
    *inputs, count = struct.unpack_from("<4Ii", data, offset + _CONSTANTS)
    needed, is_set = struct.unpack_from("<IB", data, offset + _FUSED_INPUTS)
    fusion = struct.unpack_from("<I", data, offset + _FUSION)[0]
    if None in names or not 0 <= count <= 4 or fusion > 1 or is_set > 1:
        raise UnknownLayout(f"DirectML's table of kernels has another form, at {image.text(offset)}")
    return ProviderRow(
        image.text(offset) or "",
        image.text(offset + 16) or "ai.onnx",
        struct.unpack_from("<i", data, offset + 8)[0],
        {name or "": _type_names(mask) for name, mask in zip(names, masks, strict=False)},
        tuple(inputs[:count]),
        fusion == 0,
        needed if is_set else 0,
        struct.unpack_from("<Q", data, offset + _QUERY)[0],
    )


def _type_names(mask: int) -> frozenset[str]:
    if mask == (1 << 64) - 1:
        return _EVERY_TYPE
    names = set()
    for bit in range(64):
        if mask >> bit & 1:
            # Sequences of 64-bit integers use the bits of complex numbers: bits above 17 are sequences.
            single, inner = _SCALARS.get(bit), _SCALARS.get(bit - _SEQUENCES)
            name = single or (f"seq(tensor({inner}))" if inner else "")
            if not name:
                raise UnknownLayout(f"unknown bit {bit} in a set of types")
            names.add(name)
    return frozenset(names)


def file_version(data: bytes) -> str:
    """Return the file version of a DLL (Microsoft, VS_FIXEDFILEINFO), its first three numbers: ``1.15.4``.

    Raises:
        UnknownLayout: the file has no version.
    """
    at = data.rfind(struct.pack("<II", 0xFEEF04BD, 0x10000))
    if at < 0:
        raise UnknownLayout("the file has no version")
    high, low = struct.unpack_from("<II", data, at + 8)
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}"


def option_names(data: bytes) -> list[str]:
    """Return the options of the provider and of its sessions whose names are in an onnxruntime.dll."""
    own = rb"(?<![\w.])(device_id|performance_preference|device_filter|disable_metacommands|ep\.dml\.[a-z_]+)(?=\0)"
    return sorted({m[1].decode() for m in re.finditer(own, data)})
