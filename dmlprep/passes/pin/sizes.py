"""Match the user's sizes with the dimensions of inputs, and report which shapes stay dynamic, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.graph.analysis.knowledge import Known, is_static
from dmlprep.graph.analysis.polynomial import ANONYMOUS, Expression, parse, solve
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.passes.base import Context
from dmlprep.portable.bounds import MOST_SIZE

_DATA_DEPENDENT = {
    "NonMaxSuppression": "the number of selected boxes depends on the scores",
    "NonZero": "the number of nonzero elements depends on the data",
    "Unique": "the number of distinct values depends on the data",
    "Compress": "the number of selected elements depends on the condition",
    "TopK": "its k is computed from data",
    "Resize": "its sizes or scales are computed from data",
    "Upsample": "its scales are computed from data",
    "Tile": "its repeats are computed from data",
    "Pad": "its pads are computed from data",
    "If": "its branches return different shapes",
    "Loop": "a size grows in each iteration, or the number of iterations depends on the data",
    "Scan": "its body gives a dynamic shape",
    "OneHot": "its depth is computed from data",
    "Split": "its sizes are computed from data",
    "SequenceAt": "a sequence's elements might differ in shape",
    "StringSplit": "the number of parts depends on the data",
    "DFT": "its length is computed from data",
    **dict.fromkeys(("ConstantOfShape", "Expand", "Reshape", "CenterCropPad"), "its shape is computed from data"),
    **dict.fromkeys(("Range", "Slice"), "its bounds are computed from data"),
    **dict.fromkeys(("BlackmanWindow", "HannWindow", "HammingWindow"), "its size is computed from data"),
    **dict.fromkeys(
        ("SplitToSequence", "ConcatFromSequence", "SequenceConstruct", "SequenceEmpty"), "a sequence has no size"
    ),
}
_MOST = 20


@dataclass(frozen=True)
class InputDim:
    """One dimension of one input.

    Attributes:
        size: its size; ``None`` if it is free.
        name: its name; empty without a name.
        spelled: the text in the file, even if that is not a name (``None``, ``?``).
    """

    input: str
    axis: int
    size: int | None
    name: str
    spelled: str = ""

    @property
    def key(self) -> str:
        """The dimension as users write it by input and axis: ``pixel_values:0``."""
        return f"{self.input}:{self.axis}"


@dataclass
class Sizes:
    """Sizes of dimensions: by name (``named``), and by input and axis (``placed``) for dimensions without a name."""

    named: dict[str, int] = field(default_factory=dict)
    placed: dict[tuple[str, int], int] = field(default_factory=dict)

    def of(self, dim: InputDim) -> int | None:
        """The size of a dimension; ``None`` if it stays free."""
        if dim.size is not None:
            return dim.size
        return self.by_name(dim.name) if dim.name else self.placed.get((dim.input, dim.axis))

    def by_name(self, name: str) -> int | None:
        """The size of a dimension name, or of an expression over names (``past + seq``); ``None`` if it is unknown."""
        if name in ANONYMOUS:
            return None
        if name in self.named:
            return self.named[name]
        expression = parse(name)
        return expression.value(self.named) if expression is not None else None


def input_dims(graph: ir.Graph) -> dict[str, list[InputDim] | None]:
    """Map from each graph input that is not an initializer to its dimensions; ``None`` if the rank is unknown."""

    def dimension(name: str, axis: int, dim: int | ir.SymbolicDim) -> InputDim:
        size = dim if isinstance(dim, int) and dim >= 0 else None
        text = "" if isinstance(dim, int) else (dim.value or "")
        return InputDim(name, axis, size, "" if text in ANONYMOUS else text, text)

    return {
        name: None if shape is None else [dimension(name, axis, dim) for axis, dim in enumerate(shape)]
        for name, shape in {v.name or "": v.shape for v in graph.inputs if v.name not in graph.initializers}.items()
    }


def resolve(
    graph: ir.Graph, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Sizes, dict[str, list[int]]]:
    """Match the user's sizes with the dimensions of the inputs. The graph is unchanged.

    Args:
        sizes: map from a dimension's name (``batch``), or an input and axis (``pixel_values:0``), to its size.
        shapes: map from an input to its whole shape; the only way to size an input of unknown rank.

    Returns:
        the sizes, with those that follow from expressions; and the shapes of inputs of unknown rank.

    Raises:
        UsageError: DP203, a key names no dimension, or the input has an unknown rank. DP204, sizes contradict each
            other or the model. Without a code, a size is out of range.
    """
    model = ModelDims(input_dims(graph), graph)
    result = Sizes()
    unranked: dict[str, list[int]] = {}
    for name, shape in (shapes or {}).items():
        dims = model.dims.get(name, ())
        if dims is None:
            unranked[name] = [_size(f"{name}:{axis}", size) for axis, size in enumerate(shape)]
            continue
        if name not in model.dims:
            raise model.unknown(name)
        if len(dims) != len(shape):
            text, fix = f"{name} has {len(dims)} dimensions, {len(shape)} sizes are set", _listed(dims)
            raise UsageError(text, where=f"shape of {name}", code="DP204", fix=f"its dimensions are {fix}")
        for dim, size in zip(dims, shape, strict=True):
            _place(result, dim, _size(dim.key, size), dim.key)
    for key, size in sizes.items():
        _size(key, size)
        if key in model.names:
            _name(result, key, size, key)
        elif spelled := model.spelled(key):
            for dim in spelled:
                _place(result, dim, size, key)
        else:
            _place(result, model.find(key), size, key)
    _follow(result, model.expressions)
    return result, unranked


class ModelDims:
    """The dimensions of a model's inputs, to match the user's keys with, and to list in messages."""

    def __init__(self, dims: dict[str, list[InputDim] | None], graph: ir.Graph) -> None:
        self.dims = dims
        self.graph = graph
        named = [d.name for ds in dims.values() for d in ds or () if d.name]
        self.expressions = {name: e for name in dict.fromkeys(named) if (e := parse(name)) is not None}
        # ``past_plus_seq`` is also a plain name: its parts count as names only where an exporter wrote signs.
        signed = [p for name, e in self.expressions.items() if "_plus_" not in name for p in e.names]
        self.names = dict.fromkeys([*named, *signed])

    def spelled(self, key: str) -> list[InputDim]:
        """The free dimensions that have the placeholder ``key`` (such as ``None``) as text; empty for other keys.

        A user's ``None=SIZE`` sets all of them.
        """
        if key not in ANONYMOUS or not key:
            return []
        return [d for ds in self.dims.values() for d in ds or () if d.spelled == key and d.size is None]

    def find(self, key: str) -> InputDim:
        """Return the dimension with the key ``INPUT:AXIS``; a negative axis counts from the end.

        Raises:
            UsageError: DP203, there is no such dimension, or the rank of the input is unknown.
        """
        name, colon, axis = key.rpartition(":")
        if not colon or name not in self.dims:
            raise self.unknown(key)
        dims = self.dims[name]
        if dims is None:
            raise _wrong(
                key, f"the rank of {name} is unknown", f"set its whole shape: shapes.{name} = [sizes of all axes]"
            )
        try:
            index = int(axis)
        except ValueError:
            raise self.unknown(key) from None
        if not -len(dims) <= index < len(dims):
            raise _wrong(key, f"{name} has no axis {index}", f"its dimensions are {_listed(dims)}")
        return dims[index]

    def unknown(self, key: str) -> UsageError:
        """Return the error DP203 for a key that names no dimension of an input; its fix names a close key, if any."""
        from difflib import get_close_matches

        base = key.rpartition(":")[0] or key
        if base in self.graph.initializers:
            return _wrong(key, f"{base!r} is a constant of the model, so its size is fixed", "pin inputs only")
        outputs = {str(d.value) for v in self.graph.outputs for d in v.shape or () if not isinstance(d, int)}
        if key in outputs:
            text = f"{key!r} is a dimension of outputs only: its size follows from the inputs"
            return _wrong(key, text, f"the model has {self.listed()}")
        words = [*self.names, *(d.key for ds in self.dims.values() for d in ds or ())]
        close = get_close_matches(key, words, 1, 0.6)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return _wrong(key, f"the model has no dimension {key!r}", f"{hint}the model has {self.listed()}")

    def listed(self) -> str:
        """A text with all inputs and their dimensions; long lists are shortened."""
        texts = [f"{n}: {_listed(ds) if ds is not None else 'unknown rank'}" for n, ds in self.dims.items()]
        return "; ".join(texts[:12]) + (f"; and {len(texts) - 12} more inputs" if len(texts) > 12 else "")


def _listed(dims: Sequence[InputDim]) -> str:
    return "[" + ", ".join(str(d.size) if d.size is not None else d.name or f"({d.key})" for d in dims) + "]"


def _size(key: str, size: int) -> int:
    if not 0 <= size <= MOST_SIZE:
        raise _wrong(key, f"{size} is not a size of a dimension", f"set a whole number from 0 to {MOST_SIZE}", "")
    return size


def _wrong(key: str, what: str, fix: str, code: str = "DP203") -> UsageError:
    return UsageError(what, where=f"pin {key}", code=code, fix=fix)


def _clash(where: str, name: str, one: int, other: int) -> UsageError:
    return _wrong(where, f"{name} has two sizes: {one} and {other}", "set one size", "DP204")


def _name(result: Sizes, name: str, size: int, where: str) -> None:
    if result.named.setdefault(name, size) != size:
        raise _clash(where, repr(name), result.named[name], size)


def _place(result: Sizes, dim: InputDim, size: int, where: str) -> None:
    if dim.size is not None:
        if dim.size != size:
            text = f"{dim.key} is fixed to {dim.size} by the model and cannot be {size}"
            raise _wrong(where, text, "export the model with this dimension dynamic", "DP204")
    elif dim.name:
        _name(result, dim.name, size, where)
    elif result.placed.setdefault((dim.input, dim.axis), size) != size:
        raise _clash(where, dim.key, result.placed[dim.input, dim.axis], size)


def _follow(result: Sizes, expressions: Mapping[str, Expression]) -> None:
    """Add the sizes that follow from expressions to ``result``, in place.

    An expression follows from its parts; a part follows from the expression and the other parts.

    Raises:
        UsageError: DP204, the sizes contradict each other.
    """
    changed = True
    while changed:
        changed = False
        for name, expression in expressions.items():
            value = expression.value(result.named)
            size = result.named.get(name)
            if value is not None and (value < 0 or (size is not None and size != value)):
                what = (
                    f"is set to {size}, but the other sizes make it {value}"
                    if size is not None
                    else f"would be {value} with these sizes"
                )
                raise _wrong(name, f"{name!r} {what}", "set sizes that agree", "DP204")
            if value is not None and size is None:
                result.named[name] = value
                changed = True
            elif value is None and size is not None:
                solved = solve(expression, size, result.named)
                if solved is not None:
                    result.named[solved[0]] = solved[1]
                    changed = True
                elif all(n in result.named for n in expression.names):
                    text = f"{name!r} cannot be {size} with these sizes"
                    raise _wrong(name, text, "set sizes that agree", "DP204")


def report_dynamic(model: ir.Model, known: Known, context: Context) -> list[str]:
    """Report each cause of dynamic shapes (DP201), and return all causes as sentences; empty for static shapes.

    Causes are inputs with a free dimension or an unknown rank, and nodes whose output shapes depend on data or cannot
    be inferred. At most 20 nodes are reported one by one; another finding counts the rest.
    """
    places: dict[str, list[str]] = {}
    for dims in input_dims(model.graph).values():
        for dim in dims or ():
            if dim.size is None:
                places.setdefault(dim.name or dim.key, []).append(dim.key)
    causes = [f"input dimension {name} ({_some(keys)}) is free" for name, keys in places.items()]
    causes += [f"input {name} has no known rank" for name, dims in input_dims(model.graph).items() if dims is None]
    for sentence in causes:
        context.report("DP201", sentence)
    roots: list[tuple[str, str]] = []
    from_free = _from_free_sizes(model, known)
    for graph in main_graphs(model):
        for node in graph:
            if any(v in from_free for v in node.inputs):
                continue  # the cause is the free dimension, reported above
            read = [v for v in node.outputs if v.uses() or v.is_graph_output()]
            if all(_static(v, known) for v in read) or any(v and not _static(v, known) for v in node.inputs):
                continue
            roots.append((label(node), f"{node.op_type} {label(node)}: {_why(node, model, known)}"))
    for name, sentence in roots[:_MOST]:
        context.report("DP201", sentence, node=name)
    if len(roots) > _MOST:
        context.report("DP201", f"{len(roots) - _MOST} more nodes have dynamic shapes", count=len(roots))
    return causes + [sentence for _, sentence in roots]


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _from_free_sizes(model: ir.Model, known: Known) -> set[ir.Value | None]:
    """The values that are computed from the Shape or Size of a value of dynamic shape, and are not constant."""
    values: set[ir.Value | None] = set()
    for graph in main_graphs(model):
        for node in graph:
            reads_free = node.op_type in ("Shape", "Size") and not all(_static(v, known) for v in node.inputs if v)
            if reads_free or any(v in values for v in node.inputs):
                values.update(v for v in node.outputs if v not in known.constants)
    return values


def _static(value: ir.Value, known: Known) -> bool:
    return value in known.constants or is_static(known.dims(value))


def _why(node: ir.Node, model: ir.Model, known: Known) -> str:
    if (node.domain, node.op_type, node.overload) in model.functions:
        return "the function has a dynamic shape"
    if node.domain not in ("", "ai.onnx"):
        return f"onnx has no shape rule for an operator of domain {node.domain}"
    return _DATA_DEPENDENT.get(node.op_type, "onnx's rule for this operator infers no static shape")
