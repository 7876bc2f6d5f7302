"""A finding's severity comes from the quirk, not from words in names of the model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.in_process import Run

MODEL = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,3,24] x, int64[1,3] p) => (float[1,3,16] a, float[1,3,8] b)
<float[5,4] c = {FLOATS}, float[5,4] s = {FLOATS}, int64[2] sizes = {16, 8}>
{ q, NAME = Split <axis = 2> (x, sizes)  a = Neg (q) b = com.microsoft.RotaryEmbedding (NAME, p, c, s) }"""


@pytest.mark.parametrize("name", ["k", "a may hold b", "it may be so, perhaps: sure=False"])
def test_a_tensor_name_does_not_change_the_severity(run: Run, name: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL.replace("FLOATS", ",".join(["0.5"] * 20)).replace("NAME", "k"))
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, value in enumerate(names):
                if value == "k":
                    names[index] = name
    onnx.save(model, tmp_path / "m.onnx")
    result = run("check", tmp_path / "m.onnx")
    assert result.code == 1
    assert "DP659" in result.out


@pytest.mark.parametrize(("before", "found"), [("Neg (x)", True), ("Relu (x)", False), ("Clip (x, zero)", False)])
def test_zeros_around_data_without_negative_numbers_change_no_maximum(
    run: Run, before: str, found: bool, tmp_path: Path
) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,2,5,5] y)
    <int64[8] p = {{0,0,1,1,0,0,1,1}}, float zero = {{0.0}}>
    {{ c = {before} q = Pad (c, p) y = MaxPool <kernel_shape: ints = [2, 2]> (q) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = run("check", tmp_path / "m.onnx")
    assert result.code == 0  # the values are not known, so it is a warning
    assert ("warning DP690" in result.out) is found
