"""The result of a bisection (the search for the first node that differs), and runs under other session settings."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.graph.model import Model
from dmlprep.parity.bisection.error_profile import ProfilePoint
from dmlprep.parity.bisection.graph_cuts import Cuts
from dmlprep.parity.bisection.probe import Prober
from dmlprep.parity.candidate import file_candidate
from dmlprep.parity.compare import compare
from dmlprep.parity.reference import Reference
from dmlprep.portable.arrays import Array
from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunError, RunRecord, Verdict, finding
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.bisected import Bisected
from dmlprep.record.origin import origin
from dmlprep.record.run_record import RunFacts
from dmlprep.record.source import Source
from dmlprep.runtime import SessionOptions
from dmlprep.runtime.types import Optimization


@dataclass(frozen=True)
class SettingResult:
    """The verdict on the whole candidate under one session setting; ``name`` describes the setting."""

    name: str
    options: SessionOptions
    verdict: Verdict

    @property
    def text(self) -> str:
        """The result in words: ``agrees``, or why not; with the largest difference if outputs were compared."""
        worst = max((m.max_rel for m in self.verdict.outputs), default=None)
        outcome = "agrees" if self.verdict.outcome == "passed" else self.verdict.reason.splitlines()[0]
        return outcome if worst is None else f"{outcome}; worst max|d|/max|ref| {worst:.3g}"


def settings(device: SessionDevice, base: SessionOptions) -> list[tuple[str, SessionOptions]]:
    """Return the session settings to try on a device, each with its name: ``base`` with one or two changes."""
    every: tuple[Optimization, ...] = ("all", "extended", "basic", "disabled")
    levels = [(f"optimization {level}", replace(base, optimization=level)) for level in every]
    if device == "cpu":
        return levels
    more = [*levels, ("unfused", replace(base, unfused=True))]
    # lavapipe, DirectML's device on Linux, has no metacommands to disable.
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
    """Compare the whole candidate with the reference under each setting of ``settings``, and return the results.

    The reference runs once. ``session`` has the base settings.

    Raises:
        InputError, UsageError: as ``compare``.
    """
    results = []
    whole = file_candidate(candidate, device, retreat=False)
    every = settings(device, session)
    for index, (name, options) in enumerate(every):
        progress(index / len(every), name)
        results.append(SettingResult(name, options, compare(reference, whole, tolerance, session.time_limit, options)))
    return results


@dataclass
class Bisection:
    """The result of a bisection.

    Attributes:
        outcome: ``agree`` (no difference), ``found``, or ``not-run``.
        reason: one sentence.
        kind: ``values`` (numbers differ) or ``failure`` (the candidate does not run).
        nodes: names of the nodes at fault: those between the last position in the graph where the models agree and the
            first where they do not. There are several if values between them have no counterpart in the reference, or
            if exposing them as outputs hides the fault.
        op_types: operator of each of ``nodes``.
        sources: module and source line of each of ``nodes``; ``None`` if the candidate does not name them.
        values: metrics of the values that differ after the nodes.
        hidden: True if exposing the values between the nodes as outputs hides the fault: then their fusion causes it.
        fused_by: who fuses the nodes, in words; empty if it is not known.
        with_readers: True if ``part`` needs the nodes' readers too, to show the fault.
        reproduced: True if ``part`` shows the fault on the device; ``None``: not tried.
        before: metrics of the nodes' inputs, which may differ too; measured if the nodes agree when they run alone.
        on_cpu: True if the nodes show the fault on the CPU too, so that the model and not the device is at fault;
            ``None``: not tried.
        runs: number of sessions opened, without those for ``settings``.
        total_nodes: number of nodes in the candidate's main graph.
        failure: message of ONNX Runtime, if ``kind`` is ``failure``.
        part: a model of ``nodes``, with their readers if ``with_readers``; ``None`` if no node was found.
        inputs, expected: arrays by name: inputs of ``part``, and the outputs that the reference gives; no outputs if
            ``kind`` is ``failure``.
        settings: results of the whole candidate under other session settings, if requested.
        files: files that were written, without ``node.onnx.data``.
        along: values that were compared, in the order of the candidate's nodes.
        bound: the error that the tolerance allows for each of them.
    """

    outcome: Literal["agree", "found", "not-run"]
    reason: str
    kind: Literal["values", "failure"] = "values"
    nodes: list[str] = field(default_factory=list)
    op_types: list[str] = field(default_factory=list)
    sources: list[Source | None] = field(default_factory=list)
    values: list[OutputMetrics] = field(default_factory=list)
    hidden: bool = False
    fused_by: str = ""
    with_readers: bool = False
    reproduced: bool | None = None
    before: list[OutputMetrics] = field(default_factory=list)
    on_cpu: bool | None = None
    runs: int = 0
    total_nodes: int = 0
    device: DeviceInfo | None = None
    tolerance: str = ""
    failure: str = ""
    part: Model | None = None
    inputs: dict[str, Array] = field(default_factory=dict)
    expected: dict[str, Array] = field(default_factory=dict)
    settings: list[SettingResult] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    reference: str = ""
    candidate: str = ""
    along: list[ProfilePoint] = field(default_factory=list)
    bound: float = 0.0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 for ``agree``, 1 for ``found``, 3 for ``not-run``."""
        return {"agree": 0, "found": 1, "not-run": 3}[self.outcome]


