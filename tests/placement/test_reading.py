"""The facts of one model for several targets: inlined as each would, and read once for those that inline alike."""

from __future__ import annotations

import pytest

from dmlprep.errors import ModelRefused
from dmlprep.model.budget import Limits, limited
from dmlprep.placement.reading import FactsReader
from dmlprep.targets import find_target
from tests.placement.graphs import parsed

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


def test_what_is_inlined_is_held_to_the_budget() -> None:
    """A file of kilobytes can call a function a hundred thousand times, and each call holds an operator with a body."""
    with limited(Limits(made_nodes=5)):
        model = parsed(_GRAPH, 21)
        with pytest.raises(ModelRefused, match="as ONNX Runtime inlines them") as refused:
            FactsReader(model).facts(find_target("ort-1.30").tables)
    assert refused.value.code == "DP014"
    assert model.budget.made_nodes == 0
