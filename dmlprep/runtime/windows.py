"""Facts about DirectML on Windows: the adapter, the libraries, and why the provider is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dmlprep.portable.ortoptions import adapter_number
from dmlprep.record import DeviceInfo
from dmlprep.runtime.default_target import directml_package
from dmlprep.runtime.environment import install_line
from dmlprep.runtime.types import is_software


def provider_missing() -> str:
    """Return why the installed ONNX Runtime has no DirectML provider, and the fix; empty if it has one.

    Only the installed packages are listed; none is imported.
    """
    return "" if directml_package()[0] else f"no ONNX Runtime with DirectML is installed: {install_line()}"


def provider_facts() -> dict[str, str]:
    """Return facts, by name, about the DirectML.dll that a session of this process will load (worker code)."""
    import onnxruntime

    library = Path(onnxruntime.__file__).parent / "capi" / "DirectML.dll"
    if not library.is_file():
        return {"directml library": "the one of Windows"}
    return {"directml library": "beside onnxruntime", "directml": file_version(library)}


def session_facts(options: Mapping[str, str]) -> dict[str, str]:
    """Return facts, by name, about the adapter of a session with these options, and about its loaded libraries.

    Call this after the session was created, because DirectML.dll is loaded only then. With a preference, the provider
    chooses the adapter by its own rules, so the adapter is not named.
    """
    from dmlprep.portable import device

    facts = device.library_facts()
    number = adapter_number(options)
    if number is None:
        preference = options["performance_preference"]
        return {**facts, "adapter": f"the {preference} adapter", "preference": preference}
    return {**facts, **device.adapter_facts(number)}


def file_version(path: Path) -> str:
    """Return the file version of a Windows library (``1.15.4``); "?" if it has none.

    It reads VS_FIXEDFILEINFO (signature FEEF04BD; learn.microsoft.com) from the file, which works on any system.
    """
    raw = path.read_bytes()
    at = raw.rfind(b"\xbd\x04\xef\xfe")
    if at < 0:
        return "?"
    high, low = (int.from_bytes(raw[at + 8 + i : at + 12 + i], "little") for i in (0, 4))
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}"


def describe(facts: Mapping[str, str], traits: Sequence[str] = ()) -> DeviceInfo:
    """Return the device of a session, such as ``dml on windows: ADAPTER, adapter 0, DirectML 1.15.4 ...``."""
    adapter = facts.get("adapter", "default adapter")
    driver = [f"adapter {facts['adapter number']}"] if facts.get("adapter number") else []
    driver += [f"driver {facts['driver']}"] if facts.get("driver") else []
    directml = facts.get("directml", "?").removesuffix(".0")
    details = [*driver, f"DirectML {directml}", f"ONNX Runtime {facts.get('onnxruntime', '?')}"]
    if facts.get("directml library") == "the one of Windows":
        details.append("DirectML.dll of Windows")
    software = facts.get("adapter kind") == "software"
    if software:
        details.append("software adapter")
    return DeviceInfo(
        f"dml on windows: {adapter}",
        [*details, *traits],
        "dml",
        software=software or is_software(adapter),
        onnxruntime=facts.get("onnxruntime", ""),
        driver=facts.get("driver", ""),
    )
