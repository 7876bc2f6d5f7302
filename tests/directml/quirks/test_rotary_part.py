"""RotaryEmbedding of a later output is found: an error in a fused graph, a warning where a session may capture it."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,TOKENS,24] x, int64[1,TOKENS] p) => (float[1,TOKENS,16] a, float[1,TOKENS,8] b)
<float[5,WIDTH] c = {FLOATS}, float[5,WIDTH] s = {FLOATS}, int64[2] sizes = {16, 8}, int64[2] backwards = {8, 16}>
{ NODES }"""

PARTS = "q, k = Split <axis = 2> (x, sizes)  a = Neg (q) "


def said(nodes: str, tokens: int | str = 3, width: int = 4) -> list[str]:
    words = {"TOKENS": tokens, "WIDTH": width, "FLOATS": ",".join(["0.5"] * 5 * width), "NODES": nodes}
    text = TEXT
    for word, value in words.items():
        text = text.replace(word, str(value))
    target = find_target()
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))), target.tables)
    return [hit.finding().severity for hit in find_quirks(facts, target) if hit.quirk.id == "rotary-part"]


@pytest.mark.parametrize(
    ("nodes", "tokens", "severity"),
    [
        (PARTS + "b = com.microsoft.RotaryEmbedding (k, p, c, s)", 3, ["error"]),
        (PARTS + "i = Identity (k) b = com.microsoft.RotaryEmbedding (i, p, c, s)", 3, ["error"]),
        (PARTS + "b = com.microsoft.RotaryEmbedding (k, p, c, s)", "tokens", ["warning"]),
        (PARTS + "h = Neg (k) b = com.microsoft.RotaryEmbedding (h, p, c, s)", 3, []),
        (
            "k, q = Split <axis = 2> (x, backwards)  a = Neg (q) b = com.microsoft.RotaryEmbedding (k, p, c, s)",
            3,
            [],
        ),
    ],
)
def test_what_is_said(nodes: str, tokens: int | str, severity: list[str]) -> None:
    assert said(nodes, tokens) == severity


def test_data_of_which_a_part_is_rotated_is_read_rightly() -> None:
    node = "b = com.microsoft.RotaryEmbedding <num_heads = 1, rotary_embedding_dim = 4> (k, p, c, s)"
    assert said(PARTS + node, width=2) == []
