"""Facts about a Windows machine without extra packages: adapters and drivers from DXGI, versions of libraries.

Facts that Windows does not report are omitted. Sources:

- DXGI_ADAPTER_FLAG_SOFTWARE and VendorId: a PCI id up to FFFF, above that an ACPI id (learn.microsoft.com, dxgi.h). The
  PCI ids are from the PCI-SIG's list. Qualcomm's drivers for Windows report the ACPI id "QCOM", 4D4F4351.
- Adapters that the provider refuses: ``IsSoftwareAdapter`` in ONNX Runtime's ``dml_provider_factory.cc``.
- The version of a library: VS_FIXEDFILEINFO (learn.microsoft.com).
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from . import dxgi
from .dxgi import AdapterDesc
from .ortoptions import adapter_number

VENDORS = {
    "NVIDIA": (0x10DE,),
    "AMD": (0x1002, 0x1022),
    "Intel": (0x8086,),
    "Qualcomm": (0x4D4F4351, 0x5143),
}
"""The vendors that ``--adapter`` accepts, with their ids."""

VENDOR_NAMES = {number: name for name, ids in VENDORS.items() for number in ids}
VENDOR_NAMES.update({0x1414: "Microsoft", 0x10005: "Mesa"})
"""Vendor name by DXGI id (pcisig.com; Qualcomm's ACPI id is the letters QCOM)."""

_SOFTWARE = 2  # DXGI_ADAPTER_FLAG_SOFTWARE
_BASIC_RENDER_DRIVER = (0x1414, 0x008C)


@dataclass(frozen=True)
class Adapter:
    """One graphics adapter.

    Attributes:
        number: its index in IDXGIFactory1::EnumAdapters1, from 0. ``--device-id`` and the provider's ``device_id`` use
            the same number.
        vendor: the vendor's name; empty if unknown.
        vendor_id, model_id: VendorId and DeviceId, PCI or ACPI ids.
        dedicated_memory, shared_memory: size in bytes of the video memory, and of the system memory that the adapter
            may use.
        driver: the version of the user-mode driver; empty if unknown.
        software: whether it computes on the CPU: DXGI flags it so, or it is the Microsoft Basic Render Driver
            (1414:008c).
        luid: the locally unique id, which stays the same until Windows restarts.
        preferences: the values of ``performance_preference`` for which DXGI lists it first among hardware adapters.
    """

    number: int
    name: str
    vendor: str
    vendor_id: int
    model_id: int
    dedicated_memory: int
    shared_memory: int
    driver: str
    software: bool
    luid: int
    preferences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def machine_facts() -> dict[str, str]:
    """Return the Python version, the system, the machine type and the processor, as text by name."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.version()}".strip(),
        "machine": platform.machine(),
        "processor": platform.processor(),
    }


def driver_version(number: int) -> str:
    """Return a version number of CheckInterfaceSupport (64 bits) as text, such as ``31.0.15.4601``."""
    return ".".join(str(number >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def fixed_version(block: bytes) -> str:
    """Return the file version in the bytes of a VS_FIXEDFILEINFO, such as ``1.15.4.0``.

    Raises:
        ValueError: the bytes are not such a structure.
    """
    signature, _struct, high, low = struct.unpack_from("<4I", block.ljust(16, b"\0"))
    if len(block) < 16 or signature != 0xFEEF04BD:
        raise ValueError("not a VS_FIXEDFILEINFO")
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"


def describe(desc: AdapterDesc, number: int = 0, driver: int | None = None) -> Adapter:
    """Return an adapter from its number, its DXGI_ADAPTER_DESC1 and its driver's version number.

    ``driver`` is ``None`` if the version is unknown.
    """
    ids = (desc.vendor, desc.device)
    return Adapter(
        number=number,
        name=bytes(desc.description).decode("utf-16-le", "replace").split("\0")[0].strip(),
        vendor=vendor_name(desc.vendor),
        vendor_id=desc.vendor,
        model_id=desc.device,
        dedicated_memory=desc.dedicated_video,
        shared_memory=desc.shared_system,
        driver="" if driver is None else driver_version(driver),
        software=bool(desc.flags & _SOFTWARE) or ids == _BASIC_RENDER_DRIVER,
        luid=desc.whole_luid,
    )


def vendor_name(vendor: int) -> str:
    """Return the vendor's name, such as ``NVIDIA`` for 0x10DE; empty if unknown."""
    return VENDOR_NAMES.get(vendor, "")


def adapters() -> tuple[Adapter, ...]:
    """Return all adapters in DXGI's order; empty on systems other than Windows.

    Raises:
        OSError: DXGI does not answer.
    """
    answer = dxgi.read_dxgi()
    rows = [describe(desc, number, driver) for number, (desc, driver) in enumerate(answer.described)]
    software = {one.luid for one in rows if one.software}
    # The provider ignores software adapters before it chooses the first one.
    best = {name: [luid for luid in luids if luid not in software][:1] for name, luids in answer.preferred.items()}
    return tuple(replace(one, preferences=tuple(name for name in best if one.luid in best[name])) for one in rows)


def listed(candidates: Sequence[Adapter]) -> str:
    """Return the adapters as a clause for errors: ``there are: 0 NAME, 1 NAME``."""
    return (
        f"there {'is' if len(candidates) == 1 else 'are'}: {', '.join(map(str, candidates))}"
        if candidates
        else "there are none"
    )


def find_adapter(wanted: str, candidates: Sequence[Adapter]) -> Adapter:
    """Return the only adapter among ``candidates`` that matches ``wanted``, without regard to case.

    ``wanted`` is a vendor of ``VENDORS``, or a part of the adapter's name.

    Raises:
        ValueError: no adapter matches, or several do; the message lists the adapters.
    """
    word = wanted.casefold()
    vendor = next((ids for name, ids in VENDORS.items() if name.casefold() == word), None)
    matching = [one for one in candidates if (one.vendor_id in vendor if vendor else word in one.name.casefold())]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ValueError(f"no adapter matches {wanted!r}; {listed(candidates)}")
    raise ValueError(f"{len(matching)} adapters match {wanted!r}: {', '.join(map(str, matching))}")


def problem(number: int, named: bool, candidates: Sequence[Adapter]) -> tuple[str, str]:
    """Return why no session should be opened on the adapter with this number, and the fix; both empty if it is usable.

    Args:
        named: the user chose the adapter. Otherwise a software adapter is refused, because it is not a GPU.
        candidates: all adapters.
    """
    one = next((one for one in candidates if one.number == number), None)
    if one is None:
        fix = "choose one of these" if candidates else "install the driver of the graphics adapter"
        return f"there is no adapter {number} (887A0002 DXGI_ERROR_NOT_FOUND); {listed(candidates)}", fix
    if not one.software or named:
        return "", ""
    hardware = [other for other in candidates if not other.software]
    choose = f", or choose with --device-id: {', '.join(map(str, hardware))}" if hardware else ""
    return (
        f"a session would use {one}, a software adapter, which computes on the CPU",
        f"install or update the driver of the graphics adapter{choose}",
    )


def with_number(options: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the session options in which a number, ``device_id``, replaces the option ``adapter``.

    The option ``adapter`` is a vendor, or a part of a name. Without it, the options stay unchanged.

    Raises:
        ValueError: no adapter matches, or several do; the message lists the adapters.
        OSError: DXGI does not answer.
    """
    rest = {key: value for key, value in options.items() if key != "adapter"}
    if "adapter" in options:
        rest["device_id"] = str(find_adapter(options["adapter"], adapters()).number)
    return rest


def session_problem(options: Mapping[str, str]) -> tuple[str, str]:
    """Return why no session should be opened with these options, and the fix; both empty if the adapter is usable.

    Both are also empty on systems without DXGI, and if DXGI does not answer: then the provider reports the error. With
    a preference they are empty too: the provider chooses the best hardware or reports that there is none.
    """
    number = adapter_number(options)
    try:
        candidates = adapters()
    except (OSError, AttributeError):
        return "", ""
    if number is None or (not candidates and sys.platform != "win32"):
        return "", ""
    return problem(number, "device_id" in options, candidates)


def adapter_facts(number: int) -> dict[str, str]:
    """Return name, ids, memory, kind and driver of the adapter with this DXGI number, as text by name.

    If DXGI does not report the adapter, the fact ``adapter`` says why. Empty on systems other than Windows.
    """
    try:
        candidates = adapters()
    except (OSError, AttributeError, ValueError) as error:
        return {"adapter": f"not known: {error}"}
    one = next((one for one in candidates if one.number == number), None)
    if one is None:
        return {"adapter": f"not known: there is no adapter {number}"} if sys.platform == "win32" else {}
    facts = {
        "adapter": one.name,
        "adapter number": str(one.number),
        "adapter id": f"{one.vendor_id:04x}:{one.model_id:04x}",
        "adapter memory": f"{one.dedicated_memory >> 20} MiB",
        "adapter kind": "software" if one.software else "hardware",
    }
    return {**facts, "driver": one.driver} if one.driver else facts


def library_facts() -> dict[str, str]:
    """Return the versions of the loaded DirectML.dll and D3D12, and the origin of DirectML.dll, as text by name.

    The origin is Windows or onnxruntime. A library that is not loaded is left out; on other systems, all are.
    """
    facts = {}
    for key, library in (("directml", "DirectML.dll"), ("d3d12", "D3D12Core.dll"), ("d3d12 loader", "d3d12.dll")):
        try:
            path = _loaded(library)
            if path:
                facts[key] = _file_version(path)
            if path and library == "DirectML.dll":
                beside = "onnxruntime" in path.lower()
                facts["directml library"] = "beside onnxruntime" if beside else "the one of Windows"
        except (OSError, AttributeError, ValueError) as error:
            facts[key] = f"not known: {error}"
    return facts


if sys.platform == "win32":

    def _loaded(library: str) -> str:
        """Return the path of a library of this process; empty if it is not loaded."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.GetModuleHandleW.restype = ctypes.c_void_p
        kernel.GetModuleHandleW.argtypes = [ctypes.c_wchar_p]
        kernel.GetModuleFileNameW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32]
        handle = kernel.GetModuleHandleW(library)
        if not handle:
            return ""
        text = ctypes.create_unicode_buffer(32768)
        kernel.GetModuleFileNameW(handle, text, len(text))
        return text.value

    def _file_version(path: str) -> str:
        version = ctypes.WinDLL("version")
        size = version.GetFileVersionInfoSizeW(ctypes.c_wchar_p(path), None)
        if not size:
            raise OSError("the file has no version")
        block = ctypes.create_string_buffer(size)
        if not version.GetFileVersionInfoW(ctypes.c_wchar_p(path), 0, size, block):
            raise OSError("the version cannot be read")
        value, length = ctypes.c_void_p(), ctypes.c_uint32()
        root = ctypes.c_wchar_p("\\")
        if not version.VerQueryValueW(block, root, ctypes.byref(value), ctypes.byref(length)):
            raise OSError("the version cannot be read")
        return fixed_version(ctypes.string_at(value.value or 0, length.value))

else:

    def _loaded(library: str) -> str:
        return ""

    def _file_version(path: str) -> str:
        return ""
