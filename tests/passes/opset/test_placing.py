"""The opset and the operators are chosen by what stays on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes.base import Context, OnCpu
from dmlprep.passes.opset.opset_pass import OpsetOptions, OpsetPass
from dmlprep.passes.opset.placing import best_placed
from dmlprep.pipeline.placing import context_for
from tests.passes.opset.models import opened, parse, reference, run
from tests.passes.precision.graphs import proto_of

TWO_NORMS = (
    '<ir_version: 10, opset_import: ["" : 17]> g (float[2,4,8] x, float[8] s) => (float[2,4,8] y, float[2,4,1] m)'
    " { [told] a, m = LayerNormalization (x, s) [plain] y = LayerNormalization (a, s) }"
)
DEFORM = (
    '<ir_version: 10, opset_import: ["" : 22]> g (float[1,2,5,5] x, float[3,2,3,3] w, float[1,18,3,3] o) => '
    "(float[1,3,3,3] y) { y = DeformConv <kernel_shape = [3, 3]> (x, w, o) }"
)
SCATTER = (
    '<ir_version: 10, opset_import: ["" : 18]> g (float[4,3] x, int64[2,1] i, float[2,3] u) => '
    '(float[4,3] y, float[4,3] z) { y = ScatterND <reduction: string = "add"> (x, i, u) '
    "[same] z = ScatterND (x, i, u) }"
)
CUMULATED = (
    '<ir_version: 10, opset_import: ["" : 26]> g (int32[3,4] x) => (int32[3,4] y) <int64 axis = {1}>'
    " { y = CumProd (x, axis) }"
)
GROUP_NORM = (
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,8,3,3] x, float[8] s, float[8] b) => (float[2,8,3,3] y)'
    " { m = Mish (x) y = GroupNormalization <num_groups = 4> (m, s, b) }"
)
# 1, -2, 3 and -4, two to a byte: the parser packs nothing itself.
GELU_BESIDE_INT4 = (
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,4] x) => (float[2,4] y)'
    " <int4[4] w = {225, 195}, float scale = {0.5}> { d = DequantizeLinear (w, scale) a = Add (x, d) y = Gelu (a) }"
)


def _brought(text: str) -> tuple[onnx.ModelProto, list[str]]:
    """The model after the step, and the nodes that stay on the CPU."""
    target = find_target("ort-1.30")
    model, context = opened(parse(text)), context_for(target)
    assert OpsetPass(OpsetOptions()).run(model, context) == bool(context.findings)
    assert not OpsetPass(OpsetOptions()).run(model.copy(), context_for(target)), "a second run changes nothing"
    onnx.checker.check_model(proto_of(model), full_check=True)
    return proto_of(model), place(model, target).compute_on_cpu


def _same(text: str, result: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    for want, got in zip(reference(parse(text), feeds), reference(result, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def test_only_the_node_that_directml_refuses_is_written_otherwise() -> None:
    """A fused LayerNormalization is faster than its parts: the one that DirectML takes stays."""
    result, left = _brought(TWO_NORMS)
    assert left == []
    assert result.opset_import[0].version == 17
    assert [n.name for n in result.graph.node if n.op_type == "LayerNormalization"] == ["plain"]
    _same(TWO_NORMS, result, {"x": _floats(2, 4, 8), "s": _floats(8)})


def test_a_scatter_with_a_reduction() -> None:
    result, left = _brought(SCATTER)
    assert left == []
    assert [n.name for n in result.graph.node if n.op_type == "ScatterND" and n.name] == ["same"]
    feeds = {"x": _floats(4, 3), "i": np.array([[1], [3]]), "u": _floats(2, 3)}
    _same(SCATTER, result, feeds)


def test_a_body_that_computes_with_shapes_is_written_out() -> None:
    """ONNX Runtime would expand both operators, but Mish's body has no shapes to fold."""
    result, left = _brought(GROUP_NORM)
    assert (left, [n.op_type for n in result.graph.node if n.op_type == "GroupNormalization"]) == ([], [])
    assert "Mish" in [n.op_type for n in result.graph.node]
    _same(GROUP_NORM, result, {"x": _floats(2, 8, 3, 3), "s": _floats(8), "b": _floats(8)})


