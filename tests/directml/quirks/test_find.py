"""A finding's severity comes from the quirk and from what is known, not from words in names of the model."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
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


@pytest.mark.parametrize(("size", "severity"), [("5", "error"), ("n", "warning"), ("6", "")])
def test_same_padding_fails_where_a_size_is_not_a_multiple_of_the_stride(size: str, severity: str) -> None:
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,{size}] x, float[1,1,3,3] w) => (y) '
        '{ y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w) }'
    )
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))))
    found = [hit.finding() for hit in find_quirks(facts, find_target("ort-1.24"))]
    assert [one.severity for one in found] == [severity] * bool(severity)
    assert all(one.message.endswith(": session creation or the first run fails") for one in found)


@pytest.mark.parametrize(
    ("mode", "pads", "severity"),
    [
        ("constant", "-1,0", "error"),
        ("edge", "-1,2", "error"),
        ("edge", "0,-1", "warning"),
        ("reflect", "-1,0", "warning"),
    ],
)
def test_a_crop_at_the_start_is_wrong_except_in_mode_reflect(mode: str, pads: str, severity: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[6] x) => (y) '
        f'<int64[2] p = {{{pads}}}> {{ y = Pad <mode = "{mode}"> (x, p) }}'
    )
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))))
    found = [hit.finding() for hit in find_quirks(facts, find_target("ort-1.24"))]
    assert [(one.code, one.severity) for one in found] == [("DP623", severity)]


@pytest.mark.parametrize("reader", ["y = Neg (a)", "y = Concat <axis = 1> (a, b)"])
def test_an_empty_part_of_a_split_counts_even_if_no_node_reads_it(reader: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) '
        f"<int64[2] p = {{4,0}}> {{ a, b = Split <axis = 1> (x, p)  {reader} }}"
    )
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    assert [hit.quirk.code for hit in find_quirks(read_facts(model), find_target("ort-1.24"))] == ["DP608"]
