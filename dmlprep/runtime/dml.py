"""Open DirectML sessions: on Windows with the installed ONNX Runtime, on Linux with the installed runtime.

No session is opened before the self-test has passed with the same files. The result of the self-test is saved with
them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlprep.core.errors import CheckNotRun, DmlprepError
from dmlprep.core.files import remove_tree
from dmlprep.process.child import Child
from dmlprep.process.failure import SessionFailure
from dmlprep.record import DeviceInfo
from dmlprep.runtime.selftest import SelfTest, failures_text, self_test
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.session import open_on, python_worker
from dmlprep.runtime.types import DmlStatus, Fp16Traits, Preference, SessionOptions

if TYPE_CHECKING:
    from dmlprep.runtime.linux.layout import Layout


def dml_status(release: str = "", *, again: bool = False, session: SessionOptions | None = None) -> DmlStatus:
    """Return whether DirectML is available here, and why not. The self-test runs (10 s) unless its result is known.

    A saved result is valid only for the same files.

    Args:
        release: on Linux, the exact release of ONNX Runtime; empty for the one of ``session``.
        again: on Linux, check the contents of every file, and run the self-test even if its result is known.
        session: the adapter, GPU and release to test.
    """
    session = session or SessionOptions()
    if sys.platform == "win32":
        return _status_on_windows(session)
    if not sys.platform.startswith("linux"):
        reason = f"DirectML runs on Windows and, with dmlprep's runtime, on Linux; this is {sys.platform}"
        return DmlStatus(False, reason)
    if session.device_id:
        reason = (
            f"there is no adapter {session.device_id} (887A0002 DXGI_ERROR_NOT_FOUND); DirectML on Linux has only 0: "
            "lavapipe, or the GPU that --gpu chooses"
        )
        return DmlStatus(False, reason, fix="remove --device-id")
    if session.open_by != "provider":
        return DmlStatus(False, f"--open-by {session.open_by} needs Windows", fix="remove --open-by")
    return _status_on_linux(release or release_for(session.release), again, session.gpu)


def release_for(version: str) -> str:
    """Return the release for ``dml_status`` and ``open_dml`` that is nearest to a version of ONNX Runtime.

    On Linux this is an installed release: the same version, the same minor version, the default, or the newest; empty
    if none is installed. On other systems it is empty, because there is only one.
    """
    if not sys.platform.startswith("linux"):
        return ""
    from dmlprep.runtime.linux.layout import Layout

    with contextlib.suppress(CheckNotRun):
        return Layout.of_user().release_for(version)
    return ""


def another_release(device: DeviceInfo, wanted: str) -> str:
    """Return a note for the verdict if ``device`` ran another minor release of ONNX Runtime than ``wanted``.

    Otherwise, and if one of the two is unknown, return ``""``.
    """
    ran = device.onnxruntime
    if not ran or not wanted or ran.split(".")[:2] == wanted.split(".")[:2]:
        return ""
    return f"the session used ONNX Runtime {ran}, but the target is {wanted}"


def dml_host(release: str = "", session: SessionOptions | None = None) -> SessionHost:
    """Return a host for DirectML sessions, on Linux with exactly this release; empty: the one of ``session``.

    A host starts one worker process that serves all its sessions. The adapter of ``session`` is tested now; any other
    adapter is tested before its first session.

    Raises:
        CheckNotRun: DirectML is not available, or it failed its self-test; the message gives the reason.
    """
    session = session or SessionOptions()
    status = dml_status(release, session=session)
    if not status.available:
        fix = status.fix or "dmlprep doctor shows what is missing"
        raise CheckNotRun(f"DirectML is not available here: {status.reason}", fix=fix, code=status.code)
    if sys.platform == "win32":
        return windows_host({_adapter(session): fp16_traits(status)})
    return _linux_host(release or release_for(session.release), fp16_traits(status), session.gpu)


def open_dml(path: Path, options: SessionOptions | None = None, host: SessionHost | None = None) -> Session:
    """Load a model on DirectML in the worker of ``host``, or in a new worker that ends with the session.

    Raises:
        CheckNotRun: DirectML is not available.
        SessionFailure: the model cannot be loaded, or the worker crashed.
    """
    return open_on(host, lambda: dml_host(session=options), path, options)


def fp16_traits(status: DmlStatus) -> list[str]:
    """Return sentences for a report on how the tested device rounds to FP16; empty if unknown or unusual."""
    return _traits(status.fp16.rounding)


def _traits(rounding: str) -> list[str]:
    words = {"nearest-even": "FP16 rounds to nearest even", "toward-zero": "FP16 truncates toward zero"}
    return [words[rounding]] if rounding in words else []


# ---- Linux ---------------------------------------------------------------------------------------------------------


def _linux_host(release: str, traits: list[str], gpu: str) -> SessionHost:
    from dmlprep.runtime.linux.gpus import choose, find
    from dmlprep.runtime.linux.host import LinuxHost
    from dmlprep.runtime.linux.layout import Layout

    layout = Layout.of_user()
    return LinuxHost(layout, release or layout.release_for(), traits, choose(gpu, find(layout)) if gpu else None)


def _status_on_linux(release: str, again: bool, wanted: str) -> DmlStatus:
    from dmlprep.runtime.linux import sandbox, shaders
    from dmlprep.runtime.linux.gpus import choose, find
    from dmlprep.runtime.linux.host import LinuxHost, describe
    from dmlprep.runtime.linux.install import fingerprint, last_test, missing_piece, result_file
    from dmlprep.runtime.linux.layout import Layout, write_json

    try:
        layout = Layout.of_user()
    except CheckNotRun as error:
        return DmlStatus(False, str(error))
    if reason := missing_piece(layout, release) or sandbox.why_not(layout.root):
        return DmlStatus(False, reason)
    release = release or layout.release_for()
    try:
        gpu = choose(wanted, find(layout)) if wanted else None
    except DmlprepError as error:
        return DmlStatus(False, error.what, fix=error.fix)
    device = gpu.slug if gpu is not None else ""
    key = fingerprint(layout, release, gpu.stamp if gpu is not None else ())
    if again and (reason := _damage(layout, release)):
        return DmlStatus(False, reason)
    known = {} if again else last_test(layout, release, device)
    if known.get("fingerprint") != key:
        shader_cache = shaders.of_device(layout, device)
        known = run_test(lambda: LinuxHost(layout, release, gpu=gpu))
        if known["failures"] and (reason := _damage(layout, release)):
            return DmlStatus(False, f"the self-test failed, and {reason}")
        if known["failures"] and shader_cache.is_dir():
            # A corrupt shader cache can be the cause; without it, only time is lost.
            remove_tree(shader_cache, ignore_errors=True)
            known = run_test(lambda: LinuxHost(layout, release, gpu=gpu))
        if known["lasting"]:
            # If the cache folder belongs to another user and cannot be written, the test runs each time.
            with contextlib.suppress(OSError):
                write_json(result_file(layout, release, device), {**known, "fingerprint": key})
    status = status_from(known, lambda facts, traits: describe(facts, traits, gpu))
    if gpu is None or not status.available:
        return status
    answered = known["facts"].get("adapter id", "")
    if answered != gpu.ids:
        name = known["facts"].get("adapter", "another adapter")
        reason = f"Wine's DXGI shows {name} ({answered}), which is not the GPU {gpu.name} ({gpu.ids})"
        return replace(status, available=False, reason=reason, fix="choose another GPU, or remove --gpu")
    return status


def _damage(layout: Layout, release: str) -> str:
    """Return a message about files that changed since the installation; empty if there are none."""
    from dmlprep.runtime.linux import inventory
    from dmlprep.runtime.linux.install import repair_line

    for piece, what in inventory.damage(layout, inventory.pieces(layout, release), contents=True).items():
        return f"the runtime is damaged: {what}; {repair_line(piece)}"
    return ""


def run_test(make: Callable[[], SessionHost], adapter: SessionOptions | None = None) -> dict[str, object]:
    """Run the self-test on a new host, and return its result as builtins.

    The keys are those of ``SelfTest``, the ``facts`` of the worker, and ``lasting``. This is true only if no model
    failed: a failure may be temporary, so it is not saved.
    """
    facts: dict[str, str] = {}
    try:
        with make() as host:
            facts = dict(host.facts)
            result = self_test(host, adapter)
    except SessionFailure as error:
        facts, result = {}, SelfTest((), (error.message,), Fp16Traits())
    return {**asdict(result), "facts": facts, "lasting": not result.failures}


def status_from(known: Mapping[str, Any], describe: Callable[[Mapping[str, str], list[str]], DeviceInfo]) -> DmlStatus:
    """Return the status for the results of the self-test, as ``run_test`` returns them.

    ``describe`` makes the device from the worker's facts and the FP16 notes.
    """
    failures: Sequence[str] = known["failures"]
    facts: Mapping[str, str] = known["facts"]
    fp16 = Fp16Traits(**known["fp16"])
    return DmlStatus(
        not failures,
        f"the self-test failed [DP804]: {failures_text(failures)}" if failures else "",
        describe(facts, _traits(fp16.rounding)) if facts else None,
        code="DP804" if failures else "DP803",
        fp16=fp16,
        native_fp16={"yes": True, "no": False}.get(facts.get("native fp16", "")),
    )


# ---- Windows -------------------------------------------------------------------------------------------------------


class _TestedHost(SessionHost):
    """A host that checks and self-tests each adapter before its first session, except the adapters in ``tested``.

    ``tested`` has the FP16 notes for the report, by adapter.
    """

    def __init__(self, start: Callable[[], Child], tested: Mapping[_Which, Sequence[str]]) -> None:
        super().__init__(start, self._described)
        self._traits: dict[_Which, Sequence[str]] = dict(tested)

    def _described(self, facts: Mapping[str, str]) -> DeviceInfo:
        from dmlprep.runtime.windows import describe

        which = facts.get("adapter number") or facts.get("preference", "")
        return describe(facts, next((traits for one, traits in self._traits.items() if str(one) == which), ()))

    def open(self, path: Path, options: SessionOptions | None = None) -> Session:
        options = options or SessionOptions()
        which = _adapter(options)
        if which not in self._traits:
            if status := _no_adapter(options):
                raise CheckNotRun(f"DirectML is not available: {status.reason}", fix=status.fix, code="DP803")
            self._traits[which] = ()  # the self-test opens its own sessions through this method
            result = self_test(self, options)
            if result.failures:
                del self._traits[which]
                name = f"adapter {which}" if isinstance(which, int) else f"the {which} adapter"
                what = f"DirectML is not available on {name}: the self-test failed: {failures_text(result.failures)}"
                raise CheckNotRun(what, fix=_DRIVER, code="DP804")
            self._traits[which] = _traits(result.fp16.rounding)
        return super().open(path, options)


_Which = int | Preference
"""An adapter: its number, or the preference that chooses it."""

_DRIVER = "update the graphics driver, or choose another adapter: dmlprep doctor --adapters lists them"


def _adapter(session: SessionOptions) -> _Which:
    if session.device_id is None and session.performance_preference != "default":
        return session.performance_preference
    return session.device_id or 0


def _lines(session: SessionOptions) -> dict[str, str]:
    """Return the options of the worker's protocol that choose the adapter."""
    chosen = {} if session.device_id is None else {"device_id": str(session.device_id)}
    if session.performance_preference != "default":
        chosen["performance_preference"] = session.performance_preference
    return chosen


