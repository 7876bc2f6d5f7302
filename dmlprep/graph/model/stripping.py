"""Remove an exporter's notes from a model file: metadata properties and doc strings, wherever ONNX has them.

Exporters write the source paths of the developer's machine there. The notes are cut out of the file's wire format, so
every other byte stays as it is, and no weights are in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import onnx
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dmlprep.core.files.reasons import reading
from dmlprep.graph.model import protos
from dmlprep.graph.model.wire import SELF, read_varint, skeleton, skip, varint

if TYPE_CHECKING:
    from hashlib import _Hash

_PIECE = 1 << 20
_LEN = 2
_BYTES, _STRING, _MESSAGE = 12, 9, 11
"""Types of fields in descriptors (google/protobuf/descriptor.proto)."""

_DOC, _ENTRIES = "doc_string", "metadata_props"
_LISTS = ("strings", "string_data")
"""Fields with values of list attributes and of tensors."""

_RUNTIME_KEYS = frozenset({"layer_ann"})
"""Keys of properties in the graph that ONNX Runtime reads: it can assign nodes to providers by ``layer_ann``."""
_EXPORTER = "pkg."
"""Prefix of an exporter's properties of the whole model. Its other properties are for the app (names of classes)."""


@dataclass(frozen=True)
class Text:
    """A text in a model.

    Attributes:
        place: the place for people: ``node 'Load_1', attribute 'file'``.
        is_listed: True for a value in a list or a tensor, such as a word of a vocabulary.
    """

    value: str
    place: str
    is_listed: bool


