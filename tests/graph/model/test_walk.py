"""A walk meets every graph, node and tensor once, bodies and functions included."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from dmlprep.graph.model.walk import (
    attribute_graphs,
    count_nodes,
    graphs,
    label,
    main_graphs,
    map_tensors,
    nodes,
    tensors,
)

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2] x, bool c) => (float[2] y, float[2] z)
<float[2] w = {1.0, 2.0}>
{
  [choice] y = If (c) <
    then_branch = t () => (float[2] p) <float[2] u = {3.0, 4.0}> {
      p = If (c) <
        then_branch = tt () => (float[2] q) { q = Add (x, u) },
        else_branch = te () => (float[2] r) { r = Constant <value = float[2] {5.0, 6.0}> () }
      >
    },
    else_branch = e () => (float[2] s) { s = Mul (x, w) }
  >
  z = local.twice (x)
}
<domain: "local", opset_import: ["" : 17]>
twice (a) => (b) { two = Constant <value = float {2.0}> () b = Mul (a, two) }
"""


def model() -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(TEXT))


def test_every_graph_has_a_path() -> None:
    paths = [path for path, _ in graphs(model())]
    assert paths == [
        "",
        "choice/then_branch",
        "choice/then_branch/If(p)/then_branch",
        "choice/then_branch/If(p)/else_branch",
        "choice/else_branch",
        "function local::twice",
    ]


def test_main_graphs_leave_functions_out_and_come_outer_before_inner() -> None:
    names = [graph.name for graph in main_graphs(model())]
    assert sorted(names) == ["e", "g", "t", "te", "tt"]
    assert names.index("g") < names.index("t") < names.index("te")


def test_every_node_is_met_once() -> None:
    one = model()
    found = [node.op_type for node in nodes(one)]
    assert sorted(found) == sorted(["If", "twice", "If", "Add", "Constant", "Mul", "Constant", "Mul"])
    assert count_nodes(one) == len(found)


def test_a_node_without_a_name_is_called_by_what_it_makes() -> None:
    one = model()
    choice, call = one.graph
    assert label(choice) == "choice"
    assert label(call) == "twice(z)"
    assert [name for name, _ in attribute_graphs(choice)] == ["then_branch", "else_branch"]


def test_tensors_are_those_of_initializers_and_of_attributes() -> None:
    found = [tensor.numpy().ravel().tolist() for tensor in tensors(model())]
    assert sorted(found) == [[1, 2], [2], [3, 4], [5, 6]]


def test_a_change_of_tensors_reaches_all_of_them_or_initializers_only() -> None:
    def negated(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        return ir.tensor(-np.asarray(tensor.numpy()), name=tensor.name)

    one = model()
    map_tensors(one, negated)
    assert all((tensor.numpy() < 0).all() for tensor in tensors(one))
    map_tensors(one, negated, attributes=False)
    proto = ir.to_proto(one)
    assert (numpy_helper.to_array(proto.graph.initializer[0]) > 0).all()
    assert (numpy_helper.to_array(proto.functions[0].node[0].attribute[0].t) < 0).all()


def test_references_to_attributes_of_a_function_are_passed_over() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.leak <slope = 0.5> (x) }
    <domain: "local", opset_import: ["" : 17]>
    leak <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }"""
    one = ir.from_proto(onnx.parser.parse_model(text))
    assert [node.op_type for node in nodes(one)] == ["leak", "LeakyRelu"]
    assert list(tensors(one)) == []
