"""The findings of ``check``: everything about a model that needs no run and no change."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, UsageError
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.core.text.shell import command_line
from dmlprep.core.text.sizes import count_text
from dmlprep.directml.placement.opset import best_opset
from dmlprep.directml.placement.place import Role, place_facts, roles
from dmlprep.directml.placement.placement import PlacedNode, Placement
from dmlprep.directml.placement.reading import FactsReader
from dmlprep.directml.placement.table import node_table
from dmlprep.directml.quirks import Hit, Matches, concerned, find_quirks
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.targets.fusion import Divisions
from dmlprep.directml.targets.kernels import Rows, rows_for
from dmlprep.graph.analysis.flow import deciding_inputs
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.input_watch import named_data_files
from dmlprep.graph.model.pinned import pinned_values, short_value
from dmlprep.graph.model.sources import Sources
from dmlprep.graph.model.walk import join_path
from dmlprep.record import CODES, Finding, RunRecord, finding
from dmlprep.record.nodes import NodeTables

_NAMES_SHOWN = 20

_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that a rule may raise on an invalid node: one with too few inputs, or with an axis beyond the rank."""


@dataclass(frozen=True)
class Examined:
    """The result of checking a model for one target, with the facts of the placed nodes.

    Attributes:
        record: the run record of ``check``, with all findings.
        placement, facts: ``None`` for a target without kernels, and for a model so invalid that the rules fail on it.
    """

    target: Target
    record: RunRecord
    placement: Placement | None
    facts: GraphFacts | None = None

    def known_placement(self, asked_by: str) -> Placement:
        """Return the placement; ``asked_by`` is the option that needs it, for the error.

        Raises:
            UsageError: the target's kernels are not known.
            InputError: the model is so far from valid that its nodes were not placed.
        """
        if self.placement is None and not self.target.opset_only:
            what = "the model is not valid ONNX, so the placement of its nodes is unknown"
            fix = "export it again; onnx.checker names the fault"
            raise InputError(what, where=self.record.input, code="DP003", fix=fix)
        if self.placement is None:
            what = f"no known kernels for {self.target.name}"
            raise UsageError(what, where=asked_by, fix="choose an ort- target")
        return self.placement


def examine(model: Model, target: Target) -> Examined:
    """Check the file, its versions, the placement of its nodes, and its quirks on ``target``.

    The findings are in the ``record`` of the result. Its ``exit_code`` is 2 if onnx's checker refuses the file even
    without shape inference, otherwise 1 if a finding is an error, otherwise 0.

    Raises:
        ModelRefused, ToolFailed: as ``read_facts``.
    """
    return examine_for(model, [target])[0]


def examine_for(model: Model, targets: Sequence[Target], frozen: Frozen | None = None) -> list[Examined]:
    """Return the result of ``examine`` for each target; work that is the same for all of them is done once.

    ``frozen`` is the frozen form of ``model``, if it exists; it saves time.
    """
    began = time.perf_counter()
    files = _file_findings(model, frozen)
    refused = any(f.code == "DP003" for f in files) and bool(check(model.ir, full=False, frozen=frozen))
    shared: _Shared | None = None
    results = []
    for target in targets:
        try:
            if not target.opset_only and shared is None:
                with paused_collector():
                    shared = _Shared(model, frozen)
            one = _examined(model, target, files, shared)
        except _BROKEN:
            if not any(f.code == "DP003" for f in files):
                raise
            one = _examined(model, target, files, None)  # the rules assume that the checker's errors are not there
        if refused:
            one.record.exit_code = InputError.exit_code  # as for every command with such a file
        one.record.seconds = round(time.perf_counter() - began, 3)
        results.append(one)
        began = time.perf_counter()
    return results


