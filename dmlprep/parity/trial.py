"""One model on one device: the device that answers, and the verdict, also of a run that ends early."""

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
    """A verdict under construction, for outputs of any kind.

    Attributes:
        tolerance: bounds of the outputs, as a text for the verdict.
        setting: the tolerance as it was set.
        of_ours: True for a model that dmlprep derived: a failure to run proves nothing about the user's model.
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
        """Note that the model ran at a lower optimisation level than requested."""
        if self.info is not None:
            self.info = self.info.also(f"at {how}")
        if not self.of_ours:
            self.notes.append(finding("DP707", f"{self.check} ran at {how}", level=how.level, kind=how.kind))

    def verdict(self, feeds: int = 0, reason: str = "", *findings: Finding) -> Verdict:
        """Return ``failed`` for a reason, and ``passed`` without one."""
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
        """Return ``failed`` for a reason that is not a number."""
        return self.verdict(feeds, reason.message, reason)

    def not_run(self, reason: str, info: DeviceInfo | None = None, failure: SessionFailure | None = None) -> Verdict:
        """Return ``not-run``; ``info`` is the device where none has answered."""
        info = self.info or info
        return not_run(self.check, reason, info, self.began, self.tolerance, decides=self.decides, failure=failure)

    def ended(self, failure: SessionFailure, options: SessionOptions, info: DeviceInfo | None) -> Verdict | None:
        """Return ``not-run`` where a session ended for a reason outside the model, otherwise ``None``."""
        if options.device_id is not None and _NO_ADAPTER in failure.hresult:
            return self.not_run(f"there is no DirectML adapter {options.device_id} ({failure.hresult})")
        words = {"limit": "limit", "memory": "out of memory"}
        if software_device(self.device, self.info or info):
            words["timeout"] = "out of time"
        if failure.kind in words:
            return self.not_run(f"{words[failure.kind]}: {failure.message}; {failure.next_step}", info, failure)
        if self.of_ours:
            return self.not_run(f"it does not run on the CPU: {failure.message}")
        if too_new := newest_opset(failure.message):
            return self.not_run(
                f"the ONNX Runtime of this environment loads opset {too_new[1]} at most, the candidate is of opset "
                f"{too_new[0]}: install a newer one, or prepare for an older release (dmlprep target list)"
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
    """Return the verdict of a check that could not run.

    Args:
        failure: a limit that ended it; the finding has its kind, and how to raise the limit.
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
