"""Bring every node of a model to one opset, each as ``handling`` says for its operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import onnx_ir as ir
from onnx.defs import OpSchema

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.schemas import (
    allowed_types,
    rejects,
    schema_at,
    since_versions,
    type_constraints,
    type_parameters,
    type_string,
)
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import is_own
from dmlprep.graph.model.walk import graphs, label
from dmlprep.graph.rewriting.builder import replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.opset.bodies import expand_call, expand_operator, has_body
from dmlprep.passes.opset.build import Builder, CannotLower, T
from dmlprep.passes.opset.contrib import as_contrib
from dmlprep.passes.opset.handling import REFUSED, STEPS, WIDENED, relabels_upward
from dmlprep.passes.opset.steps.for_directml import EQUAL_FORMS
from dmlprep.portable.printable import shortened

_Result = TypeVar("_Result")

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""

_WIDER: Final[dict[int, tuple[int, ...]]] = {
    T.BOOL: (T.UINT8, T.INT32, T.FLOAT),
    **dict.fromkeys((T.INT8, T.UINT8, T.INT16, T.UINT16), (T.INT32, T.INT64, T.FLOAT)),
    **dict.fromkeys((T.INT32, T.UINT32), (T.INT64, T.DOUBLE)),
    **dict.fromkeys((T.FLOAT16, T.BFLOAT16, T.FLOAT4E2M1), (T.FLOAT,)),
    **dict.fromkeys((T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ), (T.FLOAT,)),
    T.INT4: (T.INT8, T.INT32),
    T.UINT4: (T.UINT8, T.INT32),
}
_LACKS = {"If", "Loop", "Scan", "Optional", "OptionalGetElement", "OptionalHasElement", "BitShift", "SequenceMap"}


class InlineFirst(Exception):
    """A node in a model-local function cannot be lowered there: its types or attributes are known only at the calls.

    Args:
        functions: the functions to inline before the next try.
    """

    def __init__(self, functions: set[FunctionKey]) -> None:
        super().__init__(", ".join(":".join(f) for f in sorted(functions)))
        self.functions = functions


Handled = dict[str, Counter[str]]
"""Counts of the model's nodes by the kind of change ("relabelled", "rewritten", ...) and then by operator."""


def lower(
    model: Model,
    target: int,
    *,
    prefer_contrib: bool = False,
    inline: frozenset[FunctionKey] = frozenset(),
    rewrite: frozenset[str] = frozenset(),
) -> Handled:
    """Bring ``model`` to opset ``target``, in place, and return how many nodes changed in which way.

    An exception leaves the model half converted: pass a copy.

    Args:
        inline: model-local functions whose bodies replace their calls.
        rewrite: names of nodes to write in other operators even if the target opset has their operator.
        prefer_contrib: use equal operators of com.microsoft where they exist.

    Raises:
        ModelRefused: a node cannot be expressed at the target opset, or one in ``rewrite`` has no other form (DP102).
            DP014: the model would exceed its limits.
        InlineFirst: a model-local function must be inlined first. Call again, with its key in ``inline``.
    """
    return _Lowering(model, target, prefer_contrib, inline, rewrite).run()


@dataclass(frozen=True)
class _Origin:
    """The node of the original model that a (perhaps new) node comes from, for error messages and counts.

    ``function`` is the model-local function that contains it; ``None`` for the main graph.
    """

    name: str
    op_type: str
    version: int
    function: FunctionKey | None


