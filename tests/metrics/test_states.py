"""Which outputs are the states that the next step reads."""

import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.metrics.proof_rules import carried_states

_STEP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 4] x, {kind}[{shape}] {before}) => (float[1, 4] y, float[2, 4] {after})
{{ y = Relu(x)
   state = Cast<to = 1>({before})
   {after} = Tanh(state) }}
"""


def _states(before: str, after: str, *, kind: str = "float", shape: str = "2, 4") -> dict[str, str]:
    text = _STEP.format(before=before, after=after, kind=kind, shape=shape)
    return carried_states(Model(ir.from_proto(parser.parse_model(text))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("h", "hn"),
        ("h0", "h0_out"),
        ("memory", "memoryN"),
        ("r1i", "r1o"),
        ("in_cache", "out_cache"),
        ("h_in", "h_new"),
    ],
)
def test_names_before_and_after_a_step(before: str, after: str) -> None:
    assert _states(before, after) == {after: before}


@pytest.mark.parametrize(("before", "after"), [("mask", "hn"), ("input_2", "output_1"), ("mask", "out")])
def test_other_names(before: str, after: str) -> None:
    assert _states(before, after) == {}


def test_shapes_that_do_not_fit_are_no_state() -> None:
    assert _states("h", "hn", shape="1, 4") == {}
    assert _states("h", "hn", shape="2, 4, 1") == {}


def test_a_size_that_is_free_fits() -> None:
    assert _states("h", "hn", shape="layers, 4") == {"hn": "h"}


def test_whole_numbers_are_no_state() -> None:
    assert _states("h", "hn", kind="int64") == {}


def test_a_model_of_one_output_has_no_state() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float t) => (float[4] out_x) { out_x = Mul(x, t) }'
    assert carried_states(Model(ir.from_proto(parser.parse_model(text)))) == {}
