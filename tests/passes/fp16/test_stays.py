"""A model that was asked to be FP16 and is not says so."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.metrics import ProofRules
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision.gain import gained
from tests.passes.precision.graphs import InProcess, feeds_for, model_of

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""


@pytest.mark.parametrize(("keep", "says"), [(["Add", "Relu"], True), ([], False)])
def test_nothing_converted_is_a_finding(keep: list[str], says: bool) -> None:
    model = Model(ir.from_proto(parser.parse_model(_TEXT)))
    context = Context(find_target())
    make_pass("fp16", {"keep_operators": keep}).run(model, context)
    assert any(f.code == "DP406" for f in context.findings) == says


def _drifting(options: dict[str, object]) -> Context:
    """Every product is cut a little: the error is nowhere, and grows everywhere."""
    lines = "".join(f"v{i + 1} = Mul(v{i}, {'kl'[i % 2]}) " for i in range(60))
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] v0) => (float[4, 64] v60)'
    model = Model(
        ir.from_proto(parser.parse_model(f"{text} <float k = {{1.5}}, float l = {{0.66650390625}}> {{ {lines} }}"))
    )
    context = Context(find_target(), runner=InProcess([feeds_for(model)]))
    make_pass("fp16", {"islands": "auto", "rounding": "toward-zero", **options}).run(model, context)
    return context


@pytest.mark.parametrize(("tolerance", "says"), [pytest.param(0.004, True, marks=pytest.mark.slow), (0.2, False)])
def test_a_search_that_leaves_most_in_fp32_says_so(tolerance: float, says: bool) -> None:
    context = _drifting({"tolerance": tolerance, "allow": ["little-gain"]})
    found = [f for f in context.findings if f.code == "DP409"]
    assert len(found) == says
    if says:
        assert found[0].facts["fp32_nodes"] > 30


@pytest.mark.slow
def test_a_search_that_leaves_most_in_fp32_is_a_refusal_that_asks_for_less() -> None:
    with pytest.raises(ModelRefused, match="of the floating-point operations stay in FP32") as caught:
        _drifting({"tolerance": 0.004})
    assert caught.value.code == "DP409"
    assert "'v60' is off by 0.019" in caught.value.fix
    said = re.search(r"a tolerance of ([0-9.]+) needs at most (\d+) nodes", caught.value.fix)
    assert said is not None
    kept = _drifting({"tolerance": float(said[1])}).facts.kept_fp32
    assert len(kept) <= int(said[2])


_LAYERS = "".join(f"v{i + 1} = MatMul(v{i}, w{i}) " for i in range(4))


def _stack(quantised: bool, floats: str = "w{0} = DequantizeLinear(q{0}, scale) ") -> Model:
    """Four layers of 64 x 64 weights, in FP32 or as 8-bit integers."""
    rng = np.random.default_rng(0)
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[8, 64] v0) => (float[8, 64] v4) {{ {_LAYERS} }}'
    weights = {f"w{i}": rng.standard_normal((64, 64)).astype(np.float32) / 8 for i in range(4)}
    if quantised:
        scales = "".join(floats.format(i) for i in range(4))
        text = text.replace("{ v1", f"{{ {scales} v1")
        weights = {f"q{i}": np.clip(w * 100, -127, 127).astype(np.int8) for i, w in enumerate(weights.values())}
        weights["scale"] = np.float32(0.01)
    return model_of(text, weights)


def test_quantised_weights_gain_nothing() -> None:
    with pytest.raises(ModelRefused, match="99 % of the bytes are quantised to 8 bits or less already") as caught:
        make_pass("fp16", {}).run(_stack(quantised=True), Context(find_target()))
    assert caught.value.code == "DP406"
    assert "FP32 recipe" in caught.value.fix
    context = Context(find_target())
    make_pass("fp16", {"allow": ["little-gain"]}).run(_stack(quantised=True), context)
    assert [f.code for f in context.findings] == ["DP406"]


def test_integer_weights_that_a_session_folds_to_floats_gain() -> None:
    """DirectML 1.24.4: of Cast, Mul and MatMul it runs MatMul; the floats are what the session holds."""
    model = _stack(quantised=True, floats="c{0} = Cast<to=1>(q{0}) w{0} = Mul(c{0}, scale) ")
    context = Context(find_target())
    make_pass("fp16", {}).run(model, context)
    assert not context.findings
    assert gained(model).in_fp32 == 0


def test_what_the_user_keeps_is_no_refusal() -> None:
    context = Context(find_target())
    make_pass("fp16", {"keep_patterns": ["."]}).run(_stack(quantised=False), context)
    assert [f.code for f in context.findings] == ["DP406"]
    context = Context(find_target())
    make_pass("fp16", {"keep_nodes": ["MatMul(v1)"]}).run(_stack(quantised=False), context)
    assert not context.findings


def test_rules_that_keep_everything_are_a_refusal() -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) '
        "{ a = Mul(x, tiny) b = Add(a, least) y = Log(b) }",
        {"tiny": np.float32(1e-9), "least": np.float32(1e-12)},
    )
    with pytest.raises(ModelRefused, match="no node became FP16") as caught:
        make_pass("fp16", {}).run(model, Context(find_target()))
    assert caught.value.code == "DP406"


def test_a_search_that_would_keep_all_of_a_model_refuses_it() -> None:
    """The difference of two like numbers: with any of its operands rounded, nothing of it is right."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] x) => (float[4, 64] y)
    <float k = {1.0001}> { a = Mul(x, k) y = Sub(a, x) }"""
    model = Model(ir.from_proto(parser.parse_model(text)))
    context = Context(find_target(), runner=InProcess([feeds_for(model)]))
    with pytest.raises(ModelRefused, match=r"only the whole model in FP32 has an error of at most 0\.01;") as caught:
        make_pass("fp16", {"islands": "auto", "tolerance": 0.01}).run(model, context)
    assert caught.value.code == "DP404"
    context.rules = ProofRules(tolerance="rel:0.002")
    with pytest.raises(ModelRefused, match=r"at most 0\.002;"):
        make_pass("fp16", {"islands": "auto", "tolerance": 0.01}).run(model, context)
