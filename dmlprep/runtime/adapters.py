"""The adapters that DirectML can have here, and which of them a name means."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from dmlprep.errors import CheckNotRun, UsageError
from dmlprep.runtime.offsite import device
from dmlprep.runtime.offsite.device import Adapter

__all__ = ["Adapter", "adapters", "choose_adapter", "listing"]

_LIST = "dmlprep doctor --adapters lists them"


def listing() -> tuple[tuple[Adapter, ...], str]:
    """The adapters of this machine, and why there are none.

    On Windows all that DXGI lists, in its order. On Linux the one of the installed runtime, lavapipe, which computes on
    the CPU; its memory, driver and LUID are not known.
    """
    if sys.platform == "win32":
        try:
            found = device.adapters()
        except (OSError, AttributeError) as error:
            return (), f"DXGI does not answer: {error}"
        return found, "" if found else "DXGI lists no adapter; install the driver of the graphics adapter"
    if not sys.platform.startswith("linux"):
        return (), f"DirectML runs on Windows and, with dmlprep's runtime, on Linux; this is {sys.platform}"
    return _of_the_runtime()


def adapters() -> tuple[Adapter, ...]:
    """See ``dmlprep.adapters``."""
    return listing()[0]


def _of_the_runtime() -> tuple[tuple[Adapter, ...], str]:
    from dmlprep.runtime.failure import SessionFailure
    from dmlprep.runtime.linux import sandbox
    from dmlprep.runtime.linux.host import linux_host
    from dmlprep.runtime.linux.install import missing_piece
    from dmlprep.runtime.linux.layout import Layout

    try:
        layout = Layout.of_user()
        if reason := missing_piece(layout, "") or sandbox.why_not(layout.root):
            return (), reason
        with linux_host(layout, layout.release_for()) as host:
            facts = host.facts
    except (CheckNotRun, SessionFailure) as error:
        return (), str(error)
    return (_lavapipe(facts),), ""


def _lavapipe(facts: Mapping[str, str]) -> Adapter:
    vendor, _, model = facts.get("adapter id", "").partition(":")
    ids = [int(text, 16) if text else 0 for text in (vendor, model)]
    return Adapter(
        number=0,
        name=f"lavapipe: {facts.get('adapter', 'unknown adapter')}",
        vendor=device.vendor_name(ids[0]),
        vendor_id=ids[0],
        model_id=ids[1],
        dedicated_memory=0,
        shared_memory=0,
        driver="",
        software=True,
        luid=0,
    )


def choose_adapter(name: str | None, device_id: int | None, *, on: str = "dml") -> int | None:
    """The number of the adapter that a user asked for, ``None`` where there was no wish.

    Args:
        name: ``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``, or a part of the adapter's name.
        device_id: its number, in place of a name.
        on: the device that was asked for; a name makes no sense on ``cpu``.

    Raises:
        UsageError: both were given; no adapter matches, or several; there is nothing to choose here.
    """
    if name is None:
        return device_id
    where = "--adapter"
    if device_id is not None:
        raise UsageError("an adapter's name and its number are given", where=where, fix="leave one of the two out")
    if not name.strip():
        raise UsageError("the name is empty", where=where, fix=_LIST)
    if on == "cpu":
        raise UsageError(
            "an adapter is chosen for DirectML, and DirectML is not asked for", where=where, fix="leave --adapter out"
        )
    if sys.platform == "win32":
        return _matching(name.strip(), *listing())
    raise UsageError(
        "adapters are chosen on Windows; DirectML on Linux has one, lavapipe", where=where, fix="leave --adapter out"
    )


def _matching(name: str, found: Sequence[Adapter], reason: str) -> int:
    try:
        return device.find_adapter(name, found).number
    except ValueError as error:
        fix = "write more of its name, or choose with --device-id"
        raise UsageError(reason if not found else str(error), where="--adapter", fix=f"{fix}; {_LIST}") from error
