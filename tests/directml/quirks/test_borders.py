"""Both sides of the borders of quirks, as the real DirectML of 1.24.4 and 1.30.0 shows them (lavapipe, 29 November)."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model


def _quirks(graph: str, opset: int) -> list[str]:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {graph}')
    model, target = Model(ir.from_proto(proto)), find_target("ort-1.24")
    hits = find_quirks(read_facts(model, target.tables), target)
    return [f"{hit.quirk.id} {hit.finding().severity}" for hit in hits]


def _resize(place: str, inputs: str, rows: str = "5", axes: str = "axes = [2, 3],", mode: str = "nearest") -> str:
    """A Resize of FP32 with the region ``r``, the sizes ``s`` or the scales ``k``; an empty region ``e``."""
    return (
        f"(float[1,2,{rows},7] x) => (y) <float[4] r = {{0.1, 0.2, 0.9, 0.8}}, float[0] e = {{}}, "
        f"int64[2] s = {{8, 11}}, float[2] k = {{1.6, 1.6}}, float[4] all = {{1, 1, 1.6, 1.6}}> {{ a = Neg (x) "
        f'y = Resize <{axes} coordinate_transformation_mode = "{place}", mode = "{mode}"> (a, {inputs}) }}'
    )


@pytest.mark.parametrize(
    ("graph", "ids"),
    [
        (_resize("tf_crop_and_resize", 'r, "", s'), ["resize-crop-axes error"]),
        (_resize("tf_crop_and_resize", "r, k"), ["resize-crop-axes error"]),
        (_resize("tf_crop_and_resize", 'r, "", s', mode="cubic"), []),  # the CPU runs it
        (_resize("half_pixel", 'r, "", s', rows="h"), ["resize-region error"]),
        (_resize("half_pixel", 'r, "", s'), ["resize-region warning"]),  # right in this fused graph
        (_resize("half_pixel", 'e, "", s', rows="h"), []),
        (_resize("half_pixel", '"", "", s', rows="h"), []),
        (_resize("asymmetric", "r, k"), ["resize-region error"]),
        (_resize("asymmetric", '"", k'), []),
        (_resize("asymmetric", "r, all", rows="h", axes=""), []),
    ],
)
def test_resize_fails_with_a_region_and_axes(graph: str, ids: list[str]) -> None:
    assert _quirks(graph, 19) == ids


@pytest.mark.parametrize(
    ("batch", "opset", "ids"),
    [
        ("2", 13, []),
        ("n", 10, ["quantize-zero-point warning"]),
        ("n", 19, ["quantize-zero-point warning"]),
        ("n", 21, []),
    ],
)
def test_quantization_without_zero_point_fails_outside_of_fused_graphs(batch: str, opset: int, ids: list[str]) -> None:
    graph = (
        f"(float[{batch},3] x) => (uint8[{batch},3] y) <float s = {{0.1}}> {{ a = Neg (x) y = QuantizeLinear (a, s) }}"
    )
    assert _quirks(graph, opset) == ids


@pytest.mark.parametrize(
    ("outputs", "nodes", "ids"),
    [
        ("float[2,0] p, float[2,4] y", "y = Relu (x)", ["empty-output error"]),
        ("float[2,4] y, float[2,0] p", "y = Relu (x)", ["empty-output error"]),
        ("float[2,0] p", "", []),
        ("float[2,0] p, float[2,0] y", "y = Relu (p)", []),
        ("float[2,0] p, int64[1] k", "", []),  # a constant
    ],
)
def test_an_empty_output_spoils_only_outputs_with_elements(outputs: str, nodes: str, ids: list[str]) -> None:
    slice_ = "<int64[1] b = {4}, int64[1] a = {1}, int64[1] k = {7}> { p = Slice (x, b, b, a)"
    assert _quirks(f"(float[2,4] x) => ({outputs}) {slice_} {nodes} }}", 17) == ids