class _Lowering:
    def __init__(
        self, model: Model, target: int, prefer_contrib: bool, inline: frozenset[FunctionKey], rewrite: frozenset[str]
    ) -> None:
        self.model, self.target, self.prefer_contrib, self.inline = model, target, prefer_contrib, inline
        self.rewrite = {node for _, graph in graphs(model.ir) for node in graph if label(node) in rewrite}
        self.values = Knowledge.swept(model.ir)
        self.names = Names(model.ir)
        self.handled: Handled = {}
        self.todo: list[tuple[ir.Node, _Origin]] = []
        self.wrote_contrib = False
        held = (v for _, g in graphs(model.ir) if isinstance(g, ir.Graph) for v in g.initializers.values())
        self.unread = {v for v in held if not v.uses()}
        self.function_versions: dict[FunctionKey, int] = {}

    def run(self) -> Handled:
        functions, opset = self.model.ir.functions, self.model.opset
        own: list[tuple[ir.Node, _Origin]] = []
        for key, function in functions.items():
            imports = function.opset_imports
            self.function_versions[key] = int(imports.get("", imports.get("ai.onnx", opset)))
        inside: FunctionKey | None = None  # the walk ends with the functions, each with its subgraphs
        for _, graph in graphs(self.model.ir):
            if isinstance(graph, ir.Function):
                inside = (str(graph.domain), str(graph.name), str(graph.overload))
            if inside is not None and inside in self.inline:
                continue
            version = opset if inside is None else self.function_versions[inside]
            for node in graph:
                node.version = version
                own.append((node, _Origin(label(node), str(node.op_type), version, inside)))
        # Bodies come before the nodes that contain them, because a function operator may remove a body. Functions come
        # before the main graph: those that need inlining are known by then.
        untyped: set[FunctionKey] = set()
        for node, origin in reversed(own):
            if origin.function is None and untyped:
                break
            if origin.function in untyped:
                continue
            try:
                kind = self._bring(node, origin)
                while self.todo:
                    self._bring(*self.todo.pop())
            except InlineFirst as first:
                untyped |= first.functions
                self.todo.clear()
                continue
            self.handled.setdefault(kind, Counter())[origin.op_type] += 1
        if untyped:
            raise InlineFirst(untyped)
        for key in self.inline:
            functions.pop(key, None)
        self._drop_unread()
        for imports in (*(function.opset_imports for function in functions.values()), self.model.ir.opset_imports):
            imports.pop("ai.onnx", None)
            imports[""] = self.target
            if self.wrote_contrib:
                imports.setdefault("com.microsoft", 1)
        return self.handled

    def _drop_unread(self) -> None:
        """Remove initializers that no node reads any more; those that were unread in the original model stay."""
        for _, graph in graphs(self.model.ir):
            if not isinstance(graph, ir.Graph):
                continue
            for name, value in list(graph.initializers.items()):
                read = value.uses() or value.is_graph_output() or value.is_graph_input()
                if not read and value not in self.unread:
                    del graph.initializers[name]

    def _bring(self, node: ir.Node, origin: _Origin) -> str:
        """Bring one node to the target's opset, and return the kind of change ("kept", "rewritten", ...).

        Raises:
            ModelRefused: the node cannot be lowered.
            InlineFirst: the model-local function around the node must be inlined first.
        """
        try:
            return self._handle(node, origin)
        except CannotLower as cannot:
            if cannot.in_function and origin.function is not None:
                raise InlineFirst({origin.function}) from cannot
            inside = "" if node.op_type == origin.op_type else f" (its rewriting uses {node.op_type})"
            raise ModelRefused(
                f"{origin.op_type} of opset {origin.version} cannot be converted to opset {self.target}: "
                f"{cannot.reason}{inside}",
                where=f"node {origin.name!r}",
                code="DP102",
                fix="choose a newer target, or export without this operator",
            ) from cannot

    def _handle(self, node: ir.Node, origin: _Origin) -> str:
        key = (str(node.domain), str(node.op_type), str(node.overload))
        if key in self.function_versions:
            if key not in self.inline:
                return "function calls"
            builder = self._builder(node, origin, counted=False)  # counted when the model was opened
            function, inner = self.model.ir.functions[key], self.function_versions[key]
            self._replace(node, _written(lambda b: expand_call(b, function, inner), builder))
            return "inlined"
        if node.domain:
            write = EQUAL_FORMS.get(f"{node.domain}::{node.op_type}") if node in self.rewrite else None
            if write is None:
                return "left alone"
            self._replace(node, _written(write, self._builder(node, origin)))
            return "for DirectML"
        version = node.version
        assert version is not None
        schema = schema_at(node.op_type, version)
        if schema is None and all(is_own("", node.op_type, opset) for opset in (version, self.target)):
            node.version = self.target
            return "left alone"
        if schema is None:
            raise CannotLower(f"onnx has no operator of this name at opset {version}")
        if self.prefer_contrib:
            written = _written(as_contrib, self._builder(node, origin))
            if written is not None:
                self._replace(node, written)
                self.wrote_contrib = True
                return "com.microsoft"
        if node in self.rewrite and node.op_type in EQUAL_FORMS:
            self._replace(node, _written(EQUAL_FORMS[node.op_type], self._builder(node, origin)))
            return "for DirectML"
        if version <= self.target and node not in self.rewrite:
            self._raise(node, version)
            return "kept"
        kind = "kept"
        while schema.since_version > self.target or node in self.rewrite:
            step, replaced = self._step(node, schema, origin)
            kind = step if kind in ("kept", "relabelled") else kind
            if replaced is not None:
                self._replace(node, replaced)
                return kind
            node.version = schema.since_version - 1
            older = schema_at(node.op_type, node.version)
            if older is None:
                raise CannotLower("no other operators express it")
            schema = older
        node.version = self.target
        return kind

    def _step(self, node: ir.Node, schema: OpSchema, origin: _Origin) -> tuple[str, Sequence[ir.Value | None] | None]:
        """Lower a node below its operator's present version.

        Returns:
            the kind of change, and replacements for the node's outputs; ``None`` instead of these if the node stays.

        Raises:
            CannotLower: no step, wider type or function body expresses the node.
        """
        name, since = str(node.op_type), schema.since_version
        if (name, since) in REFUSED:
            raise CannotLower(REFUSED[name, since])
        write = STEPS.get((name, since))
        kind = "relabelled"
        if write is not None:
            before = dict(node.attributes), tuple(node.inputs)
            try:
                replaced = _written(write, self._builder(node, origin))
            except CannotLower:
                if not has_body(schema):
                    raise
                return self._expanded(node, schema, origin)
            if replaced is not None:
                return "rewritten", replaced
            if before != (dict(node.attributes), tuple(node.inputs)):
                kind = "rewritten"
        reason = f"the operator does not exist before opset {since}"
        if write is not None or since in WIDENED.get(name, ()):
            reason = self._rejected(node, since)
            if not reason:
                return kind, None
            replaced = through_wider_type(self._builder(node, origin), since)
            if replaced is not None:
                return "computed in a wider type", replaced
        if has_body(schema):
            return self._expanded(node, schema, origin)
        raise CannotLower(reason)

    def _expanded(self, node: ir.Node, schema: OpSchema, origin: _Origin) -> tuple[str, list[ir.Value | None]]:
        return "expanded", _written(lambda b: expand_operator(b, schema), self._builder(node, origin))

    def _rejected(self, node: ir.Node, since: int) -> str:
        """Return why the operator's version before ``since`` does not accept the node; empty if it does.

        Raises:
            CannotLower: an input's type is unknown, and it could be one that the older version lacks.
        """
        ins = [self.values.type(v) for v in node.inputs]
        reason = rejects(node, since - 1, ins, [self.values.type(v) for v in node.outputs])
        for value, known in zip(node.inputs, ins, strict=True):
            if not reason and value is not None and known is None and self._may_matter(node, since):
                raise CannotLower(f"the type of its input {value.name!r} is unknown", in_function=True)
        return reason

    def _may_matter(self, node: ir.Node, since: int) -> bool:
        """Return whether this model uses a type that version ``since`` of the operator accepts, but not the older."""
        name = str(node.op_type)
        return bool((allowed_types(name, since) - allowed_types(name, since - 1)) & self._types_seen)

    @cached_property
    def _types_seen(self) -> frozenset[str]:
        """All types of the model's values, as far as they are known ("tensor(float)", ...)."""
        return frozenset(map(type_string, self.values.types.values()))

    def _raise(self, node: ir.Node, version: int) -> None:
        """Move an unchanged node up from opset ``version`` to the target.

        Raises:
            CannotLower: a version of its operator in between changes the meaning of such a node.
        """
        name = str(node.op_type)
        for since in since_versions()[name]:
            if version < since <= self.target and not relabels_upward(name, since):
                raise CannotLower(f"the operator changed at opset {since}, and dmlprep cannot raise such a node")
        node.version = self.target

    def _builder(self, node: ir.Node, origin: _Origin, *, counted: bool = True) -> Builder:
        assert node.version is not None or node.domain
        return Builder(
            node,
            node.version or self.target,
            self.target,
            self.values,
            self.names,
            lambda new: self.todo.append((new, origin)),
            self.model.budget if counted else None,
        )

    def _replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Remove the node: ``outputs`` replace its outputs, and get their names, types and denotations.

        Raises:
            CannotLower: ``outputs`` has no value for an output that is read.
        """
        graph = node.graph
        assert graph is not None
        replacements: set[ir.Value] = set()
        for i, old in enumerate(node.outputs):
            if not old.uses() and not old.is_graph_output():
                continue
            new = outputs[i] if i < len(outputs) else None
            if new is None:
                raise CannotLower(f"no equal form computes its output {i} ({old.name!r})")
            producer = new.producer()
            if new.is_initializer() and not old.is_graph_output():
                old.replace_all_uses_with(new)  # a constant needs no copy of itself
                continue
            if producer is None or producer.graph is not graph or new in replacements or new.is_graph_output():
                identity = ir.Node("", "Identity", [new], name=self.names.new(f"{node.name or label(node)}/Identity"))
                identity.version = 13 if self.target >= 13 else 1
                graph.insert_before(node, identity)
                self.todo.append((identity, _Origin(label(node), str(node.op_type), node.version or 0, None)))
                new = identity.outputs[0]
            replacements.add(new)
            self._take_over(old, new)
        graph.remove(node, safe=True)

    def _take_over(self, old: ir.Value, new: ir.Value) -> None:
        replace_value(old, new, "")
        new.meta.update(old.meta)
        known = self.values.type(old)
        if known is not None:
            self.values.set_type(new, known)
            if new.type is None:
                new.type = ir.serde.deserialize_type_proto_for_type(known)
            if new.shape is None:
                new.shape = ir.serde.deserialize_type_proto_for_shape(known)


def _written(write: Callable[[Builder], _Result], builder: Builder) -> _Result:
    """Return ``write(builder)``; report Python errors of ``write`` as a model with contradictory numbers.

    onnx's checker does not check all numbers of a node: a pool may have strides of zero. Code that relies on the
    operator's specification then raises an error such as ``ZeroDivisionError``.

    Raises:
        CannotLower: the node's attributes, constants and sizes contradict each other.
    """
    try:
        return write(builder)
    except (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, AssertionError) as error:
        text = shortened(f"{type(error).__name__}: {error}".removesuffix(": "), 200)
        reason = f"its attributes, constants and sizes contradict each other ({text})"
        raise CannotLower(f"{reason}; if ONNX Runtime runs the model, report it") from error


def _name(dtype: int) -> str:
    return f"tensor({T.DataType.Name(dtype).lower()})"


def _variables(name: str, version: int, count: int, *, outputs: bool) -> list[str]:
    """The type variables ("T", ...) of the first ``count`` inputs or outputs of an operator; empty if it has none.

    The last parameter counts for all further ones, as it may be variadic.
    """
    parameters = type_parameters(name, version, outputs=outputs)
    return [parameters[min(i, len(parameters) - 1)][0] for i in range(count)] if parameters else []


def through_wider_type(builder: Builder, since: int) -> list[ir.Value | None] | None:
    """Write the node in the version before ``since``, in a wider element type: cast inputs to it, and outputs back.

    Returns replacements for the node's outputs; ``None`` if no input needs a wider type or none fits, and for operators
    that casts cannot help (Cast, If, Loop, ...). The narrow values are exact in the wide type. Casting integers back
    drops high bits, as narrow arithmetic does. Floating-point numbers are rounded once.
    """
    node, older = builder.node, since - 1
    name = str(node.op_type)
    if name in _LACKS or name == "Cast" or schema_at(name, older) is None:
        return None  # a Cast through a wider type would become such Casts again, endlessly
    allowed = type_constraints(name, older)
    inputs = _variables(name, older, len(node.inputs), outputs=False)
    types: dict[str, int] = {}
    for variable, value in zip(inputs, node.inputs, strict=False):
        dtype = builder.values.dtype(value)
        if value is not None and types.setdefault(variable, dtype) != dtype:
            return None  # two types, where the older version accepts one
    wide: dict[str, int] = {}
    for variable, dtype in types.items():
        takes = allowed.get(variable, frozenset((variable,)))  # the schema may write a parameter's type directly
        if not dtype or _name(dtype) in takes:
            continue
        via = next((w for w in _WIDER.get(dtype, ()) if _name(w) in takes), None)
        if via is None or (name == "Pow" and dtype == T.INT32):
            return None  # powers of integers wrap around, floating-point powers do not
        wide[variable] = via
    if not wide:
        return None
    operands = [
        builder.cast(value, wide[variable]) if value is not None and variable in wide else value
        for variable, value in zip(inputs, node.inputs, strict=True)
    ]
    results = builder.again(*operands, version=older)
    return [
        builder.cast(value, types[variable]) if variable in wide else value
        for variable, value in zip(_variables(name, older, len(results), outputs=True), results, strict=True)
    ]
