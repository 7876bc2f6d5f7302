"""Find the graphics devices of this machine, and the host files that a sandboxed Vulkan program needs.

NVIDIA's user-space driver must match the kernel module, so it comes from the host. Only its libraries are used, as
single files, never a folder of the host. They run with the C library of the root file system, which is newer. For all
other devices the root file system has Mesa's drivers. This module only looks at names; it opens and loads no device or
driver.

Sources: the device numbers and files of NVIDIA's driver (its README, "Known issues", nvidia-modprobe's manual); the
parts of /sys that libdrm reads (xf86drm.c: drmParsePciBusInfo, drmParsePciDeviceInfo); Documentation/gpu/drm-uapi.rst.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dmlprep.core.files import cached_json
from dmlprep.runtime.linux import sandbox

DRIVER = "/driver"
"""The folder of the host's driver in the sandbox."""

ICD = "icd.json"
"""The name, in ``DRIVER``, of the manifest that shows the host's driver to Vulkan's loader."""

_ROOT_ICDS = "/usr/share/vulkan/icd.d"

_MESA = {
    "amdgpu": ("radeon_icd.json",),
    "i915": ("intel_icd.json", "intel_hasvk_icd.json"),
    "xe": ("intel_icd.json",),
    "nouveau": ("nouveau_icd.json",),
    "virtio_gpu": ("virtio_icd.json",),
}
"""Driver manifests in the root file system, by the name of the kernel driver."""

_ENTRY = "libEGL_nvidia.so.0"
"""The EGL library of NVIDIA's Vulkan driver. Its GLX library fails with an X server without GLX, such as the one in the
sandbox."""

_PARTS = re.compile(r"lib(nvidia-[\w.-]+|EGL_nvidia|GLX_nvidia)\.so[\w.]*")

_FOLDERS = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib64", "usr/lib64/nvidia"),
    *("usr/lib", "usr/lib/nvidia", "usr/local/nvidia/lib64", "usr/local/nvidia/lib", "run/opengl-driver/lib"),
)
"""Folders where distributions and container tools install NVIDIA's libraries. ``_library_folders`` also searches the
folders in the loader's settings."""

_ICD_FOLDERS = ("etc/vulkan/icd.d", "usr/share/vulkan/icd.d", "usr/local/nvidia/share/vulkan/icd.d")

_VULKAN = "1.3.277"
"""The Vulkan version of the driver if the host has no manifest. The loader only warns if it is too low."""

_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-modeset")
"""Device files that all NVIDIA devices share."""


