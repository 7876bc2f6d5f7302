"""The facts of one model for several targets: inlined as each would, and read once for those that inline alike."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.placement.reading import FactsReader
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import Limits, limited
from tests.directml.placement.graphs import parsed

_GRAPH = """g (float[1,4,8] x, float[4] s) => (float[1,4,8] y) {
  n = GroupNormalization <num_groups = 2> (x, s, s)
  y = Relu (n)
}"""


def test_targets_that_inline_the_same_share_their_facts() -> None:
    reader = FactsReader(parsed(_GRAPH, 21))
    plain, first, second = (
        reader.facts(None if name is None else find_target(name).tables) for name in (None, "ort-1.24", "ort-1.30")
    )
    assert [node.op for node in plain.nodes] == ["GroupNormalization", "Relu"]
    assert "GroupNormalization" not in {node.op for node in first.nodes}
    assert first is second
    assert reader.facts(None) is plain


def test_a_target_that_inlines_nothing_gets_the_model_as_it_is() -> None:
    reader = FactsReader(parsed("g (float[2] x) => (float[2] y) { y = Relu (x) }"))
    assert reader.facts(find_target("ort-1.30").tables) is reader.facts(None)


_BRANCHES = """g (float[2] x, bool c) => (float[2] y) {
  [a] m = Mish (x)
  [b] y = If (c) <then_branch = t () => (float[2] u) { [a] u = Mish (m) }, else_branch = e () => (float[2] v) {
    [a] w = Mish (m)
    [d] v = Neg (w)
  }>
}"""


def test_nodes_of_one_name_are_inlined_apart() -> None:
    """Several exporters give the same name to nodes of different graphs."""
    graph = FactsReader(parsed(_BRANCHES, 18)).facts(find_target("ort-1.30").tables)
    nodes = [node for inner in graph.all_graphs() for node in inner.nodes]
    assert Counter(node.op for node in nodes) == {"Softplus": 3, "Tanh": 3, "Mul": 3, "If": 1, "Neg": 1}
    made = [value.name for node in nodes for value in node.outputs if value is not None]
    assert len(set(made)) == len(made)


@given(
    names=st.lists(st.sampled_from(["", "a", "b"]), min_size=3, max_size=3),
    values=st.lists(st.sampled_from(["m", "a/m", "a/softplus", "b/softplus", "a/Softplus_X"]), min_size=2, unique=True),
    local=st.booleans(),
)
def test_any_names_of_nodes_and_values(names: list[str], values: list[str], local: bool) -> None:
    """Names that the model has already, nodes that share one: inlined, it is a model still."""
    call = ("f", "l") if local else ("Mish", "")
    chain = ["x", *values[:2], "y"]
    nodes = [
        onnx.helper.make_node(call[0], [before], [after], name=name, domain=call[1])
        for (before, after), name in zip(pairwise(chain), names, strict=True)
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    body = [onnx.helper.make_node("Mish", ["m"], ["softplus"]), onnx.helper.make_node("Relu", ["softplus"], ["r"])]
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("l", 1)]
    function = onnx.helper.make_function("l", "f", ["m"], ["r"], body, opsets[:1])
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = Model(
        ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, functions=[function] if local else []))
    )
    found = FactsReader(model).facts(find_target("ort-1.30").tables)
    made = [value.name for node in found.nodes for value in node.outputs if value is not None]
    assert len(set(made)) == len(made) == (12 if local else 9)


def test_what_is_inlined_is_held_to_the_budget() -> None:
    """A file of kilobytes can call a function a hundred thousand times, and each call holds an operator with a body."""
    with limited(Limits(made_nodes=5)):
        model = parsed(_GRAPH, 21)
        with pytest.raises(ModelRefused, match="which ONNX Runtime inlines") as refused:
            FactsReader(model).facts(find_target("ort-1.30").tables)
    assert refused.value.code == "DP014"
    assert model.budget.made_nodes == 0
