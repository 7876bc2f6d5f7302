"""Judge a comparison, for the proof and the kit: passed, failed, or not proven by these inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Literal

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.metrics import KINDS, Comparison, OutputGroup, Tolerance, UserMetric, bounds_used, describe
from dmlprep.portable.arrays import Array
from dmlprep.portable.shares import percent
from dmlprep.portable.steep import ACTIVE
from dmlprep.record import Finding, OutputMetrics, Verdict, finding

MeasureNoise = Literal["auto", "always", "off"]


@dataclass(frozen=True)
class JudgingOptions:
    """The user's settings for judging outputs.

    Attributes:
        measures: kinds of outputs by output name, if their nodes suggest the wrong kind (``metrics.output_groups``).
        noise: whether to measure the original's own noise, which is how much its outputs change by rounding alone:
            ``auto`` if it runs within 20 seconds, ``always`` or ``off``.
        metric: the user's own measure, which decides instead of the tolerance; ``None``: the tolerance decides.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    noise: MeasureNoise = "auto"
    metric: UserMetric | None = None

    def check(self, model: Model) -> None:
        """Raise ``InputError`` if ``measures`` names an output that the model does not have, or an unknown kind."""
        known = [value.name or "" for value in model.ir.graph.outputs]
        for name, kind in self.measures.items():
            if name not in known:
                what, fix = f"no output {name!r} to measure", f"it has: {', '.join(known)}"
                raise InputError(what, where=str(model.path or ""), fix=fix)
            if kind not in KINDS:
                raise InputError(f"{kind!r} is not a kind of an output", where=f"output {name}", fix=", ".join(KINDS))


Side = Mapping[str, Array]

_FAR_BELOW = 0.1
"""Share of the tolerance: an error below it proves an output, even if the original's own noise is large."""

_FEW, _SPREAD = 6, 4.0
"""With fewer than ``_FEW`` feeds, other feeds may be worse: the worst error is scaled by the spread of the feeds.

The scale is at most ``_SPREAD``.
"""


class Judge:
    """Judge of a comparison: it collects the outputs of both models feed by feed, then gives the verdict.

    Args:
        groups: the outputs in the groups in which they are compared, with their kinds.
        noise: the original's own noise, by output name.
        weak: for outputs that prove nothing on these inputs the reason, by output name (``metrics.degenerate``).
        metric: the user's own measure, which decides instead of the tolerance.
    """

    def __init__(
        self,
        groups: Sequence[OutputGroup],
        tolerance: Tolerance,
        noise: Mapping[str, float],
        weak: Mapping[str, str],
        metric: UserMetric | None = None,
    ) -> None:
        self._comparison = Comparison(groups, tolerance, noise)
        self._tolerance, self._weak, self._metric = tolerance, weak, metric
        self._maps = {name for group in groups if group.kind == "map" for name in group.names}
        self._values: list[tuple[float, bool]] = []

    def add(self, reference: Side, candidate: Side, feed: str = "") -> None:
        """Compare the outputs of both models on one feed, and store the result.

        Args:
            reference, candidate: outputs by name.
            feed: name of the feed, for messages.

        Raises:
            InputError: the user's metric fails.
        """
        self._comparison.add(reference, candidate, feed)
        if self._metric is not None:
            self._values.append(self._metric.judge(reference, candidate))

    @property
    def results(self) -> list[OutputMetrics]:
        """The metrics of each output on the feed where it is worst."""
        return self._comparison.results()

    @property
    def decided(self) -> bool:
        """True if all outputs so far are within the tolerance; with a user's metric, if it accepts all feeds."""
        return all(passed for _, passed in self._values) if self._metric else all(m.passed for m in self.results)

    def judged(self, verdict: Verdict, differs: Callable[[OutputMetrics], Finding], code: str = "DP701") -> Verdict:
        """Return the verdict with its outcome: ``passed``, ``failed`` or ``not-proven``.

        It passes if every output is within the tolerance, and at least one of them proves something. It is not proven
        if only outputs that prove nothing are out of tolerance. But these fail too if elements are not finite, or if a
        map has values where the original's has none. A user's metric alone decides if there is one.

        Args:
            verdict: the verdict with the details of the run; its own findings come last.
            differs: returns the finding on an output that is out of tolerance.
            code: code of the finding if the user's metric does not accept a feed.
        """
        if self._metric is not None:
            return self._by_metric(verdict, self._metric, code)
        results = self.results
        with_outcome = partial(
            msgspec.structs.replace, verdict, tolerance=bounds_used(self._tolerance, results), outputs=results
        )
        reasons = {m.output: why for m in results if (why := self._why_weak(m))}
        # Non-finite values are wrong on any inputs; so is a map with values where the original's has none.
        failed = [m for m in results if not m.passed and (m.output not in reasons or m.non_finite or self._invents(m))]
        if failed:
            more = {1: "", 2: " (and 1 more output)"}.get(len(failed), f" (and {len(failed) - 1} more outputs)")
            reason = describe(failed[0], self._tolerance) + more
            return with_outcome(outcome="failed", reason=reason, findings=[*map(differs, failed), *verdict.findings])
        weak = [_proves_nothing(m, reasons[m.output]) for m in results if m.output in reasons]
        if weak and (len(weak) == len(results) or not all(m.passed for m in results)):
            reason = f"{weak[0].message}; pass inputs that prove more with --feeds"
            return with_outcome(outcome="not-proven", reason=reason, findings=[*weak, *verdict.findings])
        close = _close(str(verdict.check), self._comparison.errors, results)
        return with_outcome(outcome="passed", reason="", findings=[*weak, *close, *verdict.findings])

    def _why_weak(self, metrics: OutputMetrics) -> str:
        """Return the reason why an output proves nothing on these inputs; empty if it proves something."""
        if metrics.output in self._weak:
            return self._weak[metrics.output]
        if metrics.only_faint:
            return f"it has no probability of {ACTIVE:g} or more: the model detects nothing in these inputs"
        near = metrics.passed and metrics.error <= _FAR_BELOW * self._tolerance.max_rel
        if near or not self._tolerance.beyond_proof(own := metrics.noise):
            return ""
        return f"the original differs from itself by {own:.2g}, by rounding alone"

    def _invents(self, metrics: OutputMetrics) -> bool:
        return metrics.output in self._maps and metrics.max_abs > ACTIVE

    def _by_metric(self, verdict: Verdict, metric: UserMetric, code: str) -> Verdict:
        allowed = "" if metric.bound is None else f", allowed: {metric.bound:g}"
        wrong = [
            finding(code, f"metric {metric.name}: {value:.4g} on feed {number}{allowed}", value=value)
            for number, (value, passed) in enumerate(self._values, 1)
            if not passed
        ]
        return msgspec.structs.replace(
            verdict,
            outcome="failed" if wrong else "passed",
            reason=wrong[0].message if wrong else "",
            tolerance=f"metric {metric.name}" + ("" if metric.bound is None else f" <= {metric.bound:g}"),
            outputs=self.results,
            findings=[*wrong, *verdict.findings],
            metric=metric.name,
            values=[value for value, _ in self._values],
        )


