"""Common forms of the operators that have quirks: DirectML computes them well, and no quirk may match them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

HEAD = """<ir_version: 9, opset_import: ["" : OPSET]>
g (float[1,4,8,8] x, int8[1,4,8,8] b, uint8[4,4] q, float[8,8] m, float[8] v, int64[8,8] i, float[1,8] one,
   float[1,5,5,2] grid, float[1,4] boxes, int64[1] batch) => (y)
<float[4,4,2,2] k = {WEIGHTS}, int64[2] flat = {4,-1}, float scale = {0.5}, uint8 zero = {3}, float low = {0.0},
 float high = {6.0}, float[4] scales = {1,2,3,4}, int8[4] zeros = {0,0,0,0}, int64[1] axes = {0}, int64[1] first = {0},
 int64[1] last = {1}, int64[8] pads = {0,0,1,1,0,0,1,1}, float[4] twice = {1,1,2,2}>
""".replace("WEIGHTS", ",".join(["1"] * 64))


@pytest.mark.parametrize("opset", [9, 18])
def test_no_quirk_matches_a_sound_form(opset: int) -> None:
    target = find_target("ort-1.24")
    hits = {}
    for nodes in FORMS[opset]:
        proto = onnx.parser.parse_model(f"{HEAD.replace('OPSET', str(opset))} {{ {nodes} }}")
        facts = read_facts(Model(ir.from_proto(proto)), target.tables)
        assert {target.support(node).provider for node in facts.nodes} == {"dml"}, nodes
        hits[nodes] = [hit.quirk.id for hit in find_quirks(facts, target)]
    assert {nodes: ids for nodes, ids in hits.items() if ids} == {}


FORMS = {
    9: [
        'y = Upsample <mode = "nearest"> (x, twice)',
        "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)",
        'y = Pad <mode = "constant", pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x)',
        "y = ReduceSum <axes = [1]> (x)",
        "y = Squeeze <axes = [0]> (one)",
    ],
    18: [
        "y = Reshape (x, flat)",
        "y = Gemm (m, m, v)",
        "y = MeanVarianceNormalization (x)",
        "y = MatMul (m, m)",
        "y = MatMul (x, m)",
        "y = MatMulInteger (q, q)",
        "y = QuantizeLinear (x, scale, zero)",
        "y = QuantizeLinear <axis = 1> (x, scales, zeros)",
        "y = DequantizeLinear <axis = 1> (b, scales, zeros)",
        "y, rest = Split <axis = 1, num_outputs = 2> (x)",
        "y = ConvTranspose <strides = [2, 2], pads = [0, 0, 0, 0]> (x, k)",
        'y = ConvTranspose <strides = [2, 2], auto_pad = "SAME_UPPER"> (x, k)',
        'y = Einsum <equation = "ab,bc->ac"> (m, m)',
        "y = Squeeze (one, axes)",
        "y = Unsqueeze (m, axes)",
        "y = GridSample (x, grid)",
        "c = Conv (x, k) y = Relu (c)",
        "c = Conv (x, k) y = Clip (c, low, high)",
        "c = Add (m, v) y = Relu (c)",
        "p = Pad (x, pads) y = Conv (p, k)",
        "p = Relu (x) c = Pad (p, pads) y = MaxPool <kernel_shape = [2, 2]> (c)",
        "y = ReduceMean (x, axes)",
        "y = AveragePool <kernel_shape = [2, 2]> (x)",
        'y = Resize <mode = "linear"> (x, , twice)',
        'y = Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> (x, , twice)',
        'y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)',
        "y = Cast <to = 10> (x)",
        "y = Clip (x, low, high)",
        "y = Tanh (x)",
        "y = Erf (x)",
        "y = GatherElements <axis = 1> (m, i)",
        "c = Sigmoid (x) y = Mul (x, c)",
        "y = Slice (x, first, last, axes)",
        "y = RoiAlign (x, boxes, batch)",
    ],
}
