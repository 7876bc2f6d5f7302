"""Layer normalizations in single operators: all in FP32, so that ONNX Runtime fuses them, or only their squares."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision import convert
from dmlprep.runtime import SessionOptions, dml_status, open_dml
from tests.fixtures_index import FIXTURES
from tests.passes.precision.graphs import model_of, proto_of, relative, run

_HEAD = '<ir_version: 8, opset_import: ["" : OPSET]> g (float[4,8,16] x) => (float[4,8,16] y) '
_MEAN = {
    14: "ReduceMean<axes = [-1]>({})",
    16: "ReduceMean<axes = [2]>({})",
    17: "ReduceMean<axes = [-1]>({})",
    21: "ReduceMean({}, last)",
}
_ROOT = "[square] p = Pow(d, two) [mean2] v = MEAN(p) [add] e = Add(v, eps) [root] q = Sqrt(e) "
_START = "[w] a = MatMul(x, w) [mean] m = MEAN(a) [sub] d = Sub(a, m) "
_END = "[div] n = Div(d, q) [scale] s = Mul(n, g) [bias] b = Add(s, c) [out] y = MatMul(b, w)"
_ALL = {"mean", "sub", "square", "mean2", "add", "root", "div", "scale", "bias"}
_SQUARES = {"square", "mean2", "add", "root"}


def _model(body: str, opset: int = 14, **other: np.ndarray) -> Model:
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "w": rng.standard_normal((16, 16), np.float32) / 4,
        "g": rng.uniform(0.5, 1.5, 16).astype(np.float32),
        "c": rng.standard_normal(16, np.float32),
        "two": np.array(2, np.float32),
        "eps": np.array(1e-5, np.float32),
    }
    if opset >= 18:
        weights["last"] = np.array([-1])
    for operand in "ap":
        body = body.replace(f"MEAN({operand})", _MEAN[opset].format(operand))
    model = model_of(f"{_HEAD.replace('OPSET', str(opset))} {{ {body} }}", {**weights, **other})
    product = next(n for n in model.ir.graph if n.name == "w").outputs[0]
    product.type, product.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([4, 8, 16])
    return model


def _casts(model: Model) -> list[tuple[str, str]]:
    """The operator before and after each Cast."""
    casts = [n for n in model.ir.graph if n.op_type == "Cast"]
    makers = [(n.inputs[0].producer() if n.inputs[0] is not None else None, n.outputs[0]) for n in casts]
    return [(maker.op_type, reader.op_type) for maker, v in makers if maker is not None for reader in v.consumers()]


@pytest.mark.parametrize("opset", [14, 16, 17, 21])
@pytest.mark.parametrize("subs", [1, 2])
def test_a_norm_that_is_fused_stays_in_one_type(opset: int, subs: int) -> None:
    again = "[sub2] d2 = Sub(a, m) " + _END.replace("Div(d,", "Div(d2,")
    model = _model(_START + _ROOT + (again if subs == 2 else _END), opset)
    done = convert(model, find_target())
    assert set(done.kept_fp32) == _ALL | ({"sub2"} if subs == 2 else set())
    assert set(_casts(model)) <= {("MatMul", "ReduceMean"), ("MatMul", "Sub"), ("Add", "MatMul")}
    assert {"w", "out"}.isdisjoint(done.kept_fp32)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[scale] s = Mul(n, g) ", "[scale] s = Mul(n, square) "),  # scale is no vector
        ("[bias] b = Add(s, c) ", "[bias] b = Relu(s) "),  # no bias
        ("[bias] b = Add(s, c) ", "[bias] b = Add(s, n) "),  # no constant, and two readers of the quotient
        ("[mean] m = MEAN(a)", "[mean] m = ReduceMean<axes = [1]>(a)"),  # another axis
        ("[div] n = Div(d, q)", "[div] n = Div(d, d)"),  # not divided by the root
        ("[sub] d = Sub(a, m)", "[sub] d = Sub(x, m)"),  # not from its own mean
        ("Pow(d, two)", "Mul(d, d)"),  # ONNX Runtime fuses only Pow
    ],
)
def test_other_norms_keep_only_their_squares(old: str, new: str) -> None:
    body = _START + _ROOT + _END
    assert old in body
    model = _model(body.replace(old, new), square=np.ones((8, 16), np.float32))
    assert set(convert(model, find_target()).kept_fp32) == _SQUARES


def test_from_opset_17_on_weights_of_another_size_keep_only_the_squares() -> None:
    """ONNX Runtime would fuse FP16 data and an FP32 scale, and LayerNormalization needs a scale of its data's size."""
    model = _model(_START + _ROOT + _END, 17, g=np.ones(1, np.float32), c=np.ones(1, np.float32))
    assert set(convert(model, find_target()).kept_fp32) == _SQUARES


