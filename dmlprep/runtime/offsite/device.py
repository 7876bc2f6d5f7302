"""What can be said of a Windows machine without a package: adapter and driver by DXGI, libraries by their versions.

Sources (learn.microsoft.com): the order of methods in dxgi.h's IDXGIFactory1 and IDXGIAdapter1, DXGI_ADAPTER_DESC1,
CheckInterfaceSupport (the version of the user-mode driver), VS_FIXEDFILEINFO. What cannot be had is left out.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from typing import Any

__all__ = ["adapter_facts", "driver_version", "fixed_version", "library_facts", "machine_facts"]

_SOFTWARE = 2  # DXGI_ADAPTER_FLAG_SOFTWARE


class _Guid(ctypes.Structure):
    _fields_ = (
        ("a", ctypes.c_uint32),
        ("b", ctypes.c_uint16),
        ("c", ctypes.c_uint16),
        ("d", ctypes.c_ubyte * 8),
    )


class _Desc1(ctypes.Structure):
    """DXGI_ADAPTER_DESC1."""

    _fields_ = (
        ("description", ctypes.c_uint16 * 128),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("subsystem", ctypes.c_uint32),
        ("revision", ctypes.c_uint32),
        ("dedicated_video", ctypes.c_size_t),
        ("dedicated_system", ctypes.c_size_t),
        ("shared_system", ctypes.c_size_t),
        ("luid", ctypes.c_uint32 * 2),
        ("flags", ctypes.c_uint32),
    )


# IID_IDXGIFactory1 and IID_IDXGIDevice of dxgi.h.
_FACTORY = _Guid(0x770AAE78, 0xF26F, 0x4DBA, (ctypes.c_ubyte * 8)(0xA8, 0x29, 0x25, 0x3C, 0x83, 0xD1, 0xB3, 0x87))
_DEVICE = _Guid(0x54EC77FA, 0x1377, 0x44E6, (ctypes.c_ubyte * 8)(0x8C, 0x32, 0x88, 0xFD, 0x5F, 0x44, 0xC8, 0x4C))
# Places in the tables of methods, from 0 (QueryInterface).
_RELEASE, _CHECK_SUPPORT, _GET_DESC1, _ENUM_ADAPTERS1 = 2, 9, 10, 12


def machine_facts() -> dict[str, str]:
    """Python, system and processor, in words."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.version()}".strip(),
        "machine": platform.machine(),
        "processor": platform.processor(),
    }


def driver_version(number: int) -> str:
    """``31.0.15.4601`` of the number that CheckInterfaceSupport gives."""
    return ".".join(str(number >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def fixed_version(block: bytes) -> str:
    """``1.15.4.0`` of a VS_FIXEDFILEINFO."""
    signature, _struct, high, low = struct.unpack_from("<4I", block)
    if signature != 0xFEEF04BD:
        raise ValueError("not a VS_FIXEDFILEINFO")
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"


def describe(desc: _Desc1) -> dict[str, str]:
    """The facts of a DXGI_ADAPTER_DESC1."""
    name = bytes(desc.description).decode("utf-16-le", "replace").split("\0")[0].strip()
    return {
        "adapter": name,
        "adapter id": f"{desc.vendor:04x}:{desc.device:04x}",
        "adapter memory": f"{desc.dedicated_video >> 20} MiB",
        "adapter kind": "software" if desc.flags & _SOFTWARE else "hardware",
    }


def adapter_facts(index: int) -> dict[str, str]:
    """Name, ids, memory and driver of the adapter with this number in DXGI's order; empty elsewhere."""
    try:
        return _adapter(index)
    except (OSError, AttributeError, ValueError) as error:
        return {"adapter": f"not known: {error}"}


def library_facts() -> dict[str, str]:
    """Version of the DirectML.dll and the D3D12 that this process has loaded, and whose DirectML.dll it is."""
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

    def _method(this: Any, place: int, *types: Any) -> Any:
        """A COM method by its place in the table that an object begins with."""
        table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        return ctypes.WINFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(table[place])

    def _adapter(index: int) -> dict[str, str]:
        factory, adapter = ctypes.c_void_p(), ctypes.c_void_p()
        create = ctypes.WinDLL("dxgi").CreateDXGIFactory1
        create.restype = ctypes.c_int32
        if create(ctypes.byref(_FACTORY), ctypes.byref(factory)) < 0:
            raise OSError("DXGI has no factory")
        try:
            enumerate_ = _method(factory, _ENUM_ADAPTERS1, ctypes.c_uint32, ctypes.c_void_p)
            if enumerate_(factory, index, ctypes.byref(adapter)) < 0:
                raise OSError(f"there is no adapter {index}")
            try:
                desc = _Desc1()
                if _method(adapter, _GET_DESC1, ctypes.c_void_p)(adapter, ctypes.byref(desc)) < 0:
                    raise OSError("the adapter does not describe itself")
                facts = describe(desc)
                number = ctypes.c_int64()
                check = _method(adapter, _CHECK_SUPPORT, ctypes.c_void_p, ctypes.c_void_p)
                if check(adapter, ctypes.byref(_DEVICE), ctypes.byref(number)) >= 0:
                    facts["driver"] = driver_version(number.value)
                return facts
            finally:
                _method(adapter, _RELEASE)(adapter)
        finally:
            _method(factory, _RELEASE)(factory)

    def _loaded(library: str) -> str:
        """Path of a library of this process, empty where it is not loaded."""
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
        found, length = ctypes.c_void_p(), ctypes.c_uint32()
        root = ctypes.c_wchar_p("\\")
        if not version.VerQueryValueW(block, root, ctypes.byref(found), ctypes.byref(length)):
            raise OSError("the version cannot be read")
        return fixed_version(ctypes.string_at(found.value or 0, length.value))

else:

    def _adapter(index: int) -> dict[str, str]:
        return {}

    def _loaded(library: str) -> str:
        return ""

    def _file_version(path: str) -> str:
        return ""