def _proves_nothing(metrics: OutputMetrics, why: str) -> Finding:
    text = f"output {metrics.output!r}: {why}"
    return finding("DP709", text, node=metrics.output, error=metrics.error, noise=metrics.noise)


def _close(check: str, errors: list[float], results: Sequence[OutputMetrics]) -> list[Finding]:
    """Return a finding (DP711) if a verdict passed so closely that other inputs might fail; otherwise an empty list.

    This is so if there are few feeds, and the worst error, scaled by their spread, exceeds the bound.

    Args:
        errors: for each feed, the largest error of an element as a share of its bound. It is above 1 if an output
            passes by its decisions (classes, boxes).
    """
    worst, least = max(errors), min(errors)
    spread = min(_SPREAD, max(2.0, worst / least if least > 0 else _SPREAD))
    if len(errors) >= _FEW or worst * spread <= 1.0:
        return []
    if worst <= 1.0:
        shares = ", ".join(percent(share, 0) for share in errors)
        text = f"the worst element of each feed reaches {shares} of the tolerance: other feeds might fail"
    else:
        times = ", ".join(f"{share:.2g}" for share in errors)
        most = max(results, key=lambda m: m.max_rel / m.bound if m.bound > 0 else 0.0)
        text = (
            f"output {most.output!r} passes by its kind (classes, map ...), but its worst element is {times} "
            "times the tolerance (one number for each feed): other feeds might fail"
        )
    return [finding("DP711", f"{check}: {text}", shares=list(errors))]


def no_output(who: str, name: str, code: str = "") -> Finding:
    """Return the finding that ``who`` (words for a message) lacks an output; an empty ``code`` is DP701."""
    remedy = "compare models with the same outputs"
    return finding(code or "DP701", f"{who} has no output {name!r}", remedy=remedy)


def difference(metrics: OutputMetrics, tolerance: Tolerance) -> Finding:
    """Return the finding on an output that is out of tolerance: DP701, or DP702 if it has elements not finite."""
    left_out = ("output", "passed", "note")
    facts = {name: number for name, number in asdict(metrics).items() if name not in left_out and number is not None}
    code = "DP702" if metrics.non_finite else "DP701"
    return finding(code, describe(metrics, tolerance), node=metrics.output, **facts)
