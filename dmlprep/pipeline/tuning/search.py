"""Rank candidates offline: run the steps of each on a copy of the graph, as ``check --plan`` does, without proofs.

Candidates share their first steps. So each step runs once for all that have the same graph and options there, and equal
graphs are merged. First the opsets are tried; only the best of them run the later, more expensive steps.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from dmlprep.core.errors import ModelRefused, ToolFailed
from dmlprep.directml.placement import place
from dmlprep.directml.targets import Target
from dmlprep.graph.model import Frozen, Model
from dmlprep.metrics import holds_fp16
from dmlprep.pipeline.dry_run import step_ahead
from dmlprep.pipeline.recipe import Plan, PlannedStep, Recipe, make_plan
from dmlprep.pipeline.tuning.axes import (
    Io,
    Variant,
    fused,
    half_io,
    opset_classes,
    says,
    step_of,
    with_contrib,
    with_opset,
)
from dmlprep.record.aliases import Progress
from dmlprep.record.tuning import Figures

_DML = "DmlExecutionProvider"


def figures(model: Model, target: Target) -> tuple[Figures, tuple[str, ...]]:
    """Return the figures that rank a model on ``target``, and the names of its free dimensions.

    Raises:
        UsageError: the target's kernels are not known.
    """
    placed = place(model, target)
    alone = [n for n in placed.nodes if n.provider == _DML and n.partition is None and n.op != "Cast"]
    numbers = Figures(
        opset=model.opset,
        fp16=holds_fp16(model),
        nodes=len(placed.nodes),
        cpu_nodes=len(placed.nodes) - placed.dml_nodes,
        cpu_compute=len(placed.compute_on_cpu),
        partitions=placed.partitions,
        alone=len(alone),
        crossings=len(placed.crossings),
        crossing_bytes=placed.crossing_bytes,
        model_bytes=model.statistics().nbytes,
        feed_bytes=placed.feed_bytes,
        runs=placed.runs,
    )
    return numbers, tuple(placed.free_dimensions)


_OPSETS = 3
"""Number of opsets to try in addition to the one that the step ``opset`` chooses.

