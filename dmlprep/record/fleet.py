"""The record of a fleet (``fleet.json``, docs/fleet.md), one row a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from dmlprep.core.text.documents import to_json

FORMAT = 1
"""Version of the JSON form. It increases if a field changes its meaning or is removed."""

Outcome = Literal["good", "failed", "wrong-input", "not-run", "internal-error"]

OUTCOMES: dict[int, Outcome] = {70: "internal-error", 2: "wrong-input", 1: "failed", 3: "not-run", 0: "good"}
"""Outcomes by exit code, the worst first.

``wrong-input``: a model, recipe or feed cannot be used. ``not-run``: a check could not run here; the model may be good.
"""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a fleet.

    Attributes:
        name: its folder below the fleet's.
        target, size: names of the release and of the sizes; empty for the recipe's own, and without sizes.
        pins: sizes by dimension, and values under ``input:``.
        reused: whether an earlier run did it, and its dependencies are unchanged.
        key: SHA-256 of all that it depends on, except data files, which are in ``facts.digests`` of its record.
        record, report, output: paths relative to the fleet's folder; empty if there is none.
        level, summary: the headline of its record.
        error: why it is not good; otherwise empty.
        nodes, dml_nodes: nodes of the result, all and those on DirectML; ``None`` if unknown.
        worst_error: the largest relative error of all checks that decide; ``None`` without a comparison.
        devices: devices that compared outputs.
        bytes_before, bytes_after: bytes of the tensors of the model and of the result.
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
        """The word for its exit code."""
        return outcome_of(self.exit_code)

    @property
    def word(self) -> str:
        """The word for it in tables: its outcome, or ``review`` for a good one with a warning."""
        return "review" if self.outcome == "good" and self.level == "warn" else self.outcome.replace("-", " ")


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a fleet.

    Attributes:
        shard, only: the part (``3/8``) and the patterns of jobs that ran; empty for all.
        exit_code: the worst of the jobs' (``OUTCOMES``).
        jobs: in the order of the file.
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
        """Return ``fleet.json``, UTF-8: the record, each job with its outcome as a word."""
        data = msgspec.to_builtins(self)
        data["jobs"] = [{"name": job.name, "outcome": job.outcome, **msgspec.to_builtins(job)} for job in self.jobs]
        return to_json(data)


def outcome_of(exit_code: int) -> Outcome:
    """Return the word for an exit code; a code that no command has is a bug."""
    return OUTCOMES.get(exit_code, "internal-error")


def worst(exit_codes: Iterable[int]) -> int:
    """Return the worst of exit codes, 0 for none."""
    order = {code: place for place, code in enumerate(OUTCOMES)}
    return min(exit_codes, key=lambda code: order.get(code, -1), default=0)