def _prepared(model: Model, **options: Any) -> tuple[bool, onnx.ModelProto]:
    """Whether the step fp16 changed the model, and the result, which ONNX Runtime loads with full optimization."""
    changed = make_pass("fp16", {"allow": ["little-gain"], **options}).run(model, Context(find_target()))
    proto = proto_of(model)
    onnx.checker.check_model(proto, full_check=True)
    ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return changed, proto


@pytest.mark.parametrize("opset", [17, 21])
def test_from_opset_17_on_a_norm_becomes_one_node_in_fp32(opset: int) -> None:
    feed = {"x": 1000 * np.random.default_rng(0).standard_normal((4, 8, 16)).astype(np.float32)}
    model = _model(_START + _ROOT + _END, opset)
    want = run(model, feed)["y"]
    changed, proto = _prepared(model)
    assert changed
    assert [n.op_type for n in proto.graph.node if n.op_type not in ("Cast", "MatMul")] == ["LayerNormalization"]
    assert {i.name for i in proto.graph.initializer} == {"w", "g", "c"}
    assert relative(want, run(proto, feed)["y"]) < 3e-3
    again, _ = _prepared(model)
    assert not again


@settings(max_examples=40, deadline=None)
@given(
    keep=st.sets(st.sampled_from(sorted(_ALL))),
    policy=st.sampled_from(["fast", "balanced"]),
    opset=st.sampled_from([14, 17, 21]),
)
def test_the_result_loads_whichever_nodes_of_a_norm_stay_in_fp32(keep: set[str], policy: str, opset: int) -> None:
    model = _model(_START + _ROOT + _END, opset)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 8, 16)).astype(np.float32)}
    want = run(model, feed)["y"]
    _, proto = _prepared(model, keep_nodes=sorted(keep), policy=policy)
    assert relative(want, run(proto, feed)["y"]) < 3e-3


@settings(max_examples=30, deadline=None)
@given(size=st.floats(1e-2, 6e3), seed=st.integers(0, 99), opset=st.sampled_from([14, 17, 21]))
def test_a_norm_is_right_at_each_size_of_its_values(size: float, seed: int, opset: int) -> None:
    model = _model(_START + _ROOT + _END, opset)
    feed = {"x": size * np.random.default_rng(seed).standard_normal((4, 8, 16)).astype(np.float32)}
    want = run(model, feed)["y"]
    convert(model, find_target())
    assert relative(want, run(model, feed)["y"]) < 3e-3


@pytest.mark.parametrize("name", ["bert_encoder", "decoder_cache"])
def test_no_cast_is_inside_a_norm_of_a_transformer(name: str) -> None:
    model = Model.open(next(f for f in FIXTURES if f.name == name).path)
    convert(model, find_target())
    inside = {"Sub", "Pow", "Sqrt", "Div"}
    assert not [pair for pair in _casts(model) if inside & {pair[0]} and inside & {pair[1]}]


@pytest.mark.dml
@pytest.mark.slow
@pytest.mark.parametrize("opset", [14, 16, 17, 21])
def test_directml_runs_a_norm_as_one_node(opset: int, tmp_path: Path) -> None:
    if not dml_status().available:
        pytest.skip("no DirectML")
    model = _model(_START + _ROOT + _END, opset)
    feed = {"x": 1000 * np.random.default_rng(0).standard_normal((4, 8, 16)).astype(np.float32)}
    want = run(model, feed)["y"]
    onnx.save(_prepared(model)[1], tmp_path / "m.onnx")
    with open_dml(tmp_path / "m.onnx", SessionOptions(unfused=True, profile=True)) as session:
        assert relative(want, session.run(feed)["y"]) < 3e-3
        ran = Counter(kernel.op_type for kernel in session.timings())
    assert ran["LayerNormalization"] == 1
    assert ran["Sqrt"] == 0
