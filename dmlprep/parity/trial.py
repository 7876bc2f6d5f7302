"""Build the verdict on one model on one device, also if the run ends early."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from dmlprep.parity.candidate import software_device
from dmlprep.parity.optimization_levels import Lowered
from dmlprep.record import Check, DeviceInfo, Finding, Verdict, finding
from dmlprep.record.aliases import SessionDevice
from dmlprep.runtime import SessionFailure, SessionOptions
from dmlprep.runtime.ort_messages import newest_opset

_NO_ADAPTER = "887A0002"
"""DXGI_ERROR_NOT_FOUND (winerror.h): the result of a request for an adapter that does not exist."""


@dataclass
class Trial:
    """Builder of the verdict of one check: it collects the device, notes and the time.

    Attributes:
        tolerance: bounds of the outputs; ``str`` of it is the text for the verdict.
        setting: the tolerance as it was set (``auto``).
        decides: True if the verdict decides about the model; False if it is information only.
        of_ours: True for a model that dmlprep derived: if it does not run, this proves nothing about the user's model.
        began: start time, from ``time.perf_counter``.
        info: the device that answered; ``None`` until one did.
        notes: findings to be added to the verdict.
    """

    check: Check
    device: SessionDevice
    tolerance: object
    setting: str = ""
    decides: bool = True
    of_ours: bool = False
    began: float = field(default_factory=time.perf_counter)
    info: DeviceInfo | None = None
    notes: list[Finding] = field(default_factory=list)

    def lowered(self, how: Lowered) -> None:
        """Note in the device that the model ran at a lower optimisation level; add DP707 unless it is ``of_ours``."""
        if self.info is not None:
            self.info = self.info.also(f"at {how}")
        if not self.of_ours:
            self.notes.append(finding("DP707", f"{self.check} ran at {how}", level=how.level, kind=how.kind))

    def verdict(self, feeds: int = 0, reason: str = "", *findings: Finding) -> Verdict:
        """Return a verdict: ``failed`` if there is a ``reason``, otherwise ``passed``.

        ``feeds`` is the number of feeds that were compared; ``findings`` come before the notes.
        """
        return Verdict(
            check=self.check,
            outcome="failed" if reason else "passed",
            reason=reason,
            device=self.info,
            tolerance=str(self.tolerance),
            tolerance_setting=self.setting,
            feeds=feeds,
            seconds=round(time.perf_counter() - self.began, 3),
            findings=[*findings, *self.notes],
            decides=self.decides,
        )

    def failed(self, reason: Finding, feeds: int = 0) -> Verdict:
        """Return the verdict ``failed``, with a finding as its reason."""
        return self.verdict(feeds, reason.message, reason)

    def not_run(self, reason: str, info: DeviceInfo | None = None, failure: SessionFailure | None = None) -> Verdict:
        """Return the verdict ``not-run``.

        Args:
            info: the device to name if none has answered.
            failure: the failure of the session that ended the check, if any.
        """
        info = self.info or info
        return not_run(self.check, reason, info, self.began, self.tolerance, decides=self.decides, failure=failure)

    def ended(self, failure: SessionFailure, options: SessionOptions, info: DeviceInfo | None) -> Verdict | None:
        """Return the verdict ``not-run`` if a session failed for a reason that is not a fault of the user's model.

        Such reasons are a missing adapter, a limit, memory, an ONNX Runtime that is too old, a timeout on a device in
        software, and any failure ``of_ours``. Otherwise return ``None``: then the failure counts against the model.
        """
        if options.device_id is not None and _NO_ADAPTER in failure.hresult:
            return self.not_run(f"there is no DirectML adapter {options.device_id} ({failure.hresult})")
        words = {"limit": "limit exceeded", "memory": "out of memory"}
        if software_device(self.device, self.info or info):
            words["timeout"] = "out of time"
        if failure.kind in words:
            return self.not_run(f"{words[failure.kind]}: {failure.message}; {failure.next_step}", info, failure)
        if self.of_ours:
            return self.not_run(f"it does not run on the CPU: {failure.message}")
        if too_new := newest_opset(failure.message):
            return self.not_run(
                f"the ONNX Runtime of this environment loads opset {too_new[1]} at most, the candidate is of opset "
                f"{too_new[0]}: install a newer one, or prepare for an older release (dmlprep explain targets)"
            )
        return None


def not_run(
    check: Check,
    reason: str,
    info: DeviceInfo | None,
    began: float,
    tolerance: object = None,
    *,
    decides: bool = True,
    failure: SessionFailure | None = None,
) -> Verdict:
    """Return the verdict ``not-run``, with the finding DP703.

    Args:
        info: the device, if known.
        began: start time of the check, from ``time.perf_counter``.
        decides: True if the verdict decides about the model; False if it is information only.
        failure: the failure of the session that ended the check; the finding has its kind and its remedy.
    """
    facts: dict[str, Any] = {} if failure is None else {"kind": failure.kind, "remedy": failure.next_step}
    return Verdict(
        check=check,
        outcome="not-run",
        reason=reason,
        device=info,
        tolerance=str(tolerance) if tolerance is not None else "",
        seconds=round(time.perf_counter() - began, 3),
        findings=[finding("DP703", f"{check} did not run: {reason}", **facts)],
        decides=decides,
        ended=failure.kind if failure is not None else "",
    )