def test_group_normalization_becomes_one_fused_graph(tmp_path: Path) -> None:
    onnx.save(parse(GROUP_NORM), tmp_path / "model.onnx")
    record = dmlprep.prepare(tmp_path / "model.onnx", out=tmp_path / "out", recipe="@static-fp32", device="cpu")
    after = record.facts.placement_after
    assert after is not None
    assert (after.dml_nodes, after.partitions) == (after.nodes, 1)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (DEFORM, {"x": _floats(1, 2, 5, 5), "w": _floats(3, 2, 3, 3), "o": _floats(1, 18, 3, 3) / 4}),
        (CUMULATED, {"x": np.arange(1, 13, dtype=np.int32).reshape(3, 4) % 5}),
    ],
)
def test_an_operator_that_directml_lacks_becomes_others(text: str, feeds: dict[str, np.ndarray]) -> None:
    result, left = _brought(text)
    assert left == []
    _same(text, result, feeds)


def test_an_operator_that_keeps_the_model_at_its_opset_keeps_no_other_on_the_cpu() -> None:
    result, left = _brought(GELU_BESIDE_INT4)
    assert left == []
    assert "Gelu" not in {n.op_type for n in result.graph.node}


def test_what_nothing_brings_to_directml_stays_as_it_is() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,4] b, float[1,1,4] s) => (int64[n,3] y)'
        " { y = NonMaxSuppression (b, s) }"
    )
    result, left = _brought(text)
    assert len(left) == 1
    assert result.opset_import[0].version == 17


def test_a_model_that_cannot_be_lowered_stays_where_it_is() -> None:
    text = (
        '<ir_version: 12, opset_import: ["" : 25]> g (float[4] x) => (uint2[4] y, float[4] z)'
        " { y = Cast <to = 25> (x) z = Relu (x) }"
    )
    assert _brought(text)[0].opset_import[0].version == 25


def _head(text: str, opset: int = 17) -> str:
    return f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}'


