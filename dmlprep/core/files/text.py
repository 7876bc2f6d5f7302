"""Decode third-party text: UTF-8 with or without a byte-order mark, and UTF-16 with one.

Windows PowerShell 5 writes a byte-order mark with ``-Encoding utf8``, and UTF-16 with ``>`` and ``Out-File``.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from dmlprep.core.files.bounded_read import DOCUMENT_BYTES, Unfit, read_given

HOW_TO_SAVE = "save it as UTF-8: in an editor, Save As; in PowerShell, Out-File -Encoding utf8 FILE"

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, because it begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16-LE"),
    (codecs.BOM_UTF16_BE, "UTF-16-BE"),
)

_BINARY = frozenset(range(1, 32)) - frozenset(b"\t\n\f\r\x1b")
"""Control characters that no text has. An ONNX model begins with one of them."""


class NotUtf8(Unfit):
    """The bytes are text in an unsupported encoding, or not text; the message says which."""

    def __init__(self, what: str, fix: str = HOW_TO_SAVE) -> None:
        super().__init__(what, fix)


def decode_text(data: bytes) -> str:
    r"""Return the content of a text file as a string, with ``\n`` as line ends and without the byte-order mark.

    Raises:
        NotUtf8: the bytes are neither UTF-8 nor UTF-16 with a byte-order mark.
    """
    mark, encoding = next(((m, e) for m, e in _MARKS if data.startswith(m)), (b"", "UTF-8"))
    if encoding == "UTF-32":
        raise NotUtf8("the text is UTF-32, which is not supported")
    body = data[len(mark) :]
    if not mark and b"\0" in body[:64]:
        raise NotUtf8("the text is UTF-16 without a byte-order mark, or not text")
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        if _BINARY & set(data[:64]):
            raise NotUtf8("the file is binary, not text", "pass the text file that this command reads") from error
        if mark:
            raise NotUtf8(f"the text is not valid {encoding[:6].rstrip('-')}, despite its byte-order mark") from error
        raise NotUtf8(
            f"the text is not UTF-8 (byte {data[error.start]:02X} at position {error.start}): "
            "perhaps a code page such as Windows-1252"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path, limit: int = DOCUMENT_BYTES) -> str:
    r"""Return the text of a file of at most ``limit`` bytes, with ``\n`` as line ends.

    Raises:
        OSError: the file cannot be read.
        Unfit: it is not a plain file, too large, or not text (``NotUtf8``).
    """
    return decode_text(read_given(path, limit))