class _Shared:
    """Results that several targets share, so that each is computed once.

    Targets that inline the same nodes (usually none) share a graph and its roles. Among these, targets with equal
    kernels for the graph's operators, usually neighbouring releases, share a placement.
    """

    def __init__(self, model: Model, frozen: Frozen | None) -> None:
        self._model = model
        self._reader = FactsReader(model, frozen)
        self._graphs: dict[int, _Graph] = {}

    def placed(self, target: Target) -> tuple[_Graph, _Placed]:
        """Return the nodes of the model as the target's ONNX Runtime places them, and their devices."""
        facts = self._reader.facts(target.tables)
        if id(facts) not in self._graphs:
            operators = {(node.key, node.since) for node in facts.all_nodes()}
            self._graphs[id(facts)] = _Graph(facts, roles(facts), Matches(facts), operators)
        graph = self._graphs[id(facts)]
        rows = rows_for(target.tables, graph.operators)
        placed = next((one for one in graph.placed if one.rows == rows), None)
        if placed is None:
            divisions = Divisions(target)
            placement = place_facts(facts, target, self._model.opset, graph.roles, divisions)
            placed = _Placed(rows, divisions, placement, NodeTables(node_table(facts, placement)))
            graph.placed.append(placed)
        return graph, placed


@dataclass
class _Graph:
    """The facts of a model that several targets share, and their placements: one for each distinct set of kernels."""

    facts: GraphFacts
    roles: dict[int, Role]
    matches: Matches
    operators: set[tuple[str, int]]
    placed: list[_Placed] = field(default_factory=list)


@dataclass
class _Placed:
    """The placement for targets with equal kernels for the operators of a graph.

    ``hits``: keys of the quirks that concern a target -> the nodes with these quirks.
    """

    rows: Rows
    divisions: Divisions
    placement: Placement
    table: NodeTables
    hits: dict[tuple[str, ...], list[Hit]] = field(default_factory=dict)


def _examined(model: Model, target: Target, files: list[Finding], shared: _Shared | None) -> Examined:
    record = RunRecord(command="check", input=str(model.path or ""), version=__version__, target=target.name)
    record.ir_before, record.opset_before = model.ir.ir_version, dict(model.ir.opset_imports)
    record.findings += [*files, *version_findings(model, target)]
    placement: Placement | None = None
    graph: GraphFacts | None = None
    if not target.opset_only and shared is not None:
        with paused_collector():
            read, placed = shared.placed(target)
            graph, placement = read.facts, msgspec.structs.replace(placed.placement, target=target.name)
            asked = tuple(quirk.key for quirk in concerned(target))
            if asked not in placed.hits:
                placed.hits[asked] = find_quirks(graph, target, read.matches, placed.divisions)
            moves = placement.compute_on_cpu or any(hit.quirk.mended_at for hit in placed.hits[asked])
            best = best_opset(graph, model.opset, target, read.roles) if moves else model.opset
            record.findings += placement_findings(placement, best)
            record.findings += [hit.finding() for hit in placed.hits[asked]]
            record.facts.placement = placement.summary()
            record.facts.nodes = placed.table
            record.facts.best_opset = best
    record.exit_code = int(any(f.severity == "error" for f in record.findings))
    return Examined(target, record, placement, graph)


def _file_findings(model: Model, frozen: Frozen | None) -> list[Finding]:
    wrong = check(model.ir, frozen=frozen)
    findings = [finding("DP003", wrong, node=str(model.path or ""))] if wrong else []
    findings += [*Sources(model.ir).locate(model.notes), *_value_findings(model)]
    if model.path is not None:
        findings += _name_findings(model)
    return findings


def _value_findings(model: Model) -> list[Finding]:
    """Return findings about inputs whose value selects a branch, and inputs with a pinned value."""
    pinned = pinned_values(model.ir)
    findings = [
        finding("DP207", f"input {name} is pinned to {short_value(value)}", node=name) for name, value in pinned.items()
    ]
    for name, value in deciding_inputs(model.ir).items():
        pin = command_line("--pin", f"{name}:={value}")
        text = f"the value of input {name} selects a branch: {pin} can remove the other one"
        findings.append(finding("DP209", text, node=name))
    return findings


def _name_findings(model: Model) -> list[Finding]:
    """Return findings about external data files whose names in the model are invalid on Windows."""
    findings = []
    for name in named_data_files(model):
        wrong = next((f"{part!r} {why}" for part in name.split("/") if (why := file_name_problem(part))), "")
        if wrong:
            findings.append(finding("DP005", f"data file {name!r}: {wrong}", node=str(model.path), file=name))
    return findings