@dataclass(frozen=True)
class Stripped:
    """A model file without an exporter's notes, as pieces of the file.

    Attributes:
        path: the file, which stays unchanged.
        pieces: the content in order: bytes, or a range of the file's bytes.
        entries, docs: number of metadata entries and of doc strings that are left out.
        proto: the remaining model, without the values of large tensors.
        original: SHA-256 of the file; complete after ``chunks``.
    """

    path: Path
    pieces: list[bytes | range]
    entries: int
    docs: int
    proto: onnx.ModelProto = field(repr=False)
    original: _Hash = field(default_factory=hashlib.sha256, repr=False)

    @property
    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return sum(map(len, self.pieces))

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks of at most 1 MiB; ``original`` gets all bytes of the file. Only once.

        Raises:
            InputError: the file cannot be read.
        """
        with reading(self.path), self.path.open("rb") as file:
            for piece in self.pieces:
                if isinstance(piece, bytes):
                    yield piece
                    continue
                for _ in self._read(file, piece.start - file.tell()):
                    pass
                yield from self._read(file, len(piece))
            for _ in self._read(file, 1 << 63):
                pass

    def _read(self, file: BinaryIO, count: int) -> Iterator[bytes]:
        while count > 0 and (chunk := file.read(min(count, _PIECE))):
            self.original.update(chunk)
            count -= len(chunk)
            yield chunk

    def texts(self) -> Iterator[Text]:
        """Yield every text of the remaining model: names, attributes, properties, values of text tensors.

        The content of fields that this onnx does not know is yielded too.
        """
        stack: list[tuple[Message, tuple[Message, ...]]] = [(self.proto, ())]
        while stack:
            message, above = stack.pop()
            holders = (*above, message)
            for unknown in UnknownFieldSet(message):
                if isinstance(unknown.data, bytes):
                    place = f"field {unknown.field_number}"
                    yield Text(unknown.data.decode("utf-8", "replace"), place, is_listed=False)
            for descriptor, value in message.ListFields():
                if descriptor.type not in (_BYTES, _STRING, _MESSAGE) or descriptor.name == "raw_data":
                    continue
                for one in (value,) if isinstance(value, (bytes, str, Message)) else value:
                    if isinstance(one, Message):
                        stack.append((one, holders))
                    else:
                        text = one.decode("utf-8", "replace") if isinstance(one, bytes) else one
                        yield Text(text, _place(holders) or descriptor.name, descriptor.name in _LISTS)

    def is_same_as(self, written: Path) -> bool:
        """Return whether a file has this content: all fields are equal, and the weights byte by byte."""
        with _mapped(written) as data:
            other = onnx.ModelProto.FromString(skeleton(data))
        first = protos.copy(self.proto)
        pairs = list(zip(_payloads(first), _payloads(other), strict=False))
        if first.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True):
            return False
        with self.path.open("rb") as one, written.open("rb") as two:
            return all(a == b for here, there in pairs for a, b in zip(_at(one, here), _at(two, there), strict=True))


def strip(path: Path) -> Stripped:
    """Return the content of a model file without an exporter's notes; the file was opened as a ``Model`` before.

    Kept are the properties of the model that are for apps or for dmlprep, such as names of classes and the frame.

    Raises:
        OSError: the file cannot be read.
        InputError: it is not an ONNX model.
    """
    with _mapped(path) as data:
        cut = _Cut(data)
        pieces = cut.message(onnx.ModelProto.DESCRIPTOR, 0, len(data)) or [range(len(data))]
        proto = onnx.ModelProto.FromString(skeleton(data))
    _forget(proto)
    return Stripped(path, pieces, cut.entries, cut.docs, proto)


class _Cut:
    """Cuts notes out of the wire format of a model, and counts them."""

    def __init__(self, data: mmap) -> None:
        self._data = data
        self.entries = self.docs = 0

    def message(self, kind: Any, start: int, end: int) -> list[bytes | range] | None:
        """Return the pieces that remain of a message; ``None`` if it has no notes."""
        pieces: list[bytes | range] = []
        run = at = start
        while at < end:
            field_start = at
            tag, at = read_varint(self._data, at, end)
            payload, at = skip(self._data, at, end, tag & 7)
            name, inner = _fields(kind).get(tag >> 3, ("", None))
            if not name or tag & 7 != _LEN:
                continue
            if name == _DOC:
                if at == payload:
                    continue
                self.docs += 1
                new: list[bytes | range] = []
            elif name == _ENTRIES:
                if _stays(kind.name, onnx.StringStringEntryProto.FromString(self._data[payload:at]).key):
                    continue
                self.entries += 1
                new = []
            else:
                body = self.message(inner, payload, at)
                if body is None:
                    continue
                new = [varint(tag) + varint(sum(map(len, body))), *body]
            if run < field_start:
                pieces.append(range(run, field_start))
            pieces += new
            run = at
        if run == start:
            return None
        if run < end:
            pieces.append(range(run, end))
        return pieces


@cache
def _fields(kind: Any) -> dict[int, tuple[str, Any]]:
    """Return number -> name and message type of the fields of a message type that are notes, or can contain some."""
    rows = {one.number: (one.name, one.message_type) for one in kind.fields}
    return {n: (name, inner) for n, (name, inner) in rows.items() if name == _DOC or _has_notes(name, inner, ())}


def _has_notes(name: str, kind: Any, above: tuple[Any, ...]) -> bool:
    if name in (_DOC, _ENTRIES):
        return True
    if kind is None or kind in above:
        return False
    return any(_has_notes(one.name, one.message_type, (*above, kind)) for one in kind.fields)


def _stays(kind: str, key: str) -> bool:
    """Return whether a metadata property with this key stays; ``kind`` is the type of the message that has it."""
    return not key.startswith(_EXPORTER) if kind == "ModelProto" else key in _RUNTIME_KEYS


def _forget(proto: onnx.ModelProto) -> None:
    """Remove the notes from a model in memory, in place."""
    stack: list[Any] = [proto]
    while stack:
        message = stack.pop()
        for descriptor, value in message.ListFields():
            if descriptor.name == _DOC:
                if value:
                    message.ClearField(_DOC)
            elif descriptor.name == _ENTRIES:
                remaining = [one for one in value if _stays(message.DESCRIPTOR.name, one.key)]
                if len(remaining) < len(value):
                    message.ClearField(_ENTRIES)
                    message.metadata_props.extend(remaining)
            elif descriptor.type == _MESSAGE:
                stack += [value] if isinstance(value, Message) else value


def _payloads(proto: onnx.ModelProto) -> Iterator[range]:
    """Yield the bytes of each large tensor in the model's own file, and remove their offsets from the proto."""
    for tensor in protos.tensors(proto):
        entries = {entry.key: entry for entry in tensor.external_data}
        if tensor.data_location == onnx.TensorProto.EXTERNAL and entries["location"].value == SELF:
            start = int(entries["offset"].value)
            entries["offset"].value = ""
            yield range(start, start + int(entries["length"].value))


def _place(holders: tuple[Message, ...]) -> str:
    """Return the place of a text for people, by the messages that it is in, the outermost first."""
    words = []
    for message in holders[1:]:
        name = getattr(message, "name", "") or getattr(message, "key", "") or getattr(message, "op_type", "")
        kind = message.DESCRIPTOR.name.removesuffix("Proto")
        kind = {"StringStringEntry": "property", "ValueInfo": "value"}.get(kind, kind.lower())
        words += [f"{kind} {name!r}"] if name else []
    return ", ".join(words[-2:])


def _at(file: BinaryIO, place: range) -> Iterator[bytes]:
    """Yield the bytes at a place of a file, in chunks; the last ones are empty if the file ends before."""
    file.seek(place.start)
    for start in range(0, len(place), _PIECE):
        yield file.read(min(_PIECE, len(place) - start))


@contextmanager
def _mapped(path: Path) -> Iterator[mmap]:
    with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        yield data
