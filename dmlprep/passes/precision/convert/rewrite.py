"""Carry out a plan: decide the type of each input and output of each node, and insert casts where types differ.

So the types in the result are correct by construction. Casts are shared: there is one for each value and type, right
after the node that computes the value.
"""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, graphs
from dmlprep.graph.rewriting.builder import as_initializer, inherit, insert_behind
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.convert.constants import NEEDS_FP64
from dmlprep.passes.precision.convert.plan import Plan
from dmlprep.passes.precision.fp16 import FP16_MAX, WIDE, cast_tensor, is_half
from dmlprep.passes.precision.signature import Port
from dmlprep.passes.precision.types import FROM_ATTRIBUTE
from dmlprep.passes.precision.view import UNTYPED, constant_tensor, set_constant_tensor

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
_OPSET_FOR_CASTS = 17
"""The opset that a model without ai.onnx gets for casts: every target loads it, and DirectML has its Cast."""
_FLOATS = WIDE | {_HALF}
_WEIGHTY = 4096
"""The smallest weight, in elements, for which it matters that it would be stored in both types."""
_FACTORS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators with weights as their second operand. Their sums and activations lose more digits in FP16 than weights."""
_FULL_LABELS = {("Resize", "T2")}  # roi: FP16 coordinates would move the crop, and the tensor has only a few numbers


def rewrite(plan: Plan) -> bool:
    """Convert the model of ``plan.view`` in place as planned, and return whether anything changed."""
    return _Rewriter(plan).run()


def shares_weights(model: Model) -> bool:
    """Return whether two products (MatMul, Gemm, Conv) share a large weight, so that it may be needed in two types."""
    every = [v for _, graph in graphs(model.ir) if isinstance(graph, ir.Graph) for v in graph.initializers.values()]
    large = [v for v in every if v.const_value is not None and v.const_value.size >= _WEIGHTY]
    return any(sum(use.idx == 1 and use.node.op_type in _FACTORS for use in v.uses()) > 1 for v in large)


class _Rewriter:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.view = plan, plan.view
        self.names = Names(plan.view.model)
        self.wants: dict[tuple[ir.Node, int], ir.DataType] = {}
        self.ends: dict[ir.Value, set[ir.DataType]] = {}
        self.home: dict[ir.Value, ir.DataType] = {}
        self.casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self.changed = False

    def run(self) -> bool:
        for node in self.view.order:
            if node.domain:
                continue
            if node.op_type == "CastLike" and self.view.is_float(node):
                self._plain_cast(node)
            elif node.op_type == "MeanVarianceNormalization" and "axes" not in node.attributes:
                # onnx 1.23's checker expands the operator's body without the attribute's default, and refuses the body
                node.attributes["axes"] = ir.AttrInt64s("axes", [0, 2, 3])
                self.changed = True
        for node in self.view.order:
            for index, value, port in self.view.wide_inputs(node):
                if node.op_type not in UNTYPED:
                    self.wants[node, index] = self._port(node, port, self._original(value))
        self._graph_ends()
        for node in self.view.order:
            self._homes(node)
        for _, graph in graphs(self.view.model):
            if isinstance(graph, ir.Graph):
                for value in list(graph.initializers.values()):
                    self._initializer(graph, value)
        for node in self.view.order:
            self._attributes(node)
        for node in self.view.order:
            self._connect(node)
        self._outputs()
        self._drop_idle_casts()
        return self.changed

    def _original(self, value: ir.Value) -> ir.DataType:
        kind = self.view.types[value]
        assert kind is not None
        return kind.dtype

    def _port(self, node: ir.Node, port: Port | None, original: ir.DataType) -> ir.DataType:
        # BitCast concerns bits; tables in attributes of ai.onnx.ml have the type of its operands
        if port is None or node.op_type == "BitCast" or node.domain == "ai.onnx.ml":
            return original
        reason = self.plan.full.get(node)
        if reason is not None and reason.rule == NEEDS_FP64:
            return original
        halves = reason is None and port.variable and _HALF in port.floats
        if halves and (node.op_type, port.label) not in _FULL_LABELS and self.view.half_kernel(node, port.label):
            return _HALF
        return _SINGLE if _SINGLE in port.floats and port.plain else original

    def _plain_cast(self, node: ir.Node) -> None:
        """Turn a CastLike into a Cast, in place: its second input may become FP16, but its result keeps its type."""
        if not isinstance(self.view.types.get(node.outputs[0]), ir.TensorType):
            return
        node.op_type = "Cast"
        node.replace_input_with(1, None)
        node.resize_inputs(1)
        node.attributes["to"] = ir.AttrInt64("to", self._original(node.outputs[0]).value)
        self.changed = True

    def _is_weight(self, value: ir.Value) -> bool:
        """Return whether a value is an initializer that callers cannot replace, so that its type may change freely.

        Before IR 4 this includes initializers that are also graph inputs, because all are.
        """
        return value.is_initializer() and (not value.is_graph_input() or self.view.model.ir_version < 4)

    def _graph_ends(self) -> None:
        main = self.view.model.graph
        for value in main.inputs:
            if self.view.wide(value) and not self._is_weight(value):
                self.home[value] = self._original(value) if self._io_kept(value) else _HALF
        for value in main.outputs:
            if self.view.wide(value):
                keeps_type = self._io_kept(value) if value.is_graph_input() else self.plan.keeps(value)
                self.ends.setdefault(value, set()).add(self._original(value) if keeps_type else _HALF)
        for node in self.view.order:
            for name, graph in attribute_graphs(node):
                self._body_ends(node, name, graph)

    def _io_kept(self, value: ir.Value) -> bool:
        # A default that callers can replace always keeps its type. ONNX Runtime 1.24.4's CPU provider crashes when it
        # loads a MatMul by such a default in FP16.
        return value.is_initializer() or self.plan.keeps(value)

    def _body_ends(self, node: ir.Node, name: str, graph: ir.Graph) -> None:
        loop = node.op_type == "Loop"
        shift = 2 if loop else len(node.inputs) - len(graph.inputs)
        for index, value in enumerate(graph.inputs):
            if self.view.wide(value):
                slot = (node, index if loop else index + shift)
                wanted = self.wants.get(slot) if node.op_type in ("Loop", "Scan") else None
                self.home[value] = wanted or self._original(value)
        skip = 1 if loop and name == "body" else 0
        for index, value in enumerate(graph.outputs):
            if not self.view.wide(value):
                continue
            wanted = self._original(value)
            if node.op_type in ("If", "Loop", "Scan") and index >= skip:
                signature = self.view.signature(node)
                wanted = self._port(node, signature.output(index - skip) if signature else None, wanted)
            self.ends.setdefault(value, set()).add(wanted)

    def _demands(self, value: ir.Value) -> set[ir.DataType]:
        types = {self.wants[use.node, use.idx] for use in value.uses() if (use.node, use.idx) in self.wants}
        return types | self.ends.get(value, set())

    def _homes(self, node: ir.Node) -> None:
        for _, value, port in self.view.wide_outputs(node):
            if node.op_type == "Cast":
                self.home[value] = self._cast_home(node, value)
            elif node.op_type == "Constant":
                demands = self._demands(value)
                self.home[value] = self._original(value) if not demands else _SINGLE if _SINGLE in demands else _HALF
            elif node.op_type == "LayerNormalization" and port is not None and port.label == "U":
                self.home[value] = self._original(value)
            else:
                self.home[value] = self._port(node, port, self._original(value))

    def _cast_home(self, node: ir.Node, value: ir.Value) -> ir.DataType:
        source, demands = node.inputs[0], self._demands(value)
        if len(demands) == 1:
            return next(iter(demands))
        before = self._home(source) if source is not None else None
        if before in (_HALF, _SINGLE):
            return before
        # an integer that becomes an integer again must stay exact
        return _SINGLE if self._original(value) in WIDE else self._original(value)

    def _home(self, value: ir.Value) -> ir.DataType | None:
        if value in self.home:
            return self.home[value]
        kind = self.view.types.get(value)
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def _set_type(self, value: ir.Value, dtype: ir.DataType) -> None:
        self.home[value] = dtype
        if value.dtype == dtype:
            return
        if value.type is not None or value.is_graph_input() or value.is_graph_output() or value.is_initializer():
            denotation = value.type.denotation if isinstance(value.type, ir.TensorType) else None
            value.type = ir.TensorType(dtype, denotation=denotation)
            self.changed = True

    def _initializer(self, graph: ir.Graph, value: ir.Value) -> None:
        tensor = value.const_value
        if tensor is None or tensor.dtype not in WIDE:
            return
        if not self._is_weight(value):
            if value in self.home:  # a default that a caller can replace has its input's type
                self._store(value, tensor, self.home[value])
            return
        demands = self._demands(value) & (_FLOATS - {ir.DataType.BFLOAT16})
        if not demands:
            self.home[value] = tensor.dtype
            return
        ends = self.ends.get(value, set()) & demands
        primary = min(ends or demands, key=lambda dtype: -dtype.bitwidth)
        if demands == {_HALF, _SINGLE} and self._half_is_enough(value, tensor):
            self._store(value, tensor, _HALF)  # a cast converts it for the readers in FP32
            return
        self._store(value, tensor, primary)
        others = demands - {primary} if not value.is_graph_input() else set()  # an input of IR 3
        for other in sorted(others, key=lambda dtype: -dtype.bitwidth):
            copy = self._like(value, other)
            cast = cast_tensor(tensor, other, name=copy.name, limit=self._limit(value))
            self.casts[value, other] = as_initializer(graph, copy, cast)

    def _half_is_enough(self, value: ir.Value, tensor: ir.TensorProtocol) -> bool:
        """Return whether a weight that both FP32 and FP16 nodes read may be stored in FP16 only.

        The weight must have at least 4096 elements, and must not be a graph input or output. That is enough if FP16
        represents its values exactly. Otherwise ``half_weights`` must be set, and each FP32 reader must be a product
        that the user or the search keeps. The search then measures these readers with the FP16 weight.
        """
        if tensor.size < _WEIGHTY or self.ends.get(value) or value.is_graph_input():
            return False
        readers = [use for use in value.uses() if self.wants.get((use.node, use.idx)) == _SINGLE]
        if is_half(tensor, self._limit(value)):
            return True
        products = all(use.node.op_type in _FACTORS and use.idx == 1 for use in readers)
        reasons = [self.plan.full.get(use.node) for use in readers]
        return self.plan.half_weights and products and all(r is not None and r.rule == "user" for r in reasons)

    def _limit(self, value: ir.Value) -> float:
        return self.plan.constants.limits.get(value, FP16_MAX)

    def _store(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: ir.DataType) -> None:
        if tensor.dtype != dtype:
            value.const_value = cast_tensor(tensor, dtype, name=value.name, limit=self._limit(value))
            self.changed = True
        self._set_type(value, dtype)

    def _attributes(self, node: ir.Node) -> None:
        """Update attributes that set the type of the node's output (Cast's ``to``), and tensors of Constant nodes."""
        if node.domain or not node.outputs or node.outputs[0] not in self.home:
            return
        value = node.outputs[0]
        home, op = self.home[value], node.op_type
        if op == "Cast":
            in_words = node.attributes["to"].type == ir.AttributeType.STRING  # Cast-1
            attribute = ir.AttrString("to", home.name) if in_words else ir.AttrInt64("to", home.value)
            if node.attributes["to"].value != attribute.value:
                node.attributes["to"] = attribute
                self.changed = True
        elif op == "Constant":
            self._constant(node, value, home)
        elif op == "ConstantOfShape":
            fill = node.attributes.get("value")
            self._hold(node, fill.as_tensor() if fill is not None else ir.tensor([0.0], dtype=_SINGLE), value, home)
        elif op in FROM_ATTRIBUTE and self._original(value) != home:
            name = FROM_ATTRIBUTE[op][0]
            node.attributes[name] = ir.AttrInt64(name, home.value)
            self.changed = True

    def _hold(self, node: ir.Node, tensor: ir.TensorProtocol, value: ir.Value, home: ir.DataType) -> None:
        if tensor.dtype != home:
            set_constant_tensor(node, cast_tensor(tensor, home, limit=self._limit(value)))
            self.changed = True

    def _constant(self, node: ir.Node, value: ir.Value, home: ir.DataType) -> None:
        tensor = constant_tensor(node)
        if tensor is None:
            return
        self._hold(node, tensor, value, home)
        if {_HALF, _SINGLE} <= self._demands(value):
            copy = self._like(value, _HALF)
            twin = ir.Node("", "Constant", [], outputs=[copy], name=self.names.node(f"{copy.name}_constant"))
            set_constant_tensor(twin, cast_tensor(tensor, _HALF, name=copy.name, limit=self._limit(value)))
            insert_behind(value, twin)
            self.casts[value, _HALF] = copy
            self.changed = True

    def _like(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        suffix = "fp16" if dtype == _HALF else "fp32" if dtype == _SINGLE else dtype.name.lower()
        shape = value.shape.copy() if value.shape is not None else None
        new = ir.Value(name=self.names.value(f"{value.name}_{suffix}"), shape=shape, type=ir.TensorType(dtype))
        self.home[new] = dtype
        return new

    def _as(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return the value in type ``dtype``: itself if it has that type, otherwise the output of a shared cast.

        The cast is inserted on first use. A constant may have a copy in type ``dtype`` instead. For the result of a
        Cast from FP16, its FP16 operand is returned.
        """
        if self.home.get(value) == dtype:
            return value
        if (value, dtype) in self.casts:
            return self.casts[value, dtype]
        producer = value.producer()
        source = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
        if source is not None and dtype == _HALF and self._home(source) == _HALF:
            return source  # it was FP16 before the cast to FP32
        new = self._like(value, dtype)
        insert_behind(value, self._cast_node(value, new))
        self.casts[value, dtype] = new
        return new

    def _cast_node(self, value: ir.Value, new: ir.Value) -> ir.Node:
        self.changed = True
        to, opsets = self.home[new], self.view.model.opset_imports
        if "" not in opsets and "ai.onnx" not in opsets:  # a model of other domains only (ai.onnx.ml)
            opsets[""] = _OPSET_FOR_CASTS
        in_words = opsets.get("", opsets.get("ai.onnx", 1)) < 6  # Cast-1
        attribute = ir.AttrString("to", to.name) if in_words else ir.AttrInt64("to", to.value)
        return ir.Node("", "Cast", [value], [attribute], outputs=[new], name=self.names.node(f"{new.name}_cast"))

    def _connect(self, node: ir.Node) -> None:
        for _, output, _ in list(self.view.wide_outputs(node)):
            self._set_type(output, self.home[output])
        for index, value in enumerate(node.inputs):
            wanted = self.wants.get((node, index))
            if value is not None and wanted is not None and self.home.get(value) != wanted:
                node.replace_input_with(index, self._as(value, wanted))
                self.changed = True

    def _outputs(self) -> None:
        for _, graph in graphs(self.view.model):
            if not isinstance(graph, ir.Graph):
                continue
            for value in graph.inputs:
                if value in self.home:
                    self._set_type(value, self.home[value])
            replaced: dict[ir.Value, ir.Value] = {}
            for value in dict.fromkeys(graph.outputs):  # a value may be listed twice: both become the new output
                wanted = next(iter(self.ends.get(value, set())), None)
                if wanted is not None and self.home.get(value) != wanted:
                    replaced[value] = self._output(graph, value, wanted)
            for index, value in enumerate(graph.outputs[:] if replaced else []):
                if value in replaced:
                    graph.outputs[index] = replaced[value]

    def _output(self, graph: ir.Graph, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """Cast a graph output to type ``wanted``, and return the new output value.

        The new value takes over the output's name, and the old one is renamed, if this graph computes the old value.
        """
        made_here = value.producer() is not None and value.graph is graph
        # A value without a producer here keeps its name. It is a body's output then, which may be renamed.
        new = ir.Value() if made_here else self._like(value, wanted)
        if made_here:
            inherit(value, new, self.names.value(f"{value.name}_{'fp16' if self.home[value] == _HALF else 'fp32'}"))
            self._set_type(new, wanted)
        graph.append(self._cast_node(value, new))
        return new

    def _drop_idle_casts(self) -> None:
        for node in self.view.order:
            if node.op_type != "Cast" or node.domain or node.graph is None:
                continue
            source, value = node.inputs[0], node.outputs[0]
            if source is None or self._home(value) not in _FLOATS or self._home(source) != self._home(value):
                continue
            if value.is_graph_output():
                node.op_type = "Identity"
                node.attributes.clear()
            else:
                value.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)
            self.changed = True
