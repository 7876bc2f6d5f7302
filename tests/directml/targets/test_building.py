"""Facts of nodes, made of a model and what is known of its values."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.targets.building import build, set_type
from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.graph.analysis.knowledge import Knowledge


def read(text: str) -> GraphFacts:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'))
    return build(model, Knowledge.swept(model))


def test_a_declared_size_below_zero_is_free() -> None:
    value = Value("x")
    set_type(value, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [-1, 3, "n"]))
    assert value.shape == (None, 3, "n")
    assert not value.static
    assert value.size is None


@pytest.mark.parametrize("held", ["value_ints = [2, 3]", "value = int64[2] {2, 3}"])
def test_a_constant_node_is_an_initializer(held: str) -> None:
    graph = read(f"g (float[6] x) => (float[2,3] y) {{ c = Constant <{held}> () y = Reshape (x, c) }}")
    (node,) = graph.nodes
    shape = node.input(1)
    assert shape is not None
    assert shape.constant
    assert shape.producer is None
    assert shape.integers() == [2, 3]
    assert [n.key for n in graph.constants] == ["Constant"]


def test_nodes_are_counted_without_constants() -> None:
    body = "a = Abs (x) c = Constant <value_ints = [2, 3]> () y = Reshape (a, c)"
    graph = read(f"g (float[6] x) => (float[2,3] y) {{ {body} }}")
    assert [(node.op, node.index) for node in graph.nodes] == [("Abs", 0), ("Reshape", 1)]


def test_a_value_that_a_subgraph_reads_is_an_implicit_input() -> None:
    graph = read(
        """g (float[2] x, bool c) => (float[2] y) {
            a = Abs (x)
            y = If (c) <then_branch = t () => (float[2] p) { p = Neg (a) },
                        else_branch = e () => (float[2] q) { q = Relu (a) }>
        }"""
    )
    outer = graph.nodes[1]
    assert [value.name for value in outer.implicit] == ["a"]
    assert [n.label for n in outer.implicit[0].consumers] == ["Neg(p)", "Relu(q)", "If(y)"]
    assert outer.subgraphs["then_branch"].path == "If(y)/then_branch"
