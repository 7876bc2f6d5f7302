"""Read the graphics adapters from DXGI, without extra packages.

Sources, all on learn.microsoft.com:

- dxgi.h: DXGI_ADAPTER_DESC1, the methods of IDXGIFactory1 and IDXGIAdapter1 and their order; CheckInterfaceSupport (the
  version of the user-mode driver).
- dxgi1_6.h: IDXGIFactory6 and DXGI_GPU_PREFERENCE. Its one method follows those of IDXGIFactory2 (11 methods),
  IDXGIFactory3 (1), IDXGIFactory4 (2) and IDXGIFactory5 (1).
- dxgi1_4.h: IDXGIAdapter3, DXGI_QUERY_VIDEO_MEMORY_INFO and DXGI_MEMORY_SEGMENT_GROUP. QueryVideoMemoryInfo is the
  third of its methods, which follow those of IDXGIAdapter2 (1 method).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFERENCES = {"minimum_power": 1, "high_performance": 2}
"""DXGI_GPU_PREFERENCE for each ``performance_preference`` of the provider."""


class _Guid(ctypes.Structure):
    _fields_ = (("a", ctypes.c_uint32), ("b", ctypes.c_uint16), ("c", ctypes.c_uint16), ("d", ctypes.c_ubyte * 8))


class AdapterDesc(ctypes.Structure):
    """The structure DXGI_ADAPTER_DESC1."""

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

    @property
    def whole_luid(self) -> int:
        """The locally unique id as one number."""
        low, high = self.luid
        return int(high) << 32 | int(low)


class _VideoMemory(ctypes.Structure):
    """The structure DXGI_QUERY_VIDEO_MEMORY_INFO; its numbers are bytes."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("budget", "current_usage", "available_for_reservation", "current_reservation")
    )


@dataclass(frozen=True)
class Dxgi:
    """The adapters that DXGI reports.

    Attributes:
        described: for each adapter, in the order of EnumAdapters1: its structure and the version number of its driver
            (``None`` if unknown).
        preferred: LUIDs by ``performance_preference``, best first. Empty if the factory is not an IDXGIFactory6 (before
            Windows 10, version 1803).
    """

    described: Sequence[tuple[AdapterDesc, int | None]]
    preferred: Mapping[str, Sequence[int]]


# IID_IDXGIFactory1, IID_IDXGIDevice and IID_IDXGIAdapter1 are in dxgi.h, IID_IDXGIFactory6 in dxgi1_6.h.
_FACTORY = _Guid(0x770AAE78, 0xF26F, 0x4DBA, (ctypes.c_ubyte * 8)(0xA8, 0x29, 0x25, 0x3C, 0x83, 0xD1, 0xB3, 0x87))
_DEVICE = _Guid(0x54EC77FA, 0x1377, 0x44E6, (ctypes.c_ubyte * 8)(0x8C, 0x32, 0x88, 0xFD, 0x5F, 0x44, 0xC8, 0x4C))
_ADAPTER1 = _Guid(0x29038F61, 0x3839, 0x4626, (ctypes.c_ubyte * 8)(0x91, 0xFD, 0x08, 0x68, 0x79, 0x01, 0x1A, 0x05))
_FACTORY6 = _Guid(0xC1B6694F, 0xFF09, 0x44A9, (ctypes.c_ubyte * 8)(0xB0, 0x3C, 0x77, 0x90, 0x0A, 0x0A, 0x1D, 0x17))
# IID_IDXGIAdapter3 is in dxgi1_4.h.
_ADAPTER3 = _Guid(0x645967A4, 0x1392, 0x4310, (ctypes.c_ubyte * 8)(0xA7, 0x98, 0x80, 0x53, 0xCE, 0x3E, 0x93, 0xFD))
# Indices in the method tables, from 0 (QueryInterface).
_QUERY, _RELEASE, _CHECK_SUPPORT, _GET_DESC1, _ENUM_ADAPTERS1, _ENUM_BY_PREFERENCE = 0, 2, 9, 10, 12, 29
_QUERY_VIDEO_MEMORY = 14
_LOCAL, _NON_LOCAL = 0, 1  # DXGI_MEMORY_SEGMENT_GROUP: the adapter's own memory, and the system memory that it uses