They are the opsets at which, by operator versions alone, the fewest nodes leave DirectML. The step itself has already
tried operators that it expands into others.
"""

_SURVIVORS = 3
"""Largest number of results of the step ``opset`` that continue with the later steps."""


@dataclass(frozen=True)
class Ways:
    """The scope of a search.

    Attributes:
        bases: recipes to start from, with the user's sizes in them.
        io: types of graph inputs and outputs of FP16 candidates: ``keep``, ``half`` or ``any``.
        only_directml: True to try operators too that only DirectML has a kernel for.
        timed: True if times will decide among the best; then fused operators that only times can judge are tried too.
        seconds: time limit in seconds; ``bases`` are always tried; for ``half``, with FP16 inputs and outputs.
    """

    bases: Sequence[Recipe]
    io: Io = "keep"
    only_directml: bool = False
    timed: bool = False
    seconds: float = 60.0

    @property
    def asked(self) -> list[str]:
        """Options of the step ``fuse`` that are tried on request only, and are requested."""
        return ["group_norm"] * self.only_directml + ["attention", "grouped_attention"] * self.timed


@dataclass
class Row:
    """A candidate of the ranking.

    Attributes:
        figures: the figures that rank it; ``None`` if a step refuses the model.
        refused: why a step refuses the model; otherwise empty.
        free: names of free dimensions of its inputs.
        same: names of other candidates that give the same graph.
    """

    variant: Variant
    figures: Figures | None
    refused: str = ""
    free: tuple[str, ...] = ()
    same: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ranking:
    """The result of a search: candidates (``rows``), best first, and texts on what was not tried, with the reason."""

    rows: list[Row]
    left_out: list[str]


@dataclass
class _State:
    """A graph after some steps, which several candidates may share.

    Attributes:
        frozen: a snapshot of the graph; ``None`` before the first step, and where the last step refuses the graph.
        within: True if opset and IR version are within the target's, where later steps must keep them.
        refused: why the last step refuses the graph; empty if it does not.
        known: the figures and free dimensions, once they are computed.
    """

    model: Model
    frozen: Frozen | None = None
    within: bool = False
    refused: str = ""
    known: tuple[Figures, tuple[str, ...]] | None = None


class _Tree:
    """A tree of graphs: each edge is a step. Steps that candidates have in common run once."""

    def __init__(self, model: Model, target: Target) -> None:
        self._target = target
        self.states = [_State(model.copy())]
        self._after: dict[tuple[int, bytes], int] = {}
        self._same: dict[tuple[str, bool], int] = {}

    def reach(self, plan: Plan, until: str = "") -> int:
        """Run the steps of a plan that have not run yet, and return the index of the resulting graph in ``states``.

        Args:
            until: name of a pass: stop after the last step that runs it; empty: run all steps. If a step refuses the
                graph, stop there; the state has the reason.
        """
        steps = list(plan.steps)
        while until and steps and steps[-1].pass_.name != until:
            steps.pop()
        at = 0
        for step in steps:
            if self.states[at].refused:
                return at
            key = (at, step.pass_.name.encode() + msgspec.json.encode(step.pass_.options))
            if key not in self._after:
                self._after[key] = self._run(self.states[at], step)
            at = self._after[key]
        return at

    def _run(self, before: _State, step: PlannedStep) -> int:
        work = before.model.copy(before.frozen)
        state = _State(work, within=before.within or "opset" in step.pass_.promises())
        self.states.append(state)
        try:
            state.frozen = step_ahead(work, step, self._target, within=before.within)
        except (ModelRefused, ToolFailed) as error:
            state.refused = str(error)
            return len(self.states) - 1
        # All come from one model by fixed rules. So graphs that are equal except for the contents of large tensors,
        # which have equal names, types and shapes, are equal in these contents too.
        graph = state.frozen.proto.SerializeToString(deterministic=True)
        return self._same.setdefault((hashlib.sha256(graph).hexdigest(), state.within), len(self.states) - 1)

    def figures(self, at: int) -> tuple[Figures, tuple[str, ...]]:
        state = self.states[at]
        if state.known is None:
            state.known = figures(state.model, self._target)
        return state.known


def search(model: Model, target: Target, ways: Ways, progress: Progress = lambda share, text: None) -> Ranking:
    """Rank candidates for ``model``, by predictions alone; ``model`` does not change.

    Raises:
        UsageError: a recipe does not fit the model, or the target's kernels are not known.
    """
    run = _Search(_Tree(model, target), target, ways, progress)
    rows: dict[int, Row] = {}
    for base in ways.bases:
        run.rest(rows, Variant(base), [])
    for base in ways.bases:
        run.rest(rows, Variant(base), run.opsets(Variant(base)))
    if ways.io == "keep" and any(step_of(base, "fp16") for base in ways.bases):
        run.left_out.append("FP16 inputs and outputs: an application must then feed FP16 (--io any tries them)")
    if not ways.only_directml:
        run.left_out.append("GroupNorm: only DirectML runs the result (--only-directml tries it)")
    if not ways.timed:
        run.left_out.append("fused attention: only timing shows whether it helps (--bench and --kit try it)")
    if run.late:
        names = ", ".join(run.late[:5]) + (f" and {len(run.late) - 5} more" if len(run.late) > 5 else "")
        run.left_out.append(f"{names}: {ways.seconds:g} seconds had passed (--search-seconds)")
    ordered = sorted(rows.values(), key=lambda row: (row.figures is None, row.figures.rank if row.figures else ()))
    return Ranking(ordered, run.left_out)


class _Search:
    """The state of one search: its time limit, and the texts about what it leaves out."""

    def __init__(self, tree: _Tree, target: Target, ways: Ways, progress: Progress) -> None:
        self.left_out: list[str] = []
        self.late: list[str] = []
        self._tree, self._target, self._ways, self._progress = tree, target, ways, progress
        self._began = time.perf_counter()
        self._reported: set[str] = set()

    def _over(self, name: str) -> bool:
        spent = time.perf_counter() - self._began
        if spent <= self._ways.seconds:
            self._progress(min(spent / self._ways.seconds, 1.0) if self._ways.seconds else 1.0, name)
            return False
        if name not in self.late:
            self.late.append(name)
        return True

    def opsets(self, base: Variant) -> list[Variant]:
        """Try a recipe at several opsets and with operators of com.microsoft; return the best variants.

        If the recipe itself sets an opset, return only the recipe.
        """
        if says(base.recipe, "opset", "version"):
            return [base]
        plan = make_plan(base.recipe)
        first = self._tree.reach(plan, "opset")
        index = next(i for i, step in enumerate(plan.steps) if step.pass_.name == "opset")
        pinned = self._tree.reach(replace(plan, steps=plan.steps[:index]))
        classes = opset_classes(self._tree.states[pinned].model, self._target)
        tried = {first: base}
        for version in list(classes)[:_OPSETS]:
            self._try(tried, with_opset(base, version))
        rest = ", ".join(f"{version} ({off})" for version, off in list(classes.items())[_OPSETS:])
        if rest:
            self._leave(
                f"opset {rest}: in brackets, the number of compute nodes without a DirectML kernel at that opset"
            )
        if not says(base.recipe, "opset", "prefer_contrib"):
            for one in self._best(tried):
                self._try(tried, with_contrib(one))
        survivors = self._best(tried)
        for at, one in tried.items():
            if one not in survivors and one is not base:
                self._leave(f"{', '.join(one.words)}: {self._why(at)}")
        return survivors

    def _try(self, tried: dict[int, Variant], one: Variant) -> None:
        if not self._over(one.name):
            tried.setdefault(self._tree.reach(make_plan(one.recipe), "opset"), one)

    def _best(self, tried: dict[int, Variant]) -> list[Variant]:
        """Return the best of the tried variants, at most ``_SURVIVORS``, and only the first of several equal ones.

        If the best is one fused graph without a CPU node (``whole``), all returned variants are.

        Args:
            tried: variants by the index of their graph after the opset step.
        """
        equal: dict[tuple[int, ...], int] = {}
        for at in tried:
            if not self._tree.states[at].refused:
                equal.setdefault(self._tree.figures(at)[0].rank, at)
        ranked = [equal[rank] for rank in sorted(equal)]
        if ranked and self._tree.figures(ranked[0])[0].whole:
            ranked = [at for at in ranked if self._tree.figures(at)[0].whole]
        return [tried[at] for at in ranked[:_SURVIVORS]]

    def _why(self, at: int) -> str:
        if refused := self._tree.states[at].refused:
            return refused
        numbers = self._tree.figures(at)[0]
        return (
            f"no better than other recipes; with this one, compute nodes on the CPU: {numbers.cpu_compute}, fused "
            f"partitions: {numbers.partitions}, copies between CPU and GPU: {numbers.crossings}"
        )

    def _leave(self, text: str) -> None:
        """Add a text about something that the search leaves out, unless it was added before."""
        if text not in self._reported:
            self._reported.add(text)
            self.left_out.append(text)

    def rest(self, rows: dict[int, Row], base: Variant, begun: Sequence[Variant]) -> None:
        """Run the remaining steps for candidates, and add each new graph to ``rows``.

        If the graph is known, its row notes the candidate's name (``same``). Candidates beyond the time limit are not
        run.

        Args:
            rows: the candidates so far, by the index of their graph; changed in place.
            base: the recipe.
            begun: variants of it to continue, each with all types of inputs and outputs and all fused operators to be
                tried; empty: only the recipe itself.
        """
        done = {name for row in rows.values() for name in (row.variant.name, *row.same)}
        for start in begun or [base]:
            forms = [form for one in half_io(start, self._ways.io) for form in fused(one, self._ways.asked)]
            for one in forms if begun else forms[:1]:
                if begun and (one.name in done or self._over(one.name)):
                    continue
                at = self._tree.reach(make_plan(one.recipe))
                if at not in rows:
                    refused = self._tree.states[at].refused
                    numbers, free = (None, ()) if refused else self._tree.figures(at)
                    rows[at] = Row(one, numbers, refused, free)
                elif one.name not in (rows[at].variant.name, *rows[at].same):
                    rows[at].same.append(one.name)
