"""The candidate under other session settings: does the fault follow graph optimisation, fusion or metacommands?"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from dmlprep.graph.model import Model
from dmlprep.parity.candidate import file_candidate
from dmlprep.parity.compare import compare
from dmlprep.parity.reference import Reference
from dmlprep.record import Verdict
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime import SessionOptions
from dmlprep.runtime.types import Optimization


@dataclass(frozen=True)
class SettingResult:
    """One setting and what the whole model did under it."""

    name: str
    options: SessionOptions
    verdict: Verdict

    @property
    def text(self) -> str:
        """``agrees`` or what is wrong, with the largest difference."""
        worst = max((m.max_rel for m in self.verdict.outputs), default=None)
        outcome = "agrees" if self.verdict.outcome == "passed" else self.verdict.reason.splitlines()[0]
        return outcome if worst is None else f"{outcome}; worst max|d|/max|ref| {worst:.3g}"


def settings(device: SessionDevice, base: SessionOptions) -> list[tuple[str, SessionOptions]]:
    """The settings worth trying on a device, the given one first."""
    every: tuple[Optimization, ...] = ("all", "extended", "basic", "disabled")
    levels = [(f"optimization {level}", replace(base, optimization=level)) for level in every]
    if device == "cpu":
        return levels
    more = [*levels, ("unfused", replace(base, unfused=True))]
    # lavapipe, which DirectML has on Linux, offers no metacommands to disable.
    if sys.platform == "win32":
        more.append(("no metacommands", replace(base, disable_metacommands=True)))
        more.append(("unfused, no metacommands", replace(base, unfused=True, disable_metacommands=True)))
    return more


def try_settings(
    reference: Reference,
    candidate: Model,
    *,
    device: SessionDevice,
    tolerance: str,
    session: SessionOptions,
    progress: Progress = lambda share, text: None,
) -> list[SettingResult]:
    """Compare the whole candidate under each setting. The reference runs once."""
    results = []
    whole = file_candidate(candidate, device, retreat=False)
    every = settings(device, session)
    for index, (name, options) in enumerate(every):
        progress(index / len(every), name)
        results.append(SettingResult(name, options, compare(reference, whole, tolerance, session.time_limit, options)))
    return results
