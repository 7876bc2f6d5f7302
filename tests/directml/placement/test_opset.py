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


@pytest.mark.parametrize(
    ("own", "node", "chosen"),
    [
        (9, 'Upsample <mode = "linear"> (x, s)', 11),
        (9, 'Upsample <mode = "nearest"> (x, s)', 9),
        (10, 'Resize <mode = "linear"> (x, s)', 11),
        (10, "RoiAlign (x, r, b)", 16),
        (16, "RoiAlign (x, r, b)", 16),
    ],
)
def test_an_operator_whose_old_version_directml_computes_wrongly_is_raised(own: int, node: str, chosen: int) -> None:
    graph = "g (float[1,2,4,4] x, float[2,4] r, int64[2] b) => (float[n,c,h,w] y) <float[4] s = {1,1,2,2}> { y = NODE }"
    text = f'<ir_version: 5, opset_import: ["" : {own}]>{graph.replace("NODE", node)}'
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    assert choose_opset(model, find_target("ort-1.30")) == chosen
