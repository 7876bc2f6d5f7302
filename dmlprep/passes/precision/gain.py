"""Measure what FP16 gains, in size of weights and in operations, for single nodes and for converted models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import onnx_ir as ir

from dmlprep.directml.placement.place import nbytes
from dmlprep.directml.targets.building import build
from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.directml.targets.flops import flops
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.random_ops import RANDOM
from dmlprep.graph.model.walk import nodes, tensors
from dmlprep.passes.precision.fp16 import WIDE
from dmlprep.passes.precision.types import solve_types
from dmlprep.passes.precision.view import UNTYPED
from dmlprep.portable.shares import percent
from dmlprep.record.steps import StepFacts

_HALF = (ir.DataType.FLOAT16,)


@dataclass(frozen=True)
class Gain:
    """The gain of a converted model from FP16.

    Attributes:
        saved: share of the size of the weights that FP16 saves, from 0 to 0.5, in the file or in a session of ONNX
            Runtime: the larger of the two.
        nbytes: size of the weights in a session, which folds constants, in bytes.
        quantised: size of those weights that have integer types of at most 8 bits, in bytes.
        half, single: number of floating-point operations in FP16, and in FP32 or wider types.
    """

    saved: float
    nbytes: int
    quantised: int
    half: int
    single: int

    @property
    def mostly_quantised(self) -> str:
        """A clause for messages if more than half of the weights' size is quantised already; otherwise empty."""
        if 2 * self.quantised <= self.nbytes:
            return ""
        return (
            f"; {percent(self.quantised / self.nbytes, 0)} of the bytes are quantised to 8 bits or less already, which "
            "FP16 cannot halve"
        )

    @property
    def in_fp32(self) -> float:
        """Share of the floating-point operations that stay in FP32 or wider types, from 0 to 1."""
        return self.single / (self.half + self.single) if self.single else 0.0


def gained(model: Model, frozen: Frozen | None = None) -> Gain:
    """Measure and return the gain of a converted model from its parts in FP16.

    ``frozen`` is the frozen form of this model, if it exists; it saves time.
    """
    built = build(model.ir, Knowledge.swept(model.ir, frozen))
    stored = [(t.dtype, t.nbytes) for t in {id(tensor): tensor for tensor in tensors(model.ir)}.values()]
    held = [(value.dtype, nbytes(value) or 0) for value in _held(built) if value.dtype is not None]
    quantised = sum(count for dtype, count in held if dtype.is_integer() and dtype.bitwidth <= 8)
    types = solve_types(model.ir)
    operations = _operations(built)
    done = {True: 0, False: 0}
    for node in nodes(model.ir):
        kinds = [kind.dtype for v in node.outputs if isinstance(kind := types.get(v), ir.TensorType)]
        first = next((kind for kind in kinds if kind in WIDE or kind in _HALF), None)
        if node.op_type not in UNTYPED and first is not None:
            done[first in WIDE] += operations(node)
    return Gain(max(_saved(stored), _saved(held)), sum(count for _, count in held), quantised, done[False], done[True])


def _saved(weights: Sequence[tuple[ir.DataType, int]]) -> float:
    """The saved share of the size that the weights would have if those in FP16 were in FP32.

    ``weights``: pairs of type and size in bytes.
    """
    halved = sum(count for dtype, count in weights if dtype in _HALF)
    full = halved + sum(count for _, count in weights)
    return halved / full if full else 0.0


def _held(built: GraphFacts) -> Iterable[Value]:
    """The constants that a session of ONNX Runtime has in memory, after it folds nodes with constant inputs only.

    A session does not fold DequantizeLinear.
    """
    folded: set[int] = set()
    held: dict[int, Value] = {}
    for node in built.all_nodes():
        constants = [v for v in node.inputs if v is not None and (v.constant or id(v) in folded)]
        if len(constants) == sum(v is not None for v in node.inputs) and not (
            node.subgraphs or node.op in RANDOM or node.op == "DequantizeLinear"
        ):
            folded.update(map(id, filter(None, node.outputs)))
        else:
            held |= {id(v): v for v in constants}
    return held.values()


