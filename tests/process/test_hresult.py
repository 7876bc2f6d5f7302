"""Error texts of any Windows, as plain text with a diagnosis."""

from __future__ import annotations

import pytest

from dmlprep.portable.hresult import diagnose, plain_text
from dmlprep.process.failure import failure


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Exception(1) tid(4) 80070057 The parameter is incorrect.", "E_INVALIDARG"),
        ("HRESULT: 0x887A0006", "DXGI_ERROR_DEVICE_HUNG"),
        ("887a0005: the GPU device instance has been suspended", "DXGI_ERROR_DEVICE_REMOVED"),
        ("failed with -2005270523", "DXGI_ERROR_DEVICE_REMOVED"),
        ("(8007000E)", "E_OUTOFMEMORY"),
        ("80004005 Unspecified error", "E_FAIL"),
        ("887A0020", "DXGI_ERROR_DRIVER_INTERNAL_ERROR"),
        ("sha 80123456 then 80070057", "E_INVALIDARG"),
        ("Exception(2) tid(24) 8007023E", "ERROR_UNHANDLED_EXCEPTION"),
        ("887A0099", "unknown HRESULT"),
    ],
)
def test_known_codes(text: str, name: str) -> None:
    found = diagnose(text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["", "id 12345678", "deadbeefdeadbeef", "a80070057b", "-12"])
def test_what_is_no_hresult(text: str) -> None:
    assert diagnose(text) is None


@pytest.mark.parametrize(
    ("sentence", "encoding"),
    [
        ("パラメーターが間違っています。", "cp932"),
        ("Параметр задан неверно.", "cp1251"),
        ("La descripción", "cp1252"),
        ("参数错误。", "gbk"),
    ],
)
def test_any_code_page(sentence: str, encoding: str) -> None:
    raw = b"D:\\DmlExecutionProvider.cpp(12): Exception(1) 80070057 " + sentence.encode(encoding) + b"\r\n Node: conv_3"
    text = plain_text(raw)
    assert text.isascii()
    assert "80070057" in text
    assert "Node: conv_3" in text
    assert failure("run", raw).hresult == "80070057 E_INVALIDARG"


def test_utf8_stays() -> None:
    assert plain_text("der Parameter ist ungültig".encode()) == "der Parameter ist ungültig"


def test_a_lost_device_is_its_own_kind() -> None:
    found = failure("run", "887A0005", "model.onnx")
    assert found.kind == "device-removed"
    assert "metacommand" in found.next_step
    assert found.exit_code == 1


def test_length_is_bounded() -> None:
    assert len(plain_text("x" * 10_000)) == 2000
