"""Text that editors and shells wrote."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from dmlprep.core.files import decode_text, read_text
from dmlprep.core.files.text import NotUtf8

TEXT = 'doc = "Модель, 重み"\r\n[step.pin]\n'


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_text_as_powershell_and_editors_write_it(mark: bytes, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(mark + TEXT.encode(encoding))
    assert read_text(tmp_path / "f") == TEXT.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("doc".encode("utf-16-le"), "UTF-16 without a byte-order mark"),
        (codecs.BOM_UTF32_LE + "doc".encode("utf-32-le"), "UTF-32"),
        ("doc = 'modèle'".encode("cp1252"), "not UTF-8 (byte E8 at position 10): perhaps a code page"),
        (codecs.BOM_UTF16_LE + b"d", "not valid UTF-16"),
        (codecs.BOM_UTF8 + b"\xff", "not valid UTF-8"),
        (b"\x08\n\x12\x07pytorch:\xa1\xb1", "the file is binary, not text"),
    ],
)
def test_other_encodings_are_named(data: bytes, said: str) -> None:
    with pytest.raises(NotUtf8) as refused:
        decode_text(data)
    assert said in str(refused.value)


def test_an_empty_file_is_empty_text() -> None:
    assert decode_text(b"") == decode_text(codecs.BOM_UTF8) == decode_text(codecs.BOM_UTF16_LE) == ""
