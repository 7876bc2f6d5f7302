"""List the GPUs of this machine as Vulkan shows them, and choose one by name.

A program in the sandbox queries each device of ``drivers.ways``. It sees only this device and its driver, so it gets
the same answers as a session.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.portable.device import VENDORS, vendor_name
from dmlprep.process.tools import run_tool
from dmlprep.runtime.linux import drivers, sandbox
from dmlprep.runtime.linux.install import missing_piece
from dmlprep.runtime.linux.layout import Layout

AUTO = "auto"
"""The name for the first discrete GPU, or the first GPU if none is discrete."""

_KINDS = {1: "integrated", 2: "discrete", 3: "virtual"}
_CPU = 4  # VK_PHYSICAL_DEVICE_TYPE_CPU

_LIMIT = 30.0
_LIST = "dmlprep runtime status lists them"


@dataclass(frozen=True)
class Gpu:
    """A GPU that DirectML can use here.

    Attributes:
        number: index in the list, from 0; ``--gpu`` accepts it as well.
        vendor_id, model_id: Vulkan's ids, which are those of PCI.
        kind: ``discrete``, ``integrated``, ``virtual`` or ``other``.
        driver: name and version of the Vulkan driver (``NVIDIA 580.159.04``, ``radv Mesa 25.0.7``).
        vulkan: the Vulkan version.
        memory: size of the device's own memory in bytes.
        way: the host files that a program needs to use it.
    """

    number: int
    name: str
    vendor_id: int
    model_id: int
    kind: str
    driver: str
    vulkan: str
    memory: int
    way: drivers.Way = field(repr=False)

    @property
    def vendor(self) -> str:
        """The name of the vendor; empty if unknown."""
        return vendor_name(self.vendor_id)

    @property
    def ids(self) -> str:
        """The ids in the worker's form, such as ``10de:2335``."""
        return f"{self.vendor_id:04x}:{self.model_id:04x}"

    @property
    def slug(self) -> str:
        """A name for files and folders, unique for each device and version of its driver."""
        text = f"{self.name} {self.driver}"
        digest = hashlib.sha256(f"{text} {self.vulkan} {self.ids}".encode()).hexdigest()[:12]
        return f"{re.sub(r'[^a-z0-9.]+', '-', text.lower()).strip('-.')[:60]}-{digest}"

    @property
    def stamp(self) -> tuple[object, ...]:
        """The facts that a self-test result depends on: device, driver, and the driver's files."""
        files = ((name, path.stat()) for name, path in sorted(self.way.libraries.items()))
        rows = tuple((name, status.st_size, int(status.st_mtime)) for name, status in files)
        return (self.name, self.ids, self.driver, self.vulkan, rows)

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


@dataclass(frozen=True)
class GpuListing:
    """The usable GPUs of a machine, in the order of their numbers.

    ``problems`` says why other devices cannot be used, or that there is no device. ``fix`` is the remedy, if they do
    not include it.
    """

    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...] = ()
    fix: str = ""


@cache
def find(layout: Layout, tree: Path = Path("/")) -> GpuListing:
    """Return the GPUs of the machine with the root folder ``tree``, and the problems of other devices.

    The result is cached: a query takes 0.1 to 0.5 s for a device.
    """
    ways = drivers.ways(tree)
    if not ways:
        reason, fix = drivers.without(tree)
        return GpuListing((), (reason,), fix)
    if reason := missing_piece(layout) or sandbox.why_not(layout.root):
        return GpuListing((), (reason,))
    gpus: list[Gpu] = []
    problems: list[str] = []
    for way in ways:
        listed, fault = ("", "") if way.problem else ask_driver(layout, way)
        own = parse(listed, len(gpus), way)
        gpus += own
        if not own:
            version = f" {way.version}" if way.version else ""
            no_device = f"the Vulkan driver{version} finds no device there ({fault or 'no message'})"
            if way.libraries:
                no_device += "; its version must be that of the kernel driver"
            problems.append(f"{way.title}: {way.problem or no_device}")
    return GpuListing(tuple(gpus), tuple(problems))


def ask_driver(layout: Layout, way: drivers.Way) -> tuple[str, str]:
    """Run a query in the sandbox; return the output of ``native/devices.c`` for a device, and its error messages.

    The output is empty if the query failed.
    """
    with tempfile.TemporaryDirectory(prefix="dmlprep-gpu-") as name:
        icd = Path(name) / drivers.ICD
        icd.write_text(drivers.icd_text(way))
        icd.chmod(0o444)
        Path(name).chmod(0o755)
        read, environment = {"/native": layout.built}, {**way.environment, "VK_LOADER_DEBUG": "error"}
        program = ["/native/devices"]
        line = sandbox.command(layout.root, program, read=read, environment=environment, view=way.view(icd))
        try:
            done = run_tool(line, limit=_LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)
    return done.stdout if done.returncode == 0 else "", "; ".join(done.stderr.strip().splitlines()[-2:])


def parse(output: str, first: int, way: drivers.Way) -> list[Gpu]:
    """Return the GPUs in the output of ``native/devices.c``, numbered from ``first``. CPU devices are skipped."""
    gpus: list[Gpu] = []
    for fields in (row.split("\t") for row in output.splitlines()):
        if len(fields) != 7 or int(fields[2]) == _CPU:
            continue
        name, ids, kind, vulkan, driver, version, memory = fields
        vendor, _, model = ids.partition(":")
        gpus.append(
            Gpu(
                number=first + len(gpus),
                name=name.strip(),
                vendor_id=int(vendor, 16),
                model_id=int(model, 16),
                kind=_KINDS.get(int(kind), "other"),
                driver=" ".join(f"{driver} {version}".split()),
                vulkan=vulkan,
                memory=int(memory),
                way=way,
            )
        )
    return gpus


def choose(wanted: str, listing: GpuListing) -> Gpu:
    """Return the GPU that a user named: ``auto``, a number, a vendor (``NVIDIA``, ``AMD`` ...), or a part of a name.

    Raises:
        CheckNotRun: there is no GPU, or none matches; the message says what is missing.
        UsageError: several match.
    """
    where = f"--gpu {wanted}"
    if not listing.gpus:
        raise CheckNotRun("; ".join(listing.problems), where=where, fix=listing.fix, code="DP803")
    matching = _matching(wanted.strip(), listing.gpus)
    if not matching:
        there = ", ".join(map(str, listing.gpus))
        others = f"; not usable: {'; '.join(listing.problems)}" if listing.problems else ""
        raise CheckNotRun(f"no GPU matches {wanted!r}; GPUs: {there}{others}", where=where, fix=_LIST, code="DP803")
    if len(matching) > 1:
        names, fix = ", ".join(map(str, matching)), f"choose by number: --gpu {matching[0].number}"
        raise UsageError(f"{len(matching)} GPUs match: {names}", where=where, fix=fix)
    return matching[0]


def _matching(wanted: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    if wanted.casefold() == AUTO:
        order = ("discrete", "integrated")
        return sorted(gpus, key=lambda gpu: order.index(gpu.kind) if gpu.kind in order else len(order))[:1]
    if wanted.isdecimal():
        return [gpu for gpu in gpus if gpu.number == int(wanted)]
    if ids := next((ids for name, ids in VENDORS.items() if name.casefold() == wanted.casefold()), None):
        return [gpu for gpu in gpus if gpu.vendor_id in ids]
    return [gpu for gpu in gpus if wanted.casefold() in gpu.name.casefold()]