def named(result: Bisection) -> str:
    """Return a phrase that names the nodes of a result."""
    of = [f" of {source}" if source is not None else "" for source in result.sources or [None]]
    if len(result.nodes) == 1:
        return f"{result.op_types[0]} node {result.nodes[0]!r}{of[0]}"
    if not result.nodes:
        return "no node"
    return f"{len(result.nodes)} nodes, {result.nodes[0]!r}{of[0]} to {result.nodes[-1]!r}{of[-1]}"


def culprits(cuts: Cuts, part: Model) -> list[ir.Node]:
    """Return the nodes of ``part`` that depend on its inputs, not on constants alone."""
    fixed = {n.outputs[0].name for n in cuts.nodes if cuts.is_constant(n)}
    return [n for n in part.ir.graph if n.outputs and n.outputs[0].name not in fixed]


def inputs_at(
    prober: Prober, cuts: Cuts, cut: int, reference: Mapping[str, Array], candidate: Mapping[str, Array]
) -> dict[str, Array]:
    """Return values to feed to the part of the candidate after a cut: the graph's inputs, and the values at the cut.

    The values are the reference's, in the candidate's element types.

    Args:
        cut: index of the node after which the graph is cut; -1 is the start.
        reference, candidate: values of both models by the candidate's names.
    """
    inputs = dict(prober.feed)
    for value in prober.models["candidate"].ir.graph.inputs:
        if value.name in inputs and value.dtype is not None and inputs[value.name].dtype.kind not in "OUS":
            inputs[value.name] = inputs[value.name].astype(value.dtype.numpy())
    for name in cuts.live(cut):
        if name in reference and name in candidate:
            with np.errstate(over="ignore"):
                inputs[name] = reference[name].astype(candidate[name].dtype)
    return inputs


def bisect_record(bisection: Bisection, *, command_line: str = "") -> RunRecord:
    """Return the result as a record of a run: one verdict, and the finding DP706 if a node was found."""
    facts = Bisected(
        reference=bisection.reference,
        candidate=bisection.candidate,
        kind=bisection.kind,
        nodes=bisection.nodes,
        op_types=bisection.op_types,
        values=[one.value for one in bisection.along],
        places=[one.place for one in bisection.along],
        errors=[one.error if math.isfinite(one.error) else None for one in bisection.along],
        total_nodes=bisection.total_nodes,
        bound=bisection.bound,
        hidden=bisection.hidden,
        settings=[(one.name, one.verdict.outcome, one.text) for one in bisection.settings],
        files=[str(path) for path in bisection.files],
        runs=bisection.runs,
    )
    error, findings = RunError(bisection.reason) if bisection.outcome == "not-run" else None, []
    if bisection.outcome == "found":
        begin = "the models first differ at" if bisection.kind == "values" else "the candidate does not run with"
        error = RunError(f"{begin} {named(bisection)}")
        node, source = (*bisection.nodes[:1], "")[0], (*bisection.sources[:1], None)[0]
        findings = [finding("DP706", bisection.reason, node=node, source=source)]
    outcome = {"agree": "passed", "found": "failed", "not-run": "not-run"}[bisection.outcome]
    return RunRecord(
        command="bisect",
        input=bisection.candidate,
        version=__version__,
        exit_code=bisection.exit_code,
        seconds=bisection.seconds,
        verdicts=[
            Verdict(
                check=Check("agreement"),
                outcome=outcome,  # type: ignore[arg-type]
                reason="" if bisection.outcome == "agree" else bisection.reason,
                device=bisection.device,
                tolerance=bisection.tolerance,
                feeds=int(bisection.outcome != "not-run"),
                seconds=bisection.seconds,
                outputs=bisection.values,
            )
        ],
        findings=findings,
        facts=RunFacts(bisection=facts, origin=origin(command_line)),
        error=error,
    )