def gain_by_node(model: Model) -> Callable[[ir.Node], float]:
    """Return a function that estimates the possible gain of a node from FP16.

    The estimate is the sum of the node's shares of the model's operations, elements of weights, and number of nodes.
    """
    operations = _operations(build(model.ir, Knowledge.swept(model.ir)))
    every = [n for n in nodes(model.ir) if n.op_type != "Constant"]
    work = max(1, sum(map(operations, every)))
    weights = max(1, sum(map(_weights, every)))
    return lambda node: operations(node) / work + _weights(node) / weights + 1 / len(every)


def _weights(node: ir.Node) -> int:
    """Number of elements of the weights that a node reads; a weight counts in full for each of its readers."""
    return sum(v.const_value.size for v in node.inputs if v is not None and v.const_value is not None)


def _operations(built: GraphFacts) -> Callable[[ir.Node], int]:
    """Return a function that counts the floating-point operations of a node.

    If the node's shapes are unknown, two operations for each element of its weights are counted.
    """
    known = {facts.ir: flops(facts) for graph in built.all_graphs() for facts in graph.nodes}

    def of(node: ir.Node) -> int:
        count = known.get(node, 0)
        return 2 * _weights(node) if count is None else count

    return of


_LEAST_SAVED, _MOST_IN_FP32 = 0.1, 0.5
"""Limits of ``little_gain``: the least share of the weights' size that FP16 must save, and the largest share of
operations that may stay in FP32."""

_FEW_BYTES, _FEW_OPERATIONS = 4096, 10_000
"""Size of all weights in bytes, and number of operations, below which a small gain is not reported."""


def little_gain(gain: Gain) -> str:
    """The reason, as a clause, why FP16 gains almost nothing; empty if it gains enough, or if the model is tiny."""
    counts = gain.nbytes >= _FEW_BYTES, gain.half + gain.single >= _FEW_OPERATIONS
    if not (counts[0] and gain.saved < _LEAST_SAVED) and not (any(counts) and gain.in_fp32 > _MOST_IN_FP32):
        return ""
    return (
        f"FP16 saves {percent(gain.saved)} of the bytes of the weights, but {percent(gain.in_fp32)} of the "
        "floating-point operations stay in FP32"
    )


def smaller_question(facts: StepFacts, tolerance: float) -> str:
    """Return advice for a refused FP16 model, as the text of a fix.

    It names up to three outputs that miss the ``tolerance``, and a larger tolerance that needs few nodes in FP32.
    Without such outputs in ``facts``, or without a search, it names an FP32 recipe only.
    """
    otherwise = "prepare the model with an FP32 recipe such as @static-fp32"
    outputs = {name: inf if error is None else error for name, error in facts.outputs_in_fp16.items()}
    off = sorted((name for name, error in outputs.items() if error > tolerance), key=lambda name: -outputs[name])
    if not off:
        return otherwise
    trials = [(inf if trial.error is None else trial.error, trial.kept_nodes) for trial in facts.trials]
    most = max(count for _, count in trials)
    error, fp32_count = min((error, count) for error, count in trials if 2 * count <= most)
    beyond = "overflows, or its shape or rows differ"
    texts = [f"{n!r} is off by {outputs[n]:.2g}" if isfinite(outputs[n]) else f"{n!r} {beyond}" for n in off[:3]]
    worst = ", ".join(texts)
    if not isfinite(error):
        return f"with everything in FP16 {worst}, and no tolerance accepts that: {otherwise}"
    rest = f", the other {len(outputs) - len(off)} outputs meet {tolerance:g}" if len(outputs) > len(off) else ""
    # A tolerance for an error of the whole range would accept anything.
    fields = "step.fp16.tolerance, and parity.tolerance if that is lower"
    wider = f"a tolerance of {1.05 * error:.2g} needs at most {fp32_count} nodes in FP32 ({fields}); or "
    return (
        f"relax the proof: with everything in FP16 {worst}{rest}; {wider if error < 1 else ''}use your "
        f"own measure (--metric), pass your own feeds (--feeds), or {otherwise}"
    )
