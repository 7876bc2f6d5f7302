"""DirectML where there is one: on Windows through the installed ONNX Runtime, on Linux through the installed runtime.

No session is handed out before the self-test has passed on this very set of pieces; its result is kept with them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlprep.errors import CheckNotRun
from dmlprep.record import DeviceInfo
from dmlprep.runtime.child import Child
from dmlprep.runtime.failure import SessionFailure
from dmlprep.runtime.selftest import Fp16Traits, SelfTest, self_test
from dmlprep.runtime.served import ServedSession, SessionHost
from dmlprep.runtime.session import open_on, python_worker
from dmlprep.runtime.types import DmlStatus, SessionOptions

if TYPE_CHECKING:
    from dmlprep.runtime.linux.layout import Layout

__all__ = ["dml_host", "dml_status", "open_dml"]

_INSTALL = "run dmlprep runtime install"


def dml_status(release: str = "", *, again: bool = False) -> DmlStatus:
    """Whether a DirectML session can be had here. Runs the self-test when it has not run on these pieces (10 s).

    Args:
        release: of onnxruntime-directml, on Linux; empty for the newest installed.
        again: look at the contents of every file, and run the self-test even if its result is known.
    """
    if sys.platform == "win32":
        return _status_on_windows()
    if not sys.platform.startswith("linux"):
        return DmlStatus(
            False, f"DirectML runs on Windows and, with dmlprep's runtime, on Linux; this is {sys.platform}"
        )
    return _status_on_linux(release, again)


def dml_host(release: str = "") -> SessionHost:
    """A host for DirectML sessions.

    Raises:
        CheckNotRun: there is none here, or it failed its self-test; the message says why.
    """
    status = dml_status(release)
    if not status.available:
        fix = "" if _INSTALL in status.reason else "dmlprep doctor says what is missing"
        raise CheckNotRun(f"DirectML is not available here: {status.reason}", fix=fix, code="DP803")
    if sys.platform == "win32":
        return _windows_host(tuple(fp16_traits(status)))
    return _linux_host(release, fp16_traits(status))


def open_dml(
    path: Path, options: SessionOptions | None = None, host: SessionHost | None = None, *, release: str = ""
) -> ServedSession:
    """Load a model on DirectML, in a child process.

    Args:
        host: the host to serve it from; without one the session has a worker of its own, which ends with it.
        release: of onnxruntime-directml, on Linux, when no host is given.

    Raises:
        CheckNotRun: there is no DirectML here.
        SessionFailure: the model cannot be loaded, or the worker died of it.
    """
    return open_on(host, lambda: dml_host(release), path, options)


def fp16_traits(status: DmlStatus) -> list[str]:
    """What a report says of FP16 on this device."""
    words = {"nearest-even": "FP16 rounds to nearest even", "toward-zero": "FP16 truncates toward zero"}
    return [words[status.fp16_rounding]] if status.fp16_rounding in words else []


# ---- Linux ---------------------------------------------------------------------------------------------------------


def _linux_host(release: str, traits: list[str]) -> SessionHost:
    from dmlprep.runtime.linux.host import linux_host
    from dmlprep.runtime.linux.layout import Layout

    layout = Layout.of_user()
    return linux_host(layout, release or layout.installed()[0], traits)


def _status_on_linux(release: str, again: bool) -> DmlStatus:
    from dmlprep.runtime.linux import sandbox
    from dmlprep.runtime.linux.host import linux_host
    from dmlprep.runtime.linux.install import fingerprint, last_test, missing_piece
    from dmlprep.runtime.linux.layout import Layout

    try:
        layout = Layout.of_user()
    except CheckNotRun as error:
        return DmlStatus(False, str(error))
    if reason := missing_piece(layout, release) or sandbox.why_not(layout.root):
        return DmlStatus(False, reason)
    release = release or layout.installed()[0]
    key = fingerprint(layout, release)
    if again and (reason := _damage(layout, release)):
        return DmlStatus(False, reason)
    known = {} if again else last_test(layout, release)
    if known.get("fingerprint") != key:
        known = _test(lambda: linux_host(layout, release))
        if known["failures"] and (reason := _damage(layout, release)):
            return DmlStatus(False, f"the self-test failed, and {reason}")
        if known["failures"] and layout.shaders.is_dir():
            # Shaders that the driver kept can be broken too, and cost nothing but time.
            shutil.rmtree(layout.shaders, ignore_errors=True)
            known = _test(lambda: linux_host(layout, release))
        if known["lasting"]:
            # A cache folder of another user's, which cannot be written, serves as well: the test runs each time.
            with contextlib.suppress(OSError):
                layout.checks.mkdir(parents=True, exist_ok=True)
                text = json.dumps({**known, "fingerprint": key}, indent=1, sort_keys=True)
                (layout.checks / f"{release}.json").write_text(text + "\n")
    from dmlprep.runtime.linux.host import describe

    return _status_from(known, describe)


def _damage(layout: Layout, release: str) -> str:
    """The files that are not as they were installed, where there are any."""
    from dmlprep.runtime.linux import inventory

    for what in inventory.damage(layout, inventory.pieces(layout, release).items(), contents=True).values():
        return f"the runtime is damaged: {what}; {_INSTALL}, which repairs it"
    return ""


def _test(make: Callable[[], SessionHost]) -> dict[str, Any]:
    """Run the self-test; ``lasting`` says whether its result says something of the pieces, not of this moment."""
    try:
        with make() as host:
            facts = dict(host.facts)
            result = self_test(host)
    except SessionFailure as error:
        return {"facts": {}, "failures": [error.message], "passed": [], "fp16": asdict(Fp16Traits()), "lasting": False}
    return {
        "facts": facts,
        "failures": list(result.failures),
        "passed": list(result.passed),
        "fp16": asdict(result.fp16),
        "lasting": not result.failures,
    }


def _status_from(known: Mapping[str, Any], describe: Callable[[Mapping[str, str], list[str]], DeviceInfo]) -> DmlStatus:
    result = SelfTest(tuple(known["passed"]), tuple(known["failures"]), Fp16Traits(**known["fp16"]))
    facts: Mapping[str, str] = known["facts"]
    status = DmlStatus(
        not result.failures,
        f"the self-test failed [DP804]: {'; '.join(result.failures)}" if result.failures else "",
        fp16_rounding=result.fp16.rounding,
        fp16_overflow=result.fp16.overflow,
        fp16_denormals=result.fp16.denormals,
        native_fp16={"yes": True, "no": False}.get(facts.get("native fp16", "")),
    )
    device = describe(facts, fp16_traits(status)) if facts else None
    return replace(status, device=device)


# ---- Windows -------------------------------------------------------------------------------------------------------


class _TestedHost(SessionHost):
    """A host whose adapters are each self-tested before their first session: the default one has been before."""

    def __init__(self, start: Callable[[], Child], device: Callable[[Mapping[str, str]], DeviceInfo]) -> None:
        super().__init__(start, device)
        self._tested: set[int | None] = {None}

    def open(self, path: Path, options: SessionOptions | None = None) -> ServedSession:
        number = options.device_id if options is not None else None
        if number not in self._tested:
            self._tested.add(number)  # the self-test's own sessions go through here as well
            if failures := self_test(self, number).failures:
                self._tested.discard(number)
                raise CheckNotRun(
                    f"DirectML is not available on adapter {number}: the self-test failed: {'; '.join(failures)}",
                    fix="choose another --device-id: 0 is the first that DXGI lists, the one of the desktop",
                    code="DP804",
                )
        return super().open(path, options)


def _windows_host(traits: tuple[str, ...] = ()) -> SessionHost:
    from dmlprep.runtime.windows import describe

    return _TestedHost(lambda: python_worker("dml", "the DirectML worker"), lambda facts: describe(facts, traits))


def _status_on_windows() -> DmlStatus:
    from dmlprep.runtime.windows import describe, provider_missing

    if reason := provider_missing():
        return DmlStatus(False, reason)
    return _status_from(_test_on_windows(), lambda facts, traits: describe(facts, tuple(traits)))


@cache
def _test_on_windows() -> Mapping[str, Any]:
    """Once in a process: every session asks for it."""
    return _test(_windows_host)
