"""Programs and libraries of Windows, made of nothing but headers, imports and a version."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

__all__ = ["MACHINES", "made_image", "put_image", "put_libraries"]

MACHINES = {"x64": 0x8664, "x86": 0x014C, "arm64": 0xAA64}
_ADDRESS, _PLACE = 0x1000, 0x400


def made_image(
    machine: str = "x64",
    imports: Sequence[str] = (),
    delayed: Sequence[str] = (),
    version: tuple[int, int, int, int] | None = None,
    library: bool = True,
) -> bytes:
    """The bytes of one, with a section that holds all tables."""
    body = bytearray(8)

    def put(data: bytes) -> int:
        body.extend(bytes(-len(body) % 8) + data)
        return _ADDRESS + len(body) - len(data)

    def rows(names: Sequence[str], step: int, at: int) -> int:
        if not names:
            return 0
        places = [put(name.encode() + b"\0") for name in names]
        return put(b"".join(bytes(at) + struct.pack("<I", p) + bytes(step - at - 4) for p in places) + bytes(step))

    directories = [0] * 16
    directories[1], directories[13] = rows(imports, 20, 12), rows(delayed, 32, 4)
    if version is not None:
        fixed = struct.pack("<4I", 0xFEEF04BD, 0x10000, version[0] << 16 | version[1], version[2] << 16 | version[3])
        key = "VS_VERSION_INFO\0".encode("utf-16-le")
        block = put(struct.pack("<3H", 92, 52, 0) + key + bytes(2) + fixed + bytes(36))
        levels = (16, 0x80000018), (1, 0x80000030), (0x409, 72)
        tree = b"".join(struct.pack("<12xHHII", 0, 1, *level) for level in levels)
        directories[2] = put(tree + struct.pack("<4I", block, 92, 0, 0))
    wide = machine != "x86"
    size = (112 if wide else 96) + 128
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", MACHINES[machine], 1, 0, 0, 0, size, 0x2002 if library else 2)
    head += struct.pack("<H", 0x20B if wide else 0x10B).ljust(size - 132, b"\0") + struct.pack("<I", 16)
    head += b"".join(struct.pack("<II", address, 64) for address in directories)
    head += b".rdata\0\0" + struct.pack("<IIII16x", len(body), _ADDRESS, len(body), _PLACE)
    return head.ljust(_PLACE, b"\0") + bytes(body)


def put_image(path: Path, **what: object) -> Path:
    """Write one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made_image(**what))  # type: ignore[arg-type]
    return path


def put_libraries(folder: Path, machine: str = "x64") -> None:
    """ONNX Runtime 1.24 and DirectML 1.15.4, which fit each other."""
    put_image(folder / "onnxruntime.dll", machine=machine, delayed=["DirectML.dll"], version=(1, 24, 26, 316))
    put_image(folder / "DirectML.dll", machine=machine, version=(1, 15, 4, 0))
