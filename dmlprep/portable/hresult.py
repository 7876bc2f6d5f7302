"""What an HRESULT in an error text means: its name, the likely causes, and the next thing to try.

Sources: the names are those of winerror.h and dxgi's error list (learn.microsoft.com, "DXGI_ERROR", "Direct3D 12 return
codes"); the causes are ordered by how often they were the answer in the issue threads of DirectML and ONNX Runtime,
and by what the real provider did when it was measured (``docs/directml-conformance.md``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """One HRESULT.

    Attributes:
        code: eight upper-case hexadecimal digits, without ``0x``.
        name: the symbolic name, such as ``E_INVALIDARG``.
        causes: likely causes, the likeliest first.
        next_step: the next thing to try, one sentence.
        removed: the device is gone; a session on it cannot answer any more.
    """

    code: str
    name: str
    causes: tuple[str, ...]
    next_step: str
    removed: bool = False

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


_HUNG = "one dispatch took longer than Windows allows (2 seconds by default): the tensors are too large for this GPU"

_TABLE: dict[str, Diagnosis] = {
    row.code: row
    for row in (
        Diagnosis(
            "80070057",
            "E_INVALIDARG",
            (
                "DirectML has a kernel for the operator but not for these shapes or attributes "
                "(rank above 8, Reshape with allowzero=1 and -1, MatMul of rank 5 or more)",
                "the DirectML.dll found is older than this ONNX Runtime needs",
                "a constant needs more than 4 GiB after DirectML has packed it",
            ),
            "run dmlprep check for the node, or dmlprep bisect to find it",
        ),
        Diagnosis(
            "887A0005",
            "DXGI_ERROR_DEVICE_REMOVED",
            (
                "the driver stopped: " + _HUNG,
                "the GPU ran out of memory",
                "a driver bug in a vendor kernel (metacommand)",
                "the driver was updated or the GPU was taken away while the session was open",
            ),
            "try disable_metacommands, then smaller inputs, then another driver",
            removed=True,
        ),
        Diagnosis(
            "887A0006",
            "DXGI_ERROR_DEVICE_HUNG",
            (_HUNG, "a driver bug in a vendor kernel (metacommand)"),
            "try smaller inputs (tiles, a smaller batch), then disable_metacommands",
            removed=True,
        ),
        Diagnosis(
            "887A0007",
            "DXGI_ERROR_DEVICE_RESET",
            ("another program made the GPU reset", _HUNG),
            "run again with nothing else on the GPU, then with smaller inputs",
            removed=True,
        ),
        Diagnosis(
            "887A0020",
            "DXGI_ERROR_DRIVER_INTERNAL_ERROR",
            ("a driver bug in a vendor kernel (metacommand)", "the driver is older than this DirectML"),
            "update the driver, then try disable_metacommands",
            removed=True,
        ),
        Diagnosis(
            "887A0001",
            "DXGI_ERROR_INVALID_CALL",
            ("the graphics stack cannot do what DirectML asks for",),
            "update the driver and DirectML.dll",
        ),
        Diagnosis(
            "887A0002",
            "DXGI_ERROR_NOT_FOUND",
            ("there is no adapter with this device_id",),
            "choose a smaller device_id: 0 is the first adapter that DXGI lists, the one of the desktop; "
            "dmlprep doctor --adapters lists them",
        ),
        Diagnosis(
            "887A0004",
            "DXGI_ERROR_UNSUPPORTED",
            (
                "the adapter is a software adapter, or its driver has no Direct3D 12",
                "DirectML.dll is older than this ONNX Runtime needs",
                "the system's own DirectML.dll was loaded in place of the one beside onnxruntime.dll",
            ),
            "update the graphics driver, or choose another device_id (dmlprep doctor --adapters); "
            "see with dmlprep doctor which DirectML.dll is found",
        ),
        Diagnosis(
            "C0262002",
            "ERROR_GRAPHICS_INVALID_DISPLAY_ADAPTER",
            ("the adapter is a software adapter (Microsoft Basic Render Driver), which the provider refuses",),
            "choose the device_id of a GPU (dmlprep doctor --adapters), or install its driver",
        ),
        Diagnosis(
            "8007000E",
            "E_OUTOFMEMORY",
            ("the GPU or the process has no memory left", "a single tensor is larger than the device allows"),
            "use smaller inputs or FP16, or a GPU with more memory",
        ),
        Diagnosis(
            "80004005",
            "E_FAIL",
            ("DirectML failed without saying why: often an operator that it compiles but cannot run",),
            "run dmlprep bisect to find the node",
        ),
        Diagnosis(
            "80004001",
            "E_NOTIMPL",
            ("DirectML or the driver lacks this operator or data type",),
            "keep the operator out of the model, or use a newer DirectML",
        ),
        Diagnosis(
            "80004002",
            "E_NOINTERFACE",
            ("DirectML.dll or d3d12.dll is older than this ONNX Runtime needs",),
            "see with dmlprep doctor which DirectML.dll is found",
        ),
        Diagnosis(
            "8000FFFF",
            "E_UNEXPECTED",
            ("an error inside the DirectML execution provider",),
            "run dmlprep bisect to find the node",
        ),
        Diagnosis(
            "80070005",
            "E_ACCESSDENIED",
            ("a file or the device may not be opened by this user",),
            "see who owns the model file and its folder",
        ),
        Diagnosis(
            "8007007E",
            "ERROR_MOD_NOT_FOUND",
            ("DirectML.dll is not beside onnxruntime.dll",),
            "install onnxruntime-directml again; see dmlprep doctor",
        ),
        Diagnosis(
            "8007023E",
            "ERROR_UNHANDLED_EXCEPTION",
            ("an exception inside a kernel of DirectML's provider (Reshape with allowzero=1 and -1 makes one)",),
            "run dmlprep check for the node, or dmlprep bisect to find it",
        ),
        Diagnosis(
            "80070070",
            "ERROR_DISK_FULL",
            ("the disk is full",),
            "make room and run again",
        ),
    )
}

# An HRESULT of a failure has its top bit set: eight hexadecimal digits that begin with 8 to F.
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?([89A-Fa-f][0-9A-Fa-f]{7})(?![0-9A-Za-z])")
# Some releases print it as a signed decimal number.
_DECIMAL = re.compile(r"(?<![0-9])-(\d{9,10})(?![0-9])")


def diagnose(text: str) -> Diagnosis | None:
    """The first HRESULT in ``text`` that this table knows, else the first that looks like one, else ``None``."""
    found = [match.group(1).upper() for match in _HEX.finditer(text)]
    found += [f"{(1 << 32) - int(match.group(1)):08X}" for match in _DECIMAL.finditer(text)]
    for code in found:
        if code in _TABLE:
            return _TABLE[code]
    for code in found:
        # 88xx: DirectX facilities, 800x: COM and Windows. Other hexadecimal words are digests or addresses.
        if code.startswith(("8000", "8007", "887", "8876")):
            return Diagnosis(code, "unknown HRESULT", (), "run dmlprep bisect to find the node")
    return None


def error_text(error: BaseException) -> str:
    """What an error of ONNX Runtime's package says."""
    if isinstance(error, UnicodeDecodeError):
        # pybind11 failed to read a Windows error text in the user's language; the bytes are the message.
        return error.object.decode("utf-8", "surrogateescape")
    return str(error) or type(error).__name__


def plain_text(raw: bytes | str, limit: int = 2000) -> str:
    """Readable text from what a runtime printed, whatever the code page of the Windows that printed it.

    UTF-8 is taken as it is. Else the bytes hold a sentence in the language of Windows (cp932, cp1251 ...), which
    nobody can guess: the ASCII part stays, which holds the HRESULT, the file and the node, and each run of other bytes
    becomes one ``?``. Control characters and colour codes go, and the end is cut at ``limit`` characters.
    """
    if isinstance(raw, bytes):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = re.sub(rb"[\x80-\xff]+[\x40-\x7e\x80-\xff]?(?:[\x80-\xff]+[\x40-\x7e]?)*", b"?", raw).decode("ascii")
    else:
        # A text that was read with "surrogateescape" holds the bytes as lone surrogates.
        text = re.sub("[\ud800-\udfff]+", "?", raw)
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]+", " ", text.replace("\r\n", "\n")).strip()
    return text if len(text) <= limit else text[: limit - 4] + " ..."
