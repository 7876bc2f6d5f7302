"""Find the smallest set of nodes to keep in FP32 so that the FP16 emulation meets a tolerance.

The search starts with nodes whose results exceed 65504 in the range profile, and their readers. If that is not enough,
it adds the nodes where the error starts. If that fails, it keeps blocks of the model instead (``releases``). Nodes that
are only suspected are then released again, if the tolerance allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import graphs, join_path, label, nodes_by_path
from dmlprep.passes.precision.convert.constants import from_big_constant
from dmlprep.passes.precision.convert.plan import COMPRESSES
from dmlprep.passes.precision.convert.squares import lone_roots
from dmlprep.passes.precision.fp16 import FP16_MAX
from dmlprep.passes.precision.gain import gain_by_node
from dmlprep.passes.precision.search.blocks import Block
from dmlprep.passes.precision.search.contribution import Growth, error_growth
from dmlprep.passes.precision.search.origins import around, origins
from dmlprep.passes.precision.search.profile import Range, profile
from dmlprep.passes.precision.search.releases import release
from dmlprep.passes.precision.search.trials import Convert, Feeds, Setting, Trial, Trials, keep_nodes_lines
from dmlprep.portable.shares import percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dmlprep.graph.model.runner import Runner

__all__ = ["Islands", "Setting", "Trial", "find_islands"]

_HOPS = 3
"""The most nodes to go back from a visible error to its cause: a sum, a node that moves it, and one that rounds it."""

_LOST = 0.01
"""The search reports the share of a node's values below FP16's normal range if it is above this share."""

_SATURATES = frozenset({"Tanh", "Sigmoid", "Erf", "Atan", "Sign", "Softsign", "HardSigmoid", "Clip", "Min", "Max"})
"""Operators that may give the same result for infinity as for a large number: their inputs may not need FP32."""

_MAY_HIDE = _SATURATES | frozenset(
    {"Div", "Reciprocal", "Exp", "Softmax", "Where", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "ArgMax",
     "ArgMin", "TopK", "Slice", "Gather", "Relu", "LeakyRelu", "Elu", "Selu", "Softplus"}
)  # fmt: skip
"""Operators whose result may be right although an operand is infinite."""


@dataclass
class Islands:
    """The result of an island search. The place of a node is its name, in a subgraph with the path before it.

    Attributes:
        met: whether the result meets the tolerance.
        error: error of the result (see ``metrics.output_error``); if the tolerance is not met, the smallest error of
            all trials.
        tolerance: the largest accepted error: that of the step, or the proof's bound if that is smaller.
        keep: place of each node to keep in FP32 -> why, with numbers.
        follow: place of each further node that computes in FP32 because of those -> why. Recipes need not name them.
        inside: places in ``keep`` whose nodes the conversion merges into other nodes (a square into a sum of squares).
        whole: whether no node computes in FP16 any more, so that FP16 has no gain.
        trials: the runs of the emulation, in order.
        blocks: blocks that the search tried in FP16: name, number of nodes, and the error of that trial.
        outputs: error of each output with no node kept by the search; empty if the journal had that trial.
        seconds: duration of the search.
        ranges: the range profile; empty if it was not needed.
    """

    met: bool
    error: float
    tolerance: float
    keep: dict[str, str] = field(default_factory=dict)
    follow: dict[str, str] = field(default_factory=dict)
    inside: frozenset[str] = frozenset()
    whole: bool = False
    trials: list[Trial] = field(default_factory=list)
    blocks: list[tuple[str, int, float]] = field(default_factory=list)
    outputs: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    ranges: dict[str, Range] = field(default_factory=dict)

    @property
    def computing(self) -> dict[str, str]:
        """Place of every node that computes in FP32 because of the search -> why."""
        return {name: why for name, why in (self.keep | self.follow).items() if name not in self.inside}

    def recipe_lines(self) -> str:
        """The option ``keep_nodes`` as TOML, with which the fp16 step gives this result without a search."""
        return keep_nodes_lines(self.keep)


def find_islands(model: Model, convert: Convert, runner: Runner, feeds: Iterable[Feeds], setting: Setting) -> Islands:
    """Search for the smallest set of nodes that must stay in FP32; ``model`` is unchanged.

    Args:
        model: the FP32 model.
        convert: converts a copy of the model to FP16 as the final conversion does, except the nodes that it is passed.
        runner: runs models.
        feeds: inputs by name, one mapping for each run; the worst run counts.

    Raises:
        ModelRefused: the model does not run in FP32, or does not convert.
        InputError: ``setting.journal`` cannot be read, or is another kind of file.
    """
    with model.held():
        return _Search(Trials(model, convert, runner, list(feeds), setting)).run()


class _Search:
    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.model = trials.model
        self.ranges: dict[str, Range] = {}
        self.in_fp32: dict[str, None] = {}
        self.blocks: list[Block] = []
        self.loose: list[str] = []  # kept on suspicion: candidates for the reduction

    def run(self) -> Islands:
        trials = self.trials
        if trials.meets(()):
            return self._fewer() or self._islands(True, trials.measure(()))
        self.in_fp32 = trials.computing(())
        self.ranges = self._profile()
        reasons = _beyond_range(self.model, self.ranges, self.in_fp32)
        enough: dict[str, str] | None = reasons
        if reasons and trials.remaining > 0 and trials.meets(reasons):
            self.loose = _doubtful(self.model, reasons)
        else:
            enough = self._by_origin(reasons) or self._by_blocks(reasons)
        if enough is None:
            return self._islands(False, min((t.error for t in trials.done), default=float("inf")))
        return self._result(self._reduced(enough))

    def _fewer(self) -> Islands | None:
        """Look for a result that keeps roots of means of squares by name, so that the conversion saves a node each.

        The policy keeps these nodes anyway; a node kept by name is rewritten as a sum of squares. Only roots whose
        squares exceed FP16's range count.

        Returns:
            the result; ``None`` if there is no such root, or if the tolerance is not met.
        """
        roots = lone_roots(self.model)
        if not roots or self.trials.remaining < 1:
            return None
        self.in_fp32 = self.trials.computing(())
        roots = [root for root in roots if all(label(n) in self.in_fp32 for n in root)]
        self.ranges = self._profile() if roots else {}
        reasons: dict[str, str] = {}
        for square, mean, add in roots:
            maker = square.inputs[0].producer() if square.inputs[0] is not None else None
            if maker is not None and label(maker) in self.in_fp32:
                continue  # the value before the square is itself in FP32
            measured = self.ranges.get(square.outputs[0].name or "")
            if measured is not None and measured.overflows:
                name = label(square)
                reasons[name] = f"{name} reaches {measured.peak:.2g}, above {FP16_MAX:g}"
                reasons |= {label(n): f"it reads {name}, which reaches {measured.peak:.2g}" for n in (mean, add)}
        if not reasons or not self.trials.meets(reasons):
            return None
        return self._result(reasons)

    def _result(self, reasons: dict[str, str]) -> Islands:
        now = self.trials.computing(reasons)
        why = "the converter keeps it in FP32 together with other nodes"
        follow = {name: why for name in now if name not in self.in_fp32 and name not in reasons}
        inside = frozenset(reasons.keys() - now.keys())
        every = {join_path(path, label(n)) for path, graph in graphs(self.model.ir) for n in graph if _floats(n)}
        whole = bool(reasons) and every <= now.keys() | inside
        error = self.trials.measure(reasons)
        return self._islands(True, error, keep=reasons, follow=follow, inside=inside, whole=whole)

    def _islands(self, met: bool, error: float, **fields: Any) -> Islands:
        trials = self.trials
        return Islands(
            met,
            error,
            trials.tolerance,
            trials=trials.done,
            blocks=[(one.name, len(one.places), one.error or 0.0) for one in self.blocks],
            outputs=trials.by_output,
            seconds=trials.seconds,
            ranges=self.ranges,
            **fields,
        )

    def _profile(self) -> dict[str, Range]:
        trials = self.trials

        def measured() -> list[dict[str, object]]:
            ranges = profile(self.model, trials.runner, trials.feeds, progress=trials.say)
            return [asdict(one) | {"key": key} for key, one in ranges.items()]

        rows = trials.remember("ranges", (), measured)
        return {row["key"]: Range(**{k: v for k, v in row.items() if k != "key"}) for row in rows}

    def _growth(self, keep: Mapping[str, str]) -> dict[str, Growth]:
        trials = self.trials

        def measured() -> dict[str, list[float]]:
            converted, rounding = trials.converted(keep), trials.setting.rounding
            growth = error_growth(self.model, converted, trials.runner, trials.feeds, rounding, trials.say)
            return {name: list(one) for name, one in growth.items()}

        return {name: Growth(*row) for name, row in trials.remember("growth", sorted(keep), measured).items()}

    def _by_origin(self, base: dict[str, str]) -> dict[str, str] | None:
        """Add to ``base`` the nodes where the error starts and, while that is not enough, the nodes before them.

        Returns:
            the nodes to keep, with reasons; ``None`` if the tolerance is not met.
        """
        keep, loose = dict(base), list[str]()
        tried: dict[str, int] = {}
        growth: dict[str, Growth] = {}
        error = float("inf")
        for _ in range(2 * _HOPS):
            if self.trials.remaining < 1:
                return None
            before, error = error, self.trials.measure(keep)
            # If the last kept nodes changed no output, the errors start where they did. One measurement takes longer
            # than several trials.
            growth = growth if growth and error == before else self._growth(keep)
            starts = origins(self.model, growth, self.trials.tolerance)
            added: dict[str, str] = {}
            for name in starts:
                while (hops := tried.get(name, 0) + 1) <= _HOPS:
                    tried[name] = hops
                    more = [p for p in around(self.model, name, hops) if p not in keep and p not in self.in_fp32]
                    added |= {place: _grows(name, growth[name], place) for place in more}
                    if more:
                        break
            if not added:
                return None
            keep |= added
            loose += added
            if self.trials.meets(keep):
                self.loose = [*_doubtful(self.model, base), *loose]
                return keep
        return None

    def _by_blocks(self, base: dict[str, str]) -> dict[str, str] | None:
        """Add to ``base`` the blocks of the model that the tolerance needs in FP32 (see ``releases``).

        Returns:
            the nodes to keep, with reasons; ``None`` if not a single block could be released.
        """
        places = [join_path(path, label(n)) for path, graph in graphs(self.model.ir) for n in graph]
        free = [place for place in places if place not in base and place not in self.in_fp32]
        released = release(self.trials, base, free, gain_by_node(self.model))
        self.blocks = released.tried
        if not released.met:
            return None
        error = self.trials.measure([*base, *released.remaining])
        return base | {p: released.why(one, error, "FP16") + self._lost(p) for p, one in released.remaining.items()}

    def _lost(self, place: str) -> str:
        small = max((one.small for one in self.ranges.values() if one.node == place), default=0.0)
        return f"; {percent(small, 0)} of its values are below FP16's normal range" if small > _LOST else ""

    def _reduced(self, keep: dict[str, str]) -> dict[str, str]:
        """Return ``keep`` without the nodes that the tolerance does not need in FP32.

        Only suspected nodes are tried: all together, then halves, then quarters, down to single nodes.
        """
        loose = [name for name in self.loose if name in keep]
        size = len(loose)
        while size and loose and self.trials.remaining > 0:
            for start in range(0, len(loose), size):
                piece = set(loose[start : start + size])
                without = {name: why for name, why in keep.items() if name not in piece}
                if piece and self.trials.remaining > 0 and self.trials.meets(without):
                    keep = without
            loose = [name for name in loose if name in keep]
            size //= 2
        return keep


def _floats(node: ir.Node) -> bool:
    known = [v.dtype for v in node.outputs if v.dtype is not None]
    constant = node.op_type in ("Constant", "Cast", "If", "Loop", "Scan")
    return not constant and (not known or any(dtype.is_floating_point() for dtype in known))


def _grows(origin: str, growth: Growth, place: str) -> str:
    before = max(0.0, growth.result - growth.grown)
    text = f"the error grows from {before:.2g} to {growth.result:.2g}" if growth.result < 1e29 else "the error starts"
    return f"{text} at this node" if place == origin else f"{text} at {origin}, which depends on this node"


def _beyond_range(model: Model, ranges: Mapping[str, Range], in_fp32: Iterable[str]) -> dict[str, str]:
    """The places of the nodes whose results exceed FP16's range, and of the readers of these results -> why.

    Nodes that are in FP32 anyway are left out, and so are masks, which the converter lowers.
    """
    already = set(in_fp32)
    reasons: dict[str, str] = {}
    where = {id(node): join_path(path, label(node)) for path, graph in graphs(model.ir) for node in graph}
    for path, graph in graphs(model.ir):
        for node in graph:
            name = where[id(node)]
            for value in node.outputs:
                measured = ranges.get(join_path(path, value.name or ""))
                # a mask is not an activation: the converter lowers it
                if measured is None or not measured.overflows or from_big_constant(value):
                    continue
                if name not in already:
                    reasons[name] = f"{name} reaches {measured.peak:.2g}, above {FP16_MAX:g}"
                for reader in value.consumers():
                    if _needs_range(reader, is_kept=name in reasons) and (other := where[id(reader)]) not in already:
                        reasons.setdefault(other, f"it reads {value.name}, which reaches {measured.peak:.2g}")
    return reasons


def _needs_range(reader: ir.Node, *, is_kept: bool) -> bool:
    """Return whether the reader of a value beyond FP16's range must be named to stay in FP32.

    False for casts and shapes, and for operators that the converter keeps in FP32 itself.
    """
    if reader.op_type in ("Cast", "Shape", "Size"):
        return False
    # if the user keeps the node before them, the converter computes these before the cast to FP16
    return not (is_kept and reader.op_type in COMPRESSES)


def _doubtful(model: Model, reasons: Mapping[str, str]) -> list[str]:
    """The nodes among ``reasons`` that may not need FP32, because they or their readers may hide an infinite value."""
    return [
        name
        for name, node in nodes_by_path(model.ir).items()
        if name in reasons
        and any(n.op_type in _MAY_HIDE for n in (node, *(r for v in node.outputs for r in v.consumers())))
    ]
