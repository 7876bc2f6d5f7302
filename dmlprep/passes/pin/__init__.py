"""The pin step: fix sizes of free dimensions and values of inputs, and fold the constants that follow from them."""

from __future__ import annotations

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.core.text.shell import command_line
from dmlprep.graph.analysis.flow import deciding_inputs
from dmlprep.graph.analysis.shapes import Inference, refuse_wrong_types, write_types
from dmlprep.graph.model import Model
from dmlprep.graph.model.dims import with_dims
from dmlprep.graph.model.pinned import Value
from dmlprep.graph.rewriting.functions import inline_functions
from dmlprep.graph.rewriting.unread import remove_dead
from dmlprep.passes.base import Context, Fact, Options, Pass
from dmlprep.passes.pin import rewrite
from dmlprep.passes.pin.branches import inline_branches
from dmlprep.passes.pin.rewrite import check_names, pin_values, value_shapes
from dmlprep.passes.pin.sizes import Sizes, input_dims, report_dynamic, resolve
from dmlprep.record.steps import Inlined

__all__ = ["PinOptions", "PinPass"]

# Functions that use these operators are inlined: calls with different shapes share a function, and the condition of an
# If may be constant in one call only.
_SHAPE_READERS = frozenset({("", "Shape"), ("", "Size")})
_BRANCHES = frozenset({("", "If")})


class PinOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``pin``.

    Attributes:
        sizes: map from a dimension's name (``batch``), or an input and axis (``pixel_values:0``), to its size.
        shapes: map from an input to its whole shape.
        values: map from an input to its fixed value: a number, a truth value, a text, or lists of them.
        drop: remove inputs that get a value. By default such inputs stay, but no node reads them.
        require_static: refuse a model in which any shape stays dynamic.
    """

    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)
    values: dict[str, Value] = msgspec.field(default_factory=dict)
    drop: bool = False
    require_static: bool = False


class PinPass(Pass[PinOptions]):
    """Pin sizes and values, infer every shape again, and fold the arithmetic that became constant."""

    name = "pin"
    summary = "fix sizes of free dimensions and values of inputs, infer all shapes again and fold shape arithmetic"
    options_type = PinOptions
    bound = "rounding"  # with fixed shapes ONNX Runtime fuses more nodes, and rounds differently

    def promises(self) -> frozenset[Fact]:
        """Return the fact ``static`` if ``require_static`` is set; otherwise an empty set."""
        return frozenset({"static"}) if self.options.require_static else frozenset()

    def keeps_input(self, name: str) -> bool:
        """Return whether the input ``name`` exists after the step: false if the step drops it."""
        return not (self.options.drop and name in self.options.values)

    def run(self, model: Model, context: Context) -> bool:
        """Pin ``model`` in place, and return whether it changed.

        Raises:
            UsageError: DP203 unknown dimension or input, DP204 contradictory sizes or values, DP208 a value that does
                not fit; without a code: a size out of range.
            ModelRefused: DP202 the graph contradicts a size, DP201 a shape stays dynamic with ``require_static``,
                DP003 an output is declared with a wrong type.
        """
        before = context.before or model.snapshot()
        context.facts.constants_that_were_inputs = rewrite.constants_no_inputs(model.ir)
        options = self.options
        check_names(model.ir, options.values, options.drop)
        inlined = inline_functions(model, _SHAPE_READERS | _BRANCHES if options.values else _SHAPE_READERS)
        shapes = {**value_shapes(model.ir.graph, options.values), **options.shapes}
        sizes, unranked = resolve(model.ir.graph, options.sizes, shapes)
        _set_inputs(model.ir.graph, sizes, unranked)
        context.facts.values = pin_values(model.ir, options.values, options.drop, context)
        try:
            known = Inference.of(model.ir, sizes.by_name)
        except ModelRefused as error:
            settings = ", ".join(f"{k}={v}" for k, v in {**options.sizes, **options.shapes}.items())
            fix = _way_out(model.ir, settings) if error.code == "DP202" else error.fix
            raise ModelRefused(error.what, where=error.where, code=error.code, fix=fix) from error
        branches = inline_branches(model.ir, known)
        _note_corrections(model.ir.graph, known, sizes, context)
        rewrite.put_targets(model.ir, known)
        rewrite.put_constants(model.ir, known, model.statistics().nbytes, model.budget)
        removed = remove_dead(model.ir)
        write_types(model.ir, known)
        dynamic = report_dynamic(model.ir, known, context)
        context.facts.pinned = dict(sorted(sizes.named.items())) | {
            f"{name}:{axis}": size for (name, axis), size in sorted(sizes.placed.items())
        }
        context.facts.inlined = Inlined(inlined, branches)
        context.facts.nodes_removed = removed
        context.facts.static = not dynamic
        if dynamic and self.options.require_static:
            text = dynamic[0] + (f" (and {len(dynamic) - 1} more)" if len(dynamic) > 1 else "")
            fix = "pin the free dimensions; if a shape depends on data, remove require_static"
            raise ModelRefused(text, code="DP201", fix=fix)
        context.after = model.snapshot()
        return not before.same_as(context.after)


def _way_out(model: ir.Model, settings: str) -> str:
    """Return the text of a fix for ``settings``, the user's sizes, which contradict the graph."""
    if not settings:
        return "export the model again: its shapes contradict each other"
    fix = f"the graph contradicts {settings}: pin the sizes that it was exported with, "
    fix += "or export it with this dimension dynamic"
    pins = " ".join(command_line("--pin", f"{name}:={value}") for name, value in deciding_inputs(model).items())
    return f"{fix}; if an unused branch causes this, pin the value that selects it: {pins}" if pins else fix


def _set_inputs(graph: ir.Graph, sizes: Sizes, unranked: dict[str, list[int]]) -> None:
    dims = input_dims(graph)
    for value in graph.inputs:
        name = value.name or ""
        if name in unranked:
            value.shape = ir.Shape(unranked[name])
        dimensions = dims.get(name)
        if not dimensions or value.shape is None:
            continue
        new = [sizes.of(d) if sizes.of(d) is not None else (d.name or None) for d in dimensions]
        value.shape = with_dims(value.shape, new)


def _note_corrections(graph: ir.Graph, known: Inference, sizes: Sizes, context: Context) -> None:
    """Report graph outputs that are declared with another shape than they have (DP206).

    The CPU runs such a model with a warning; DirectML fails on it. The declarations are not changed here.

    Raises:
        ModelRefused: DP003, an output is declared with a wrong type.
    """
    refuse_wrong_types(graph, known)
    for value in graph.outputs:
        dims, old = known.dims(value), value.shape
        if dims is None or old is None:
            continue
        declared = [d if isinstance(d, int) else sizes.by_name(d.value or "") for d in old]
        wrong = len(declared) != len(dims) or any(
            isinstance(d, int) and s is not None and s >= 0 and s != d for d, s in zip(dims, declared, strict=True)
        )
        if wrong and value not in known.assumed:
            shown = [str(d) if isinstance(d, int) else d.value or "?" for d in old]
            inferred = ["?" if d is None else str(d) for d in dims]
            text = f"output {value.name} was declared [{', '.join(shown)}], but is [{', '.join(inferred)}]"
            context.report("DP206", text, node=value.name or "", declared=shown, inferred=inferred)
