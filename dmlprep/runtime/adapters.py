"""List the adapters and GPUs that DirectML can use on this machine, and choose one by name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.portable import device
from dmlprep.portable.device import Adapter

if TYPE_CHECKING:
    from dmlprep.runtime.linux.gpus import GpuListing

__all__ = ["Adapter", "choose_adapter", "choose_gpu", "gpu_listing", "listing"]

_LIST = "dmlprep doctor --adapters lists them"


def listing() -> tuple[tuple[Adapter, ...], str]:
    """Return the adapters of this machine, and the reason if there are none; otherwise the reason is empty.

    On Windows these are all adapters of DXGI, in its order. On Linux it is lavapipe, the CPU driver of the installed
    runtime, whose memory, driver and LUID are unknown.
    """
    if sys.platform == "win32":
        try:
            adapters = device.adapters()
        except (OSError, AttributeError) as error:
            return (), f"DXGI does not answer: {error}"
        return adapters, "" if adapters else "DXGI lists no adapter; install the driver of the graphics adapter"
    if not sys.platform.startswith("linux"):
        return (), f"DirectML runs on Windows and, with dmlprep's runtime, on Linux; this is {sys.platform}"
    return _of_the_runtime()


def _of_the_runtime() -> tuple[tuple[Adapter, ...], str]:
    from dmlprep.process.failure import SessionFailure
    from dmlprep.runtime.linux import sandbox
    from dmlprep.runtime.linux.host import LinuxHost
    from dmlprep.runtime.linux.install import missing_piece
    from dmlprep.runtime.linux.layout import Layout

    try:
        layout = Layout.of_user()
        if reason := missing_piece(layout, "") or sandbox.why_not(layout.root):
            return (), reason
        with LinuxHost(layout, layout.release_for()) as host:
            facts = host.facts
    except (CheckNotRun, SessionFailure) as error:
        return (), str(error)
    return (_lavapipe(facts),), ""


def _lavapipe(facts: Mapping[str, str]) -> Adapter:
    vendor, _, model = facts.get("adapter id", "").partition(":")
    vendor_id, model_id = (int(text, 16) if text else 0 for text in (vendor, model))
    name = f"lavapipe: {facts.get('adapter', 'unknown adapter')}"
    return Adapter(0, name, device.vendor_name(vendor_id), vendor_id, model_id, 0, 0, "", software=True, luid=0)


def choose_adapter(name: str | None, device_id: int | None, *, on: str = "dml") -> int | None:
    """Return the number of the adapter that the user chose, by number, by vendor or by a part of its name.

    Args:
        name: a vendor, or a part of a name; ``None`` without a choice by name.
        device_id: the number; ``None`` without a choice by number.
        on: the device, ``dml`` or ``cpu``; on ``cpu`` a name is refused.

    Returns:
        The number; ``None`` without a choice.

    Raises:
        UsageError: both a name and a number are set; the name is empty; no adapter matches, or several do; this system
            has no choice.
    """
    if name is None:
        return device_id
    where = "--adapter"
    if device_id is not None:
        raise UsageError("both an adapter's name and its number are set", where=where, fix="remove one of the two")
    if not name.strip():
        raise UsageError("the name is empty", where=where, fix=_LIST)
    if on == "cpu":
        what = "--adapter chooses an adapter for DirectML, but the device is not dml"
        raise UsageError(what, where=where, fix="remove --adapter")
    if sys.platform == "win32":
        return _matching(name.strip(), *listing())
    raise UsageError(
        "--adapter works only on Windows; DirectML on Linux has one adapter: lavapipe, or the GPU that --gpu chooses",
        where=where,
        fix="remove --adapter, or use --gpu",
    )


def _matching(name: str, adapters: Sequence[Adapter], reason: str) -> int:
    try:
        return device.find_adapter(name, adapters).number
    except ValueError as error:
        if not adapters:
            fix = "update the graphics driver, or remove --adapter"
            raise UsageError(reason, where="--adapter", fix=fix) from error
        fix = f"write another part of its name, or choose with --device-id; {_LIST}"
        raise UsageError(str(error), where="--adapter", fix=fix) from error


def gpu_listing() -> GpuListing:
    """Return the GPUs of this machine that ``--gpu`` accepts, and why others cannot be used.

    There are no GPUs except on Linux, and the problem says so.
    """
    from dmlprep.runtime.linux.gpus import GpuListing, find
    from dmlprep.runtime.linux.layout import Layout

    if not sys.platform.startswith("linux"):
        return GpuListing((), ("--gpu works only on Linux",), "on Windows use --adapter or --device-id")
    try:
        return find(Layout.of_user())
    except CheckNotRun as error:
        return GpuListing((), (error.what,), error.fix)


def choose_gpu(name: str | None, *, on: str = "dml") -> str:
    """Return the number of the GPU that the user chose, as text for ``SessionOptions.gpu``; empty without a choice.

    Args:
        name: ``auto``, a number, a vendor or a part of a name; ``None`` without a choice.
        on: the device, ``dml`` or ``cpu``; on ``cpu`` a GPU is refused.

    Raises:
        UsageError: the name is empty, several GPUs match, or Windows has no choice by ``--gpu``.
        CheckNotRun: there is no GPU, or none matches; the message says what is missing.
    """
    if name is None:
        return ""
    where = "--gpu"
    if not name.strip():
        raise UsageError("the name is empty", where=where, fix="--gpu auto; dmlprep runtime status lists GPUs")
    if on == "cpu":
        what = "--gpu chooses a GPU for DirectML, but the device is not dml"
        raise UsageError(what, where=where, fix="add --device dml, or remove --gpu")
    if sys.platform == "win32":
        raise UsageError("--gpu works only on Linux", where=where, fix="use --adapter or --device-id")
    from dmlprep.runtime.linux.gpus import choose

    return str(choose(name, gpu_listing()).number)
