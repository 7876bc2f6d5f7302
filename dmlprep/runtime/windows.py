"""DirectML on Windows: what can be said of the adapter and of the libraries, and why the provider is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from dmlprep.record import DeviceInfo

__all__ = ["adapter_facts", "describe", "provider_missing"]


def provider_missing() -> str:
    """Why the installed ONNX Runtime has no DirectML provider, empty when it has one. Imports nothing."""
    try:
        metadata.version("onnxruntime-directml")
    except metadata.PackageNotFoundError:
        return "onnxruntime-directml is not installed: pip install onnxruntime-directml"
    return ""


def adapter_facts() -> dict[str, str]:
    """Facts about the DirectML of this process, told by the worker."""
    facts: dict[str, str] = {}
    import onnxruntime

    library = Path(onnxruntime.__file__).parent / "capi" / "DirectML.dll"
    facts["directml library"] = "beside onnxruntime" if library.is_file() else "the one of Windows"
    if library.is_file():
        facts["directml"] = file_version(library)
    with contextlib.suppress(Exception):  # new in 1.23; what it cannot say is left out
        for device in onnxruntime.get_ep_devices():
            if device.ep_name == "DmlExecutionProvider":
                found = dict(device.device.metadata)
                facts["adapter"] = found.get("Description", device.device.vendor)
                facts["adapter id"] = f"{device.device.vendor_id:04x}:{device.device.device_id:04x}"
                break
    return facts


def file_version(path: Path) -> str:
    """The file version of a Windows library (``1.15.4``), "?" when it has none.

    Reads VS_FIXEDFILEINFO (signature FEEF04BD; learn.microsoft.com) from the file itself: works on any system.
    """
    raw = path.read_bytes()
    at = raw.rfind(b"\xbd\x04\xef\xfe")
    if at < 0:
        return "?"
    high, low = (int.from_bytes(raw[at + 8 + i : at + 12 + i], "little") for i in (0, 4))
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}"


def describe(facts: Mapping[str, str], traits: Sequence[str] = ()) -> DeviceInfo:
    """``dml on windows: ADAPTER, DirectML 1.15.4 ...``."""
    details = [f"DirectML {facts.get('directml', '?')}", f"ONNX Runtime {facts.get('onnxruntime', '?')}"]
    if facts.get("directml library") == "the one of Windows":
        details.append("DirectML.dll of Windows")
    return DeviceInfo(f"dml on windows: {facts.get('adapter', 'default adapter')}", [*details, *traits])