if sys.platform == "win32":

    def _method(this: Any, place: int, *types: Any) -> Any:
        """Return a COM method by its index in the method table, whose address is the first field of an object."""
        table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        return ctypes.WINFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(table[place])

    def _factory() -> Any:
        factory = ctypes.c_void_p()
        create = ctypes.WinDLL("dxgi").CreateDXGIFactory1
        create.restype = ctypes.c_int32
        if create(ctypes.byref(_FACTORY), ctypes.byref(factory)) < 0:
            raise OSError("DXGI does not start (CreateDXGIFactory1 failed), so the GPUs are unknown")
        return factory

    def memory_in_use(number: int) -> tuple[int, int] | None:
        """Return the use of an adapter's own memory by this process, and of the system memory that it reads, in bytes.

        Return ``None`` if DXGI does not report them. ``number`` is that of the adapter.
        """
        try:
            factory = _factory()
        except OSError:
            return None
        adapter, newer = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            enumerate_ = _method(factory, _ENUM_ADAPTERS1, ctypes.c_uint32, ctypes.c_void_p)
            if enumerate_(factory, number, ctypes.byref(adapter)) < 0:
                return None
            query = _method(adapter, _QUERY, ctypes.c_void_p, ctypes.c_void_p)
            if query(adapter, ctypes.byref(_ADAPTER3), ctypes.byref(newer)) < 0:
                return None
            ask = _method(newer, _QUERY_VIDEO_MEMORY, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
            held = []
            for group in (_LOCAL, _NON_LOCAL):
                memory = _VideoMemory()
                if ask(newer, 0, group, ctypes.byref(memory)) < 0:
                    return None
                held.append(int(memory.current_usage))
            return held[0], held[1]
        finally:
            for one in (newer, adapter, factory):
                if one:
                    _method(one, _RELEASE)(one)

    def read_dxgi() -> Dxgi:
        """Read all adapters from DXGI.

        Raises:
            OSError: DXGI has no factory.
        """
        factory = _factory()
        try:
            enumerate_ = _method(factory, _ENUM_ADAPTERS1, ctypes.c_uint32, ctypes.c_void_p)
            described = _each(lambda index, out: enumerate_(factory, index, out))
            return Dxgi(described, _by_preference(factory))
        finally:
            _method(factory, _RELEASE)(factory)

    def _each(enumerate_: Any) -> list[tuple[AdapterDesc, int | None]]:
        """Return structure and driver version of each adapter.

        The list ends at the first index without an adapter (DXGI_ERROR_NOT_FOUND).
        """
        descriptions = []
        for index in range(1024):
            adapter = ctypes.c_void_p()
            if enumerate_(index, ctypes.byref(adapter)) < 0:
                break
            try:
                descriptions.append(_describe(adapter))
            finally:
                _method(adapter, _RELEASE)(adapter)
        return descriptions

    def _describe(adapter: Any) -> tuple[AdapterDesc, int | None]:
        desc, number = AdapterDesc(), ctypes.c_int64()
        if _method(adapter, _GET_DESC1, ctypes.c_void_p)(adapter, ctypes.byref(desc)) < 0:
            raise OSError("an adapter does not describe itself")
        check = _method(adapter, _CHECK_SUPPORT, ctypes.c_void_p, ctypes.c_void_p)
        supported = check(adapter, ctypes.byref(_DEVICE), ctypes.byref(number)) >= 0
        return desc, number.value if supported else None

    def _by_preference(factory: Any) -> dict[str, list[int]]:
        newer = ctypes.c_void_p()
        query = _method(factory, _QUERY, ctypes.c_void_p, ctypes.c_void_p)
        if query(factory, ctypes.byref(_FACTORY6), ctypes.byref(newer)) < 0:
            return {}
        try:
            types = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
            enumerate_ = _method(newer, _ENUM_BY_PREFERENCE, *types)
            orders = {}
            for name, word in PREFERENCES.items():
                each = _each(lambda i, out, w=word: enumerate_(newer, i, w, ctypes.byref(_ADAPTER1), out))
                orders[name] = [desc.whole_luid for desc, _driver in each]
            return orders
        finally:
            _method(newer, _RELEASE)(newer)

else:

    def read_dxgi() -> Dxgi:
        """Return an empty result: this system has no DXGI."""
        return Dxgi((), {})

    def memory_in_use(number: int) -> tuple[int, int] | None:
        """Return ``None``: this system has no DXGI."""
        return None
