"""The opset that a model is brought to: the highest at which its nodes run on DirectML."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement import choose_opset
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

PLAIN = """g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y) { a = MatMul (x, w) b = Add (a, x) y = Relu (b) }"""
CONV = """g (float[1, 1, 4, 4] x, float[1, 1, 1, 1] w) => (float[1, 1, 4, 4] y) { a = Conv (x, w) y = Relu (a) }"""
GELU = """g (float[1, 1, 4, 4] x, float[1, 1, 1, 1] w) => (float[1, 1, 4, 4] y) { a = Conv (x, w) y = Gelu (a) }"""
NORM = """g (float[2, 3, 4] x, float[4] w) => (float[2, 3, 4] y) { y = RMSNormalization (x, w) }"""


@pytest.mark.parametrize("own", [26, 27, 28])
@pytest.mark.parametrize(
    ("graph", "target", "chosen"),
    [
        (PLAIN, "ort-1.30", 26),  # the highest that loads
        (PLAIN, "ort-1.24", 25),
        (CONV, "ort-1.30", 21),  # Conv-22 has no kernel on DirectML
        (GELU, "ort-1.30", 19),  # Gelu-20 has none, its function body at opset 19 has
        (NORM, "ort-1.30", 22),  # as its body, whose operators have DirectML kernels of their versions at opset 22
    ],
)
def test_the_highest_opset_at_which_every_node_runs_on_directml(own: int, graph: str, target: str, chosen: int) -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : {own}]>{graph}')
    assert choose_opset(Model(ir.from_proto(proto)), find_target(target)) == chosen


def test_a_model_that_runs_at_its_own_opset_stays_there() -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 14]>{CONV}')
    assert choose_opset(Model(ir.from_proto(proto)), find_target()) == 14