def version_findings(model: Model, target: Target) -> list[Finding]:
    """Return findings about an opset or IR version that the target does not load; empty if it loads both."""
    findings = []
    opset, version = model.opset, model.ir.ir_version
    if opset > (most := target.max_opset):
        text = f"opset {opset}, {target.name} loads up to {most}"
        findings.append(finding("DP520", text, opset=opset, highest=most))
    if version > (most := target.max_ir):
        text = f"IR version {version}, {target.name} loads up to {most}"
        findings.append(finding("DP521", text, ir_version=version, highest=most))
    return findings


def placement_findings(placement: Placement, best: int) -> list[Finding]:
    """Return the findings about a placement.

    There is one finding for each group of similar nodes on the CPU, and for each reason why nodes are outside of fused
    graphs. One more is about all copies between devices, and one about each free dimension. ``best`` is the opset at
    which most of the model runs on DirectML, for the advice.
    """
    away: dict[tuple[str, int, str, str], list[PlacedNode]] = {}
    loose: dict[str, list[PlacedNode]] = {}
    for node in placement.nodes:
        if node.provider != "DmlExecutionProvider":
            role = "compute" if node.role == "compute" else "other"
            away.setdefault((node.op, node.since_version, node.code, role), []).append(node)
        elif node.not_fused:
            loose.setdefault(node.not_fused, []).append(node)
    how = f"{'lower' if best < placement.opset else 'raise'} the opset to {best}, the best for the whole model"
    of_version = None if best == placement.opset else f"{how}: dmlprep prepare does this by default (opset auto)"
    findings = [_on_cpu(nodes, of_version if code == "DP501" else None) for (_, _, code, _), nodes in away.items()]
    findings += [_unfused(nodes) for nodes in loose.values()]
    if placement.crossings:
        unknown = sum(c.nbytes is None for c in placement.crossings)
        more = f", {unknown} of unknown size" if unknown else ""
        count, nbytes = len(placement.crossings), placement.crossing_bytes
        text = f"{count_text(count, 'tensor')} copied in each run, {nbytes} bytes{more}"
        findings.append(finding("DP522", text, count=count, bytes=nbytes))
    for name, places in placement.free_dimensions.items():
        findings.append(finding("DP205", f"free dimension {name} of {', '.join(places)}", node=name, inputs=places))
    return findings


def _on_cpu(nodes: Sequence[PlacedNode], remedy: str | None) -> Finding:
    """Return a finding about nodes of one operator that are on the CPU for one reason.

    Either all of them compute, or none. ``remedy`` replaces the usual advice, unless it is ``None``.
    """
    first, names = nodes[0], _names(nodes)
    why = _shared_reason([n.reason for n in nodes])
    return finding(
        first.code,
        f"{_count(nodes)} {first.op}-{first.since_version} on the CPU: {why}",
        severity=CODES[first.code].severity if first.role == "compute" or first.code == "DP507" else "note",
        node=names[0],
        remedy=remedy,
        source=first.source,
        count=len(nodes),
        op=first.op,
        since_version=first.since_version,
        role=first.role,
        nodes=names,
    )


def _unfused(nodes: Sequence[PlacedNode]) -> Finding:
    """Return a finding about nodes on DirectML that are outside of fused graphs for one reason."""
    ops = ", ".join(f"{op} {n}" for op, n in Counter(n.op for n in nodes).most_common(4))
    text = f"{_count(nodes)} on DirectML run unfused ({ops}): {_shared_reason([n.not_fused_reason for n in nodes])}"
    names = _names(nodes)
    first = nodes[0]
    return finding(first.not_fused, text, node=names[0], source=first.source, count=len(nodes), nodes=names)


def _shared_reason(reasons: Sequence[str]) -> str:
    """Return the most common reason, as an example if there are others."""
    counts = Counter(reasons)
    return ("for example, " if len(counts) > 1 else "") + counts.most_common(1)[0][0]


def _names(nodes: Sequence[PlacedNode]) -> list[str]:
    return [join_path(n.graph, n.name) for n in nodes[:_NAMES_SHOWN]]


def _count(nodes: Sequence[PlacedNode]) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
