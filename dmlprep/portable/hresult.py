"""Explain the HRESULT in an error text: its name, the likely causes, and the next thing to try.

Sources: the names are those of winerror.h and of DXGI's error list (learn.microsoft.com, "DXGI_ERROR", "Direct3D 12
return codes"). Causes are ordered by their frequency in the issue threads of DirectML and ONNX Runtime, and by
measurements (``docs/directml-conformance.md``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """An explained HRESULT: a code of eight upper-case digits, its symbolic name, likely causes, and what to try next.

    The likeliest cause is the first. ``removed``: the device was removed or reset, and its sessions can no longer
    answer.
    """

    code: str
    name: str
    causes: tuple[str, ...]
    next_step: str
    removed: bool = False

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


_HUNG = "one dispatch took longer than Windows allows (2 seconds by default): the tensors are too large for this GPU"
_METACOMMAND = "a driver bug in a vendor kernel (metacommand)"

_ERRORS: dict[str, tuple[str, ...]] = {
    "80070057 E_INVALIDARG": (
        "run dmlprep check for the node, or dmlprep bisect to find it",
        "DirectML has a kernel for the operator but not for these shapes or attributes (rank above 8, Reshape with "
        "allowzero=1 and -1, MatMul of rank 5 or more)",
        "the loaded DirectML.dll is older than this ONNX Runtime needs",
        "a constant needs more than 4 GiB after DirectML packs it",
    ),
    "887A0005 DXGI_ERROR_DEVICE_REMOVED": (
        "try disable_metacommands, then smaller inputs, then another driver",
        "the driver stopped: " + _HUNG,
        "the GPU ran out of memory",
        _METACOMMAND,
        "the driver was updated or the GPU was removed while the session was open",
    ),
    "887A0006 DXGI_ERROR_DEVICE_HUNG": (
        "try smaller inputs (tiles, a smaller batch), then disable_metacommands",
        _HUNG,
        _METACOMMAND,
    ),
    "887A0007 DXGI_ERROR_DEVICE_RESET": (
        "run again with nothing else on the GPU, then with smaller inputs",
        "another program made the GPU reset",
        _HUNG,
    ),
    "887A0020 DXGI_ERROR_DRIVER_INTERNAL_ERROR": (
        "update the driver, then try disable_metacommands",
        _METACOMMAND,
        "the driver is older than this DirectML",
    ),
    "887A0001 DXGI_ERROR_INVALID_CALL": (
        "update the driver and DirectML.dll",
        "the graphics stack lacks a feature that DirectML needs",
    ),
    "887A0002 DXGI_ERROR_NOT_FOUND": (
        "choose a smaller device_id: 0 is the first adapter that DXGI lists, the one of the desktop; dmlprep doctor "
        "--adapters lists them",
        "there is no adapter with this device_id",
    ),
    "887A0004 DXGI_ERROR_UNSUPPORTED": (
        "update the graphics driver, or choose another device_id (dmlprep doctor --adapters); dmlprep doctor shows "
        "which DirectML.dll is loaded",
        "the adapter is a software adapter, or its driver has no Direct3D 12",
        "DirectML.dll is older than this ONNX Runtime needs",
        "the DirectML.dll of Windows was loaded instead of the one next to onnxruntime.dll",
    ),
    "C0262002 ERROR_GRAPHICS_INVALID_DISPLAY_ADAPTER": (
        "choose the device_id of a GPU (dmlprep doctor --adapters), or install its driver",
        "the adapter is a software adapter (Microsoft Basic Render Driver), which the provider refuses",
    ),
    "8007000E E_OUTOFMEMORY": (
        "use smaller inputs or FP16, or a GPU with more memory",
        "the GPU or the process is out of memory",
        "a single tensor is larger than the device allows",
    ),
    "80004005 E_FAIL": (
        "run dmlprep bisect to find the node",
        "DirectML failed without a reason: often an operator that it compiles but cannot run",
    ),
    "80004001 E_NOTIMPL": (
        "remove the operator from the model, or use a newer DirectML",
        "DirectML or the driver lacks this operator or data type",
    ),
    "80004002 E_NOINTERFACE": (
        "dmlprep doctor shows which DirectML.dll is loaded",
        "DirectML.dll or d3d12.dll is older than this ONNX Runtime needs",
    ),
    "8000FFFF E_UNEXPECTED": ("run dmlprep bisect to find the node", "an error inside the DirectML execution provider"),
    "80070005 E_ACCESSDENIED": (
        "check the permissions of the model file and its folder",
        "this user cannot open a file or the device",
    ),
    "8007007E ERROR_MOD_NOT_FOUND": (
        "install ONNX Runtime with DirectML again; see dmlprep doctor",
        "DirectML.dll is not next to onnxruntime.dll",
    ),
    "8007023E ERROR_UNHANDLED_EXCEPTION": (
        "run dmlprep check for the node, or dmlprep bisect to find it",
        "an exception inside a kernel of DirectML's provider (for example Reshape with allowzero=1 and -1)",
    ),
    "80070070 ERROR_DISK_FULL": ("free some space and run again", "the disk is full"),
}
"""For each code and name: the next thing to try, then the likely causes."""

_REMOVED = ("887A0005", "887A0006", "887A0007", "887A0020")

_TABLE = {
    error[:8]: Diagnosis(error[:8], error[9:], tuple(causes), step, error[:8] in _REMOVED)
    for error, (step, *causes) in _ERRORS.items()
}

# The top bit of a failing HRESULT is set, so its eight hexadecimal digits begin with 8 to F.
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?([89A-Fa-f][0-9A-Fa-f]{7})(?![0-9A-Za-z])")
# Some releases print the HRESULT as a signed decimal number.
_DECIMAL = re.compile(r"(?<![0-9])-(\d{9,10})(?![0-9])")


def diagnose(text: str) -> Diagnosis | None:
    """Return the first known HRESULT in ``text``; if there is none, the first number that looks like an HRESULT.

    Hexadecimal numbers come before negative decimal ones. Return ``None`` if there is no such number.
    """
    codes = [match.group(1).upper() for match in _HEX.finditer(text)]
    codes += [f"{(1 << 32) - int(match.group(1)):08X}" for match in _DECIMAL.finditer(text)]
    if known := next((code for code in codes if code in _TABLE), None):
        return _TABLE[known]
    # 887x: DXGI, 8000 and 8007: COM and Windows. Other hexadecimal words are digests or addresses.
    if other := next((code for code in codes if code.startswith(("8000", "8007", "887"))), None):
        return Diagnosis(other, "unknown HRESULT", (), "run dmlprep bisect to find the node")
    return None


def error_text(error: BaseException) -> str:
    """Return the message of an exception from onnxruntime, or the name of its type if the message is empty.

    A ``UnicodeDecodeError`` means that Python could not decode the message. Its bytes are then the result, as text with
    surrogates.
    """
    if isinstance(error, UnicodeDecodeError):
        # pybind11 could not decode a Windows error text in the user's language. The bytes are the message.
        return error.object.decode("utf-8", "surrogateescape")
    return str(error) or type(error).__name__


def plain_text(raw: bytes | str) -> str:
    """Return the output of a runtime as readable text, for any code page of its Windows.

    Text in UTF-8 stays unchanged. Other bytes are in an unknown code page (cp932, cp1251 ...): each run of them becomes
    one ``?``. The ASCII part remains, which contains the HRESULT, the file and the node. Control characters and colour
    codes are removed, and the text is cut at 2000 characters.
    """
    if isinstance(raw, bytes):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = re.sub(rb"[\x80-\xff]+[\x40-\x7e\x80-\xff]?(?:[\x80-\xff]+[\x40-\x7e]?)*", b"?", raw).decode("ascii")
    else:
        # In text that was decoded with "surrogateescape", undecodable bytes are lone surrogates.
        text = re.sub("[\ud800-\udfff]+", "?", raw)
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]+", " ", text.replace("\r\n", "\n")).strip()
    return text if len(text) <= 2000 else text[:1996] + " ..."
