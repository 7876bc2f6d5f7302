"""The record of a fleet, a run of many preparations (``fleet.json``, docs/fleet.md), with one row for each job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from dmlprep.core.text.documents import to_json

FORMAT = 1
"""Version of the JSON form. It increases if a field changes its meaning or is removed."""

Outcome = Literal["good", "failed", "wrong-input", "not-run", "internal-error"]

OUTCOMES: dict[int, Outcome] = {70: "internal-error", 2: "wrong-input", 1: "failed", 3: "not-run", 0: "good"}
"""Words for exit codes, the worst first.

``wrong-input``: a model, recipe or feed cannot be used. ``not-run``: a check could not run here; the model may be
good.
"""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a fleet: one model, prepared with one recipe.

    Attributes:
        name: its folder, relative to the fleet's folder.
        target, size: name of the release, and name of the set of sizes; empty if the recipe's own, or none.
        pins: sizes by dimension, and values under ``input:``.
        reused: an earlier run did it, and all that it depends on is unchanged, so it did not run again.
        key: SHA-256 of all that it depends on, except data files, which are in ``facts.digests`` of its record.
        record, report, output: paths relative to the fleet's folder; empty if there is none.
        level, summary: level and text of the headline of its record.
        error: why it is not good; otherwise empty.
        nodes, dml_nodes: number of nodes of the result, all and those on DirectML; ``None`` if unknown.
        worst_error: the largest relative error of all checks that decide; ``None`` without a comparison.
        devices: devices that compared outputs.
        bytes_before, bytes_after: size in bytes of all tensors of the model and of the result; ``None`` if unknown.
    """

    name: str
    model: str
    recipe: str
    exit_code: int
    target: str = ""
    size: str = ""
    pins: dict[str, Any] = {}
    reused: bool = False
    seconds: float = 0.0
    key: str = ""
    record: str = ""
    report: str = ""
    output: str = ""
    level: Literal["", "good", "warn", "bad"] = ""
    summary: str = ""
    error: str = ""
    nodes: int | None = None
    dml_nodes: int | None = None
    worst_error: float | None = None
    devices: list[str] = []
    bytes_before: int | None = None
    bytes_after: int | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome for its exit code, a word of ``OUTCOMES``."""
        return outcome_of(self.exit_code)

    @property
    def word(self) -> str:
        """The outcome for tables: ``review`` for a good job of level ``warn``, otherwise ``outcome`` with spaces."""
        return "review" if self.outcome == "good" and self.level == "warn" else self.outcome.replace("-", " ")


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one run of a fleet.

    Attributes:
        file: the project file.
        shard, only: the part (``3/8``), and the patterns of the job names, that ran; empty for all.
        exit_code: the worst exit code of the jobs (in the order of ``OUTCOMES``).
        jobs: in the order of the project file.
    """

    file: str
    format: int = FORMAT
    version: str = ""
    shard: str = ""
    only: list[str] = []
    exit_code: int = 0
    seconds: float = 0.0
    jobs: list[JobRecord] = []

    def counts(self) -> dict[Outcome, int]:
        """Return how many jobs have each outcome, the worst first; only outcomes that occur."""
        every = [job.outcome for job in self.jobs]
        return {outcome: every.count(outcome) for outcome in OUTCOMES.values() if outcome in every}

    def to_json(self) -> bytes:
        """Return the content of ``fleet.json`` in UTF-8: the record, and for each job also its outcome as a word."""
        data = msgspec.to_builtins(self)
        data["jobs"] = [{"name": job.name, "outcome": job.outcome, **msgspec.to_builtins(job)} for job in self.jobs]
        return to_json(data)


def outcome_of(exit_code: int) -> Outcome:
    """Return the outcome for an exit code; a code that no command has gives ``internal-error``."""
    return OUTCOMES.get(exit_code, "internal-error")


def worst(exit_codes: Iterable[int]) -> int:
    """Return the worst of exit codes, in the order of ``OUTCOMES``; 0 without any. An unknown code is the worst."""
    order = {code: place for place, code in enumerate(OUTCOMES)}
    return min(exit_codes, key=lambda code: order.get(code, -1), default=0)