SIGNED = np.array([-9, -8, -1, 0, 1, 7, 8, 9], np.int64)
FORMS = {
    "compress": (
        "(float[2,5] x, bool[3] c) => (float[2,n] y) { y = Compress <axis = 1> (x, c) }",
        {"x": _floats(2, 5), "c": np.array([True, False, True])},
    ),
    "compress_flat": (
        "(float[2,3] x, bool[6] c) => (float[n] y) { y = Compress (x, c) }",
        {"x": _floats(2, 3), "c": np.array([True, False, True, False, False, True])},
    ),
    "compress_nothing": (
        "(float[2,3] x, bool[6] c) => (float[n] y) { y = Compress (x, c) }",
        {"x": _floats(2, 3), "c": np.zeros(6, bool)},
    ),
    "dropout": ("(float[2,3] x) => (float[2,3] y) { y = Dropout (x) }", {"x": _floats(2, 3)}),
    "mod": (
        "(int64[8] x, int64[8] d) => (int64[8] y) { y = Mod (x, d) }",
        {"x": SIGNED, "d": np.array([4, -4, 3, 5, -3, -7, 3, -2])},
    ),
    "mod_fmod": (
        "(int64[8] x, int64[8] d) => (int64[8] y) { y = Mod <fmod = 1> (x, d) }",
        {"x": SIGNED, "d": np.array([4, -4, 3, 5, -3, -7, 3, -2])},
    ),
    "one_hot_of_floats": (
        "(float[3] x) => (float[3,4] y) <float depth = {4}, float[2] v = {0.5, 2}> { y = OneHot (x, depth, v) }",
        {"x": np.array([0, 3, 2], np.float32)},
    ),
    "integers_to_a_power": (
        "(int64[8] x) => (int64[8] y) <int64 e = {5}> { y = Pow (x, e) }",
        {"x": SIGNED},
    ),
    "resize_cubic": (
        "(float[1,2,5,6] x) => (float[1,2,9,8] y) <int64[4] z = {1, 2, 9, 8}>"
        ' { y = Resize <mode = "cubic", cubic_coeff_a = -0.5, exclude_outside = 1> (x, , , z) }',
        {"x": _floats(1, 2, 5, 6)},
    ),
    "resize_cubic_aligned": (
        "(float[1,2,5,6] x) => (float[1,2,10,9] y) <float[4] s = {1, 1, 2, 1.5}>"
        ' { y = Resize <mode = "cubic", coordinate_transformation_mode = "align_corners"> (x, , s) }',
        {"x": _floats(1, 2, 5, 6)},
    ),
    "floats_to_an_integer_power": (
        "(float[2,3] x) => (float[2,3] y) <int64 e = {3}> { y = Pow (x, e) }",
        {"x": _floats(2, 3)},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_equal_form_runs_on_directml(name: str) -> None:
    text, feeds = FORMS[name]
    result, left = _brought(_head(text))
    assert left == []
    _same(_head(text), result, feeds)
    for want, got in zip(run(parse(_head(text)), feeds), run(result, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "(double[8] x, double[8] d) => (double[8] y) { y = Mod <fmod = 1> (x, d) }",
        "(int64[2] x, int64[2] e) => (int64[2] y) { y = Pow (x, e) }",
        "(int64[2] x) => (int64[2] y) <float e = {0.5}> { y = Pow (x, e) }",
        "(float[2] x, bool t) => (float[2] y) <float r = {0.5}> { y = Dropout (x, r, t) }",
    ],
)
def test_what_has_no_equal_form_stays(text: str) -> None:
    _, left = _brought(_head(text))
    assert len(left) == 1


@pytest.mark.parametrize(
    ("opset", "node", "chosen"),
    [
        (9, 'Upsample <mode = "linear"> (x, s)', 11),
        (10, 'Resize <mode = "linear"> (x, s)', 11),
        (10, 'Resize <mode = "nearest"> (x, s)', 10),
    ],
)
def test_an_old_version_that_directml_computes_wrongly_is_raised(opset: int, node: str, chosen: int) -> None:
    text = (
        f'<ir_version: 5, opset_import: ["" : {opset}]> g (float[1,2,3,4] x) => (float[1,2,6,8] y)'
        f" <float[4] s = {{1,1,2,2}}> {{ y = {node} }}"
    )
    result, left = _brought(text)
    assert (result.opset_import[0].version, left) == (chosen, [])
    feeds = {"x": _floats(1, 2, 3, 4)}
    np.testing.assert_allclose(run(result, feeds)[0], run(parse(text), feeds)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "opsets"), [(40, 10), (2000, 3)])
def test_a_large_model_is_lowered_a_few_times_only(nodes: int, opsets: int) -> None:
    """Operators that are written otherwise at each opset count as much as the opsets."""
    chain = "".join(f"v{i + 1} = Relu (v{i}) " for i in range(nodes))
    model = opened(
        parse(f'<ir_version: 10, opset_import: ["" : 21]> g (float[4] v0) => (float[4] v{nodes}) {{{chain}}}')
    )
    left = [OnCpu(f"{op}_{i}", op) for i, op in enumerate(("Cast", "Reshape", "Gelu"))]
    tried: list[int] = []

    def bring(_model: Model, opset: int, _context: Context) -> bool:
        tried.append(opset)
        return False

    best_placed(model, 21, bring, Context(find_target("ort-1.30"), on_cpu=lambda _model, _before: left))
    assert len(tried) == opsets