@dataclass(frozen=True)
class Way:
    """One graphics device of this machine, and the host files that a sandboxed program needs to use it.

    Attributes:
        title: its name in messages.
        nodes: device files of the host, by their paths in the sandbox.
        libraries: files of the driver, by their names in ``DRIVER``; empty if the driver is in the root file system.
        icds: names of the driver manifests in the root file system for Vulkan's loader.
        version: the version of the driver's libraries, if their names contain it.
        vulkan: the Vulkan version of the driver according to the host.
        folders, links: the parts of /sys that the driver reads, by their paths in the sandbox.
        groups: groups that may open the nodes, if not every user may.
        problem: why the device cannot be used; empty if no reason is known.
    """

    title: str
    nodes: Mapping[str, Path]
    libraries: Mapping[str, Path] = field(default_factory=dict)
    icds: Sequence[str] = ()
    version: str = ""
    vulkan: str = _VULKAN
    folders: Mapping[str, Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    groups: Sequence[int] = ()
    problem: str = ""

    def view(self, icd: Path) -> sandbox.View:
        """Return the parts of the host that the sandbox shows. ``icd`` is a file with the content ``icd_text``."""
        files = {f"{DRIVER}/{name}": path for name, path in self.libraries.items()}
        if files:
            files[f"{DRIVER}/{ICD}"] = icd
        return sandbox.View(self.nodes, files, self.folders, self.links, self.groups)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with the paths for Vulkan's loader and the driver in the sandbox."""
        own = {"LD_LIBRARY_PATH": DRIVER} if self.libraries else {}
        icds = f"{DRIVER}/{ICD}" if self.libraries else ":".join(f"{_ROOT_ICDS}/{name}" for name in self.icds)
        # Older loaders use the second name.
        return {**own, "VK_DRIVER_FILES": icds, "VK_ICD_FILENAMES": icds}


def icd_text(way: Way) -> str:
    """Return the manifest that shows the host's driver to Vulkan's loader, as JSON."""
    entry = {"library_path": f"{DRIVER}/{_ENTRY}", "api_version": way.vulkan}
    return json.dumps({"file_format_version": "1.0.1", "ICD": entry})


def ways(tree: Path = Path("/")) -> tuple[Way, ...]:
    """Return all graphics devices of the machine with the root folder ``tree``, usable or not; NVIDIA's first."""
    return (*_nvidia(tree), *_rendering(tree))


def without(tree: Path = Path("/")) -> tuple[str, str]:
    """Return the reason, and the fix, for a machine without graphics devices (``ways`` is empty)."""
    if (tree / "dev/dxg").exists():
        fix = "run dmlprep on Windows itself, or remove --gpu"
        return "WSL shows Direct3D's /dev/dxg, which is not a Vulkan device", fix
    return (
        "no GPU: neither /dev/nvidia0 nor /dev/dri/renderD128 exists",
        "load the GPU's kernel driver; in a container, pass the devices (docker run --gpus all, or --device /dev/dri); "
        "or remove --gpu",
    )


# ---- NVIDIA --------------------------------------------------------------------------------------------------------


def _nvidia(tree: Path) -> Iterator[Way]:
    cards = _numbered(tree / "dev", r"nvidia(\d+)")
    if not cards:
        return
    libraries, version = _libraries(tree)
    places = _places(tree)
    for number in cards:
        names = [f"nvidia{number}", *_SHARED]
        nodes = {f"/dev/{name}": tree / "dev" / name for name in names if (tree / "dev" / name).exists()}
        groups, problem = _access(nodes.values())
        if "/dev/nvidiactl" not in nodes:
            problem = "/dev/nvidiactl is missing: load the kernel driver (nvidia-smi, nvidia-modprobe)"
        if not libraries:
            problem = (
                f"NVIDIA's Vulkan driver ({_ENTRY}) is not on this machine: install the driver's OpenGL and Vulkan "
                "libraries (Debian: libnvidia-egl and nvidia-vulkan-icd, Ubuntu: libnvidia-gl-VERSION); in a "
                "container set NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"
            )
        address = places.get(number) or (next(iter(places.values())) if len(places) == len(cards) == 1 else "")
        folders, links = _of_pci(tree, tree / "sys/bus/pci/devices" / address) if address else ({}, {})
        vulkan = _vulkan(tree, libraries)
        yield Way(f"/dev/nvidia{number}", nodes, libraries, (), version, vulkan, folders, links, groups, problem)


def _libraries(tree: Path) -> tuple[dict[str, Path], str]:
    """Return the files of NVIDIA's driver by name, and its version; both empty if they include no Vulkan driver."""
    for folder in _library_folders(tree):
        entry = folder / _ENTRY
        if _is_x86_64(entry):
            files = (path for path in sorted(folder.iterdir()) if _PARTS.fullmatch(path.name) and path.is_file())
            libraries = {path.name: path.resolve() for path in files}
            names = [entry.resolve().name, *libraries]
            version = next((m[1] for name in names if (m := re.search(r"\.so\.(\d+(?:\.\d+)+)$", name))), "")
            return libraries, version
    return {}, ""


def _library_folders(tree: Path) -> Iterator[Path]:
    if tree == Path("/"):
        yield from (Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/"))
    yield from (tree / folder for folder in _FOLDERS)
    for file in sorted((tree / "etc/ld.so.conf.d").glob("*.conf")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines = [line.strip() for line in file.read_text().splitlines()]
            yield from (tree / line.lstrip("/") for line in lines if line.startswith("/"))


def _is_x86_64(path: Path) -> bool:
    """Return whether the file is a 64-bit x86 ELF file. 32-bit libraries have the same names."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    return head[:5] == b"\x7fELF\x02" and head[18:20] == b"\x3e\x00"


class _Icd(msgspec.Struct):
    """The manifest of a driver for Vulkan's loader, as JSON."""

    ICD: dict[str, str]


def _vulkan(tree: Path, libraries: Mapping[str, Path]) -> str:
    beside = {path.parent.parent / "share/vulkan/icd.d" for path in libraries.values()}
    for folder in [*(tree / name for name in _ICD_FOLDERS), *sorted(beside)]:
        for file in sorted(folder.glob("nvidia_icd*.json")):
            manifest = cached_json(file, _Icd)
            if manifest is not None and re.fullmatch(r"\d+\.\d+\.\d+", manifest.ICD.get("api_version", "")):
                return manifest.ICD["api_version"]
    return _VULKAN


def _places(tree: Path) -> dict[int, str]:
    """Return the PCI address of each NVIDIA device, by the number of its device file; the kernel module reports it."""
    places = {}
    for file in (tree / "proc/driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError):
            if minor := re.search(r"^Device Minor:\s*(\d+)", file.read_text(errors="replace"), re.MULTILINE):
                places[int(minor[1])] = file.parent.name.lower()
    return places


# ---- AMD, Intel, and all others that the kernel renders with ---------------------------------------------------------


def _rendering(tree: Path) -> Iterator[Way]:
    for number in _numbered(tree / "dev/dri", r"renderD(\d+)"):
        name = f"renderD{number}"
        here = tree / "sys/class/drm" / name
        driver = (here / "device/driver").resolve().name
        if driver == "nvidia":
            continue  # its own device files serve it
        nodes = {f"/dev/dri/{name}": tree / "dev/dri" / name}
        groups, problem = _access(nodes.values())
        icds = _MESA.get(driver, ())
        if not icds:
            known = ", ".join(sorted(_MESA))
            problem = f"the runtime has no Vulkan driver for the kernel's driver {driver!r} (it has: {known})"
        folders, links = _of_pci(tree, here / "device")
        if here.exists():
            inside = "/" + str(here.resolve().relative_to(tree.resolve()))
            links = {**links, f"/sys/dev/char/226:{number}": inside, f"/sys/class/drm/{name}": inside}
        title = f"/dev/dri/{name} ({driver})"
        yield Way(title, nodes, icds=icds, folders=folders, links=links, groups=groups, problem=problem)


# ---- both ------------------------------------------------------------------------------------------------------------


def _numbered(folder: Path, pattern: str) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(match[1]) for name in os.listdir(folder) if (match := re.fullmatch(pattern, name)))
    return []


def _of_pci(tree: Path, device: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the /sys folder of the PCI device that contains ``device``, and the link at its address.

    Both are by path in the sandbox, and empty if there is no such folder.
    """
    here, top = device.resolve(), tree.resolve()
    for folder in (here, *here.parents):
        if folder == top:
            break
        if (folder / "vendor").is_file() and (folder / "config").is_file():
            inside = "/" + str(folder.relative_to(top))
            return {inside: folder}, {f"/sys/bus/pci/devices/{folder.name}": inside}
    return {}, {}


def _access(nodes: Iterable[Path]) -> tuple[tuple[int, ...], str]:
    """Return the groups that a sandboxed program needs to open device files, and the reason if it cannot open them.

    The reason is empty if it can.
    """
    groups: set[int] = set()
    for node in nodes:
        status = os.stat(node)
        if not sandbox.becomes_worker():
            if not os.access(node, os.R_OK | os.W_OK):
                return (), f"this user cannot open {node}: add the user to its group (usually render), log in again"
        elif status.st_mode & 0o006 != 0o006:
            if status.st_mode & 0o060 != 0o060 or status.st_gid == 0:
                what = "only root can open it, and sandboxed programs are not root: give it a group (render)"
                return (), f"{node} {what}"
            groups.add(status.st_gid)
    return tuple(sorted(groups)), ""