def _no_adapter(session: SessionOptions) -> DmlStatus | None:
    """Return the status of an adapter that cannot be used; ``None`` if it can be used.

    An adapter cannot be used if it is missing, or is a software adapter that the user did not name.
    """
    from dmlprep.portable import device

    reason, fix = device.session_problem(_lines(session))
    return DmlStatus(False, reason, fix=fix) if reason else None


def windows_host(tested: Mapping[_Which, Sequence[str]]) -> SessionHost:
    """Return the host of DirectML sessions on Windows; ``tested`` is that of ``_TestedHost``."""
    return _TestedHost(lambda: python_worker("dml", "the DirectML worker"), tested)


def _status_on_windows(session: SessionOptions) -> DmlStatus:
    from dmlprep.runtime.windows import describe, provider_missing, session_facts

    if reason := provider_missing():
        # The reason includes the command that fixes it.
        return DmlStatus(False, reason)
    if status := _no_adapter(session):
        return status
    known = _test_on_windows(_adapter(session))
    # The worker reported its libraries before any session. The adapter is the one that was tested.
    facts = {**known["facts"], **session_facts(_lines(session))} if known["facts"] else {}
    status = status_from({**known, "facts": facts}, lambda facts, traits: describe(facts, tuple(traits)))
    return status if status.available else replace(status, fix=_DRIVER)


@cache
def _test_on_windows(which: _Which) -> Mapping[str, Any]:
    """Return the result of the self-test on an adapter. The test runs once in a process for each adapter.

    Every session needs this result.
    """
    if isinstance(which, int):
        session = SessionOptions(device_id=which)
    else:
        session = SessionOptions(performance_preference=which)
    return run_test(lambda: windows_host({which: ()}), session)
