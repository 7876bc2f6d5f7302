"""Attention masks as exporters write them: the softmax stays what it is, in rows that are masked whole, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes.precision import FP16_MAX, convert, emulate
from tests.passes.precision.graphs import model_of, proto_of, run

MIN = np.float32(-3.4028235e38)
TRI = np.tril(np.ones((8, 8), bool))[None, None]
KEEP = {
    # who may be attended to: everyone, the first five, the last five, no one
    "all": [1] * 8,
    "right_padded": [1, 1, 1, 1, 1, 0, 0, 0],
    "left_padded": [0, 0, 0, 1, 1, 1, 1, 1],
    "none": [0] * 8,
}
_TABLE = np.random.default_rng(5).standard_normal((4, 2)).astype(np.float32)
_BUCKETS = np.random.default_rng(6).integers(0, 4, (8, 8))
_INVERTED = "f = Cast<to=1>(m) u = Unsqueeze(f, inner) i = Sub(one, u) "
_BOOLEAN = "b = Cast<to=9>(m) u = Unsqueeze(b, inner) "
_COMMON = {
    "inner": np.array([1, 2]),
    "outer": np.array([0, 1]),
    "first": np.array([0]),
    "one": np.float32(1),
    "zero": np.float32(0),
    "min": MIN,
    "again": MIN,
    "low": np.float32(-1e9),
    "lowest": np.float32(-65504),
    "inf": np.float32(-np.inf),
    "tri": TRI,
    "causal": np.where(TRI, 0, -1e9).astype(np.float32),
    "causal_half": np.where(TRI, 0, -65504).astype(np.float32),
    "causal_inf": np.where(TRI, 0, -np.inf).astype(np.float32),
    "whole": np.full((1, 1, 8, 8), -65504, np.float32),
    "sizes": np.array([8, 8]),
    "k": np.array(1),
    "root": np.float32(0.35),
    "eight": np.float32(8),
    "tiny": np.float32(1e-4),
    "huge": np.float32(1e12),
    "table": _TABLE,
    "buckets": _BUCKETS,
}
PATTERNS = {
    "bert_extended": _INVERTED + "n = Mul(i, min) s = Add(q, n) y = Softmax(s)",
    "bert_1e9": _INVERTED + "n = Mul(i, low) s = Add(q, n) y = Softmax(s)",
    "every_layer": _INVERTED
    + "n = Mul(i, min) s = Add(q, n) p = Softmax(s) t = Add(p, n) r = Softmax(t) v = Add(r, n) y = Softmax(v)",
    "gpt2_where": _INVERTED + "c = Where(tri, q, min) n = Mul(i, again) s = Add(c, n) y = Softmax(s)",
    "causal_and_padding": _INVERTED + "n = Mul(i, low) a = Add(n, causal) s = Add(q, a) y = Softmax(s)",
    "causal_and_padding_of_half": _INVERTED + "n = Mul(i, lowest) a = Add(n, causal_half) s = Add(q, a) y = Softmax(s)",
    "masked_twice": _INVERTED + "n = Mul(i, lowest) a = Add(n, whole) s = Add(q, a) y = Softmax(s)",
    "sdpa_infinite": _BOOLEAN + "n = Where(u, zero, inf) s = Add(q, n) y = Softmax(s)",
    "sdpa_guarded": _BOOLEAN
    + "n = Where(u, zero, inf) s = Add(q, n) p = Softmax(s) k2 = IsNaN(p) y = Where(k2, zero, p)",
    "sdpa_min_guarded": _BOOLEAN
    + "n = Where(u, zero, min) s = Add(q, n) p = Softmax(s) k2 = IsNaN(p) y = Where(k2, zero, p)",
    "sdpa_scaled": _BOOLEAN + "h = Mul(q, root) n = Where(u, zero, min) s = Add(h, n) y = Softmax(s)",
    "masked_fill_of_inverted": _INVERTED + "c = Cast<to=9>(i) n = Where(c, min, i) s = Add(q, n) y = Softmax(s)",
    "t5_bias": _INVERTED
    + "g = Gather(table, buckets) t = Transpose<perm=[2,0,1]>(g) h = Unsqueeze(t, first) n = Mul(i, min) a = Add(h, n) "
    "s = Add(q, a) p = Softmax(s) r = Add(p, a) y = Softmax(r)",
    "causal_cache": "l = ConstantOfShape<value = float[1] {-3.4028235e38}>(sizes) t = Trilu(l, k) "
    "c = Unsqueeze(t, outer) u = Unsqueeze(m, inner) f = Cast<to=1>(u) a = Add(c, f) e = Equal(a, zero) "
    "n = Where(e, min, c) s = Add(q, n) y = Softmax(s)",
    "unmask_unattended": _BOOLEAN + "c = And(u, tri) n = Where(c, zero, min) e = Equal(n, again) f = Cast<to=6>(e) "
    "g = ReduceMin<axes = [-1], keepdims = 1>(f) h = Cast<to=9>(g) o = Not(h) w = Cast<to=1>(o) v = Mul(n, w) "
    "s = Add(q, v) y = Softmax(s)",
    "floor_by_max": _INVERTED + "n = Mul(i, min) s = Add(q, n) v = Max(s, again) y = Softmax(v)",
    "taken_off": "f = Cast<to=1>(m) u = Unsqueeze(f, inner) a = Mul(q, u) i = Sub(one, u) n = Mul(i, huge) "
    "s = Sub(a, n) y = Softmax(s)",
    "scaled_up_behind": _BOOLEAN + "h = Mul(q, tiny) n = Where(u, h, low) s = Mul(n, eight) y = Softmax(s)",
    "scaled_down_behind": _BOOLEAN + "n = Where(u, q, low) s = Mul(n, tiny) y = Softmax(s)",
    "three_masks": _INVERTED + "n = Mul(i, low) a = Add(n, causal) d = Add(a, causal) s = Add(q, d) y = Softmax(s)",
}
NO_INPUT = {"whisper_decoder": "t = Trilu(causal_inf, k) s = Add(q, t) y = Softmax(s)"}


def _model(body: str) -> Model:
    marks = body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    weights = {name: array for name, array in _COMMON.items() if name in marks}
    mask = ", int64[1,8] m" if " m " in f" {' '.join(marks)} " else ""
    ends = f"(float[1,2,8,8] q{mask}) => (float[1,2,8,8] y)"
    return model_of(f'<ir_version: 8, opset_import: ["" : 17]> g {ends} {{ {body} }}', weights)


def _session(model: Model) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(proto_of(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(["y"], feeds)[0]


def _whole(name: str, keep: str) -> np.ndarray:
    """The rows, [8], that are masked whole: FP32 tells -1e4 + score from -1e4, and FP16 does not."""
    seen = np.array(KEEP[keep], bool)
    causal = any(mark in PATTERNS[name] for mark in ("causal", "tri", "Trilu"))
    if name == "masked_twice":
        return np.ones(8, bool)
    return ~((TRI[0, 0] if causal else np.ones((8, 8), bool)) & seen).any(-1)


@pytest.mark.parametrize("name", PATTERNS)
def test_softmax_is_the_same(name):
    rng = np.random.default_rng(1)
    model = _model(PATTERNS[name])
    original = _session(model)
    convert(model, find_target())
    onnx.checker.check_model(proto_of(model), full_check=True)
    nearest = _session(emulate(model))
    others = [_session(emulate(model, rounding="toward-zero")), _session(model)]
    for keep, seen in KEEP.items():
        feeds = {"q": rng.uniform(-5, 5, (1, 2, 8, 8)).astype(np.float32), "m": np.array([seen], np.int64)}
        want, whole = original(feeds), _whole(name, keep)
        for number, session in enumerate((nearest, *others)):
            got = session(feeds)
            assert not (np.isnan(got) & ~np.isnan(want)).any()
            np.testing.assert_allclose(got[..., ~whole, :], want[..., ~whole, :], atol=4e-3)
            if number == 0 and name not in ("causal_and_padding_of_half", "masked_twice"):
                # scores vanish beside the mask, as in FP32; not where rounding is toward zero
                np.testing.assert_allclose(got[..., whole, :], want[..., whole, :], atol=4e-3)  # NaN where FP32 is
            elif not np.isnan(got).any() and "guarded" not in name:
                np.testing.assert_allclose(got[..., whole, :].sum(-1), 1, atol=4e-3)
    before = model.snapshot()
    assert not convert(model, find_target()).changed
    assert before.same_as(model.snapshot())


@pytest.mark.parametrize("name", NO_INPUT)
def test_softmax_of_a_constant_mask(name):
    feeds = {"q": np.random.default_rng(1).uniform(-5, 5, (1, 2, 8, 8)).astype(np.float32)}
    model = _model(NO_INPUT[name])
    want = run(model, feeds)["y"]
    convert(model, find_target())
    np.testing.assert_allclose(run(emulate(model), feeds)["y"], want, atol=2e-3)


@pytest.mark.parametrize(
    ("name", "count", "sum_of"),
    [
        ("bert_extended", 1, 1),
        ("gpt2_where", 2, 2),
        ("causal_and_padding", 2, 2),
        ("masked_twice", 2, 2),
        ("three_masks", 2, 3),
    ],
)
def test_masks_that_add_up_stay_finite(name, count, sum_of):
    done = convert(_model(PATTERNS[name]), find_target())
    found = [f for f in done.findings if f.code == "DP401"]
    assert len(found) == count
    assert sum(f.facts["becomes"] for f in found) <= FP16_MAX or sum_of == 3
    assert not done.kept_fp32


def test_a_mask_that_a_factor_would_weaken_stays_fp32():
    done = convert(_model(PATTERNS["scaled_down_behind"]), find_target())
    assert done.rules["constant-too-large"] >= 2


def test_a_factor_behind_a_mask_counts():
    done = convert(_model(PATTERNS["scaled_up_behind"]), find_target())
    assert [f.facts["becomes"] for f in done.findings if f.code == "DP401"] == [57344 / 8]


def test_compared_masks_get_one_value():
    done = convert(_model(PATTERNS["unmask_unattended"]), find_target())
    assert {f.facts["becomes"] for f in done.findings if f.code == "DP401"} == {57344.0}
    assert not done.kept_fp32


def test_a_mask_that_is_made_in_fp32_is_lowered_there():
    """The comparison stays in FP32; a cast of -3.4e38 behind it would make infinities, and NaN of rows masked whole."""
    model = _model(PATTERNS["causal_cache"])
    done = convert(model, find_target())
    assert set(done.rules) == {"integers-in-floats"}
    stored = model.ir.graph.initializers["min"].const_value
    assert stored is not None
    assert float(stored.numpy()) > -FP16_MAX


def test_a_constant_that_is_compared_with_ordinary_numbers_is_no_mask():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ s = Add(x, low) b = Greater(s, other) f = Cast<to=1>(b) y = Mul(f, x) }",
        {"low": np.float32(-1e9), "other": np.float32(-2e9)},
    )
    assert "constant-too-large" in convert(model, find_target()).rules


@pytest.mark.parametrize(("lowest", "beta"), [(-1e9, 1.0), (-3.4028235e38, 1.0), (1e9, -1.0), (-1e9, 0.5)])
def test_a_mask_that_a_gemm_adds(lowest, beta):
    """The simplifier makes Gemm of MatMul and Add, and the mask its C."""
    mask = np.where(TRI[0, 0], 0, lowest).astype(np.float32)
    weights = {"w": np.eye(8, dtype=np.float32), "causal": mask}
    body = f"s = Gemm<beta = {beta}>(x, w, causal) y = Softmax(s)"
    model = model_of(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[8,8] x) => (float[8,8] y) {{ {body} }}', weights
    )
    original = _session(model)
    done = convert(model, find_target())
    assert not done.kept_fp32
    feeds = {"x": np.random.default_rng(2).uniform(-5, 5, (8, 8)).astype(np.float32)}
    expected, got = original(feeds), _session(emulate(model))(feeds)
    assert np.abs(got - expected).max() < 5e-3
    assert got[~TRI[0, 0]].max() == 0


def test_a_low_factor_of_a_gemm_is_no_mask():
    weights = {"w": np.full((8, 8), -1e9, np.float32), "causal": np.zeros((8, 8), np.float32)}
    body = "s = Gemm(x, w, causal) y = Softmax(s)"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[8,8] x) => (float[8,8] y) {{ {body} }}'
    assert convert(model_of(text, weights), find_target()).kept_fp32
