"""Nodes whose numbers contradict their operator, which ONNX's checks let pass: refused, with the node's name."""

from __future__ import annotations

import pytest

from dmlprep.core.errors import ModelRefused
from tests.passes.opset.models import bring, parse

FLOAT = "float[1, 2, 4, 4]"

NODES = {
    "axes without pads": (18, f"g ({FLOAT} x) => (float[A, B, C, D] y) <int64[1] p = {{1}}, int64[1] a = {{3}}> "
                              "{ y = Pad (x, p, , a) }"),
    "a reduction that nobody knows": (18, "g (float[4] x, int64[2] i, float[2] u) => (float[4] y) "
                                          '{ y = ScatterElements <reduction: string = "/"> (x, i, u) }'),
    "updates of another rank": (18, "g (float[4] x, int64[2] i, float[2, 2] u) => (float[N] y) "
                                    '{ y = ScatterElements <reduction: string = "max"> (x, i, u) }'),
    "strides of zero": (19, f"g ({FLOAT} x) => (float[A, B, C, D] y) "
                            "{ y = AveragePool <kernel_shape = [2, 2], strides = [0, 0], dilations = [2, 2]> (x) }"),
    "an offset without sizes": (19, f"g ({FLOAT} x, float[2, 2, 3, 3] w, float o) => (float[A, B, C, D] y) "
                                    "{ y = DeformConv <kernel_shape = [3, 3]> (x, w, o) }"),
    "a grid for no picture": (20, "g (float[1, 2] x, float[1, 0] t) => (float[A, B] y) { y = GridSample (x, t) }"),
    "frames with a step of zero": (17, "g (float[1, 16, 1] x) => (float[A, B, C, D] y) "
                                       "<int64 s = {0}, int64 n = {4}> { y = STFT (x, s, , n) }"),
}  # fmt: skip
"""Each with its opset; below it the node has to be written in other operators."""


@pytest.mark.parametrize("name", NODES)
def test_a_node_that_contradicts_itself_is_refused(name: str) -> None:
    opset, text = NODES[name]
    proto = parse(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    proto.graph.node[0].name = "the node"
    with pytest.raises(ModelRefused, match=r"cannot be converted to opset \d+: ") as refused:
        bring(proto, opset - 1)
    assert (refused.value.code, refused.value.where) == ("DP102", "node 'the node'")
