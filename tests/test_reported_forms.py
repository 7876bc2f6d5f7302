"""Forms of models from public bug reports: what check says of each, and what prepare makes of it, with a proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from dmlprep import api
from tests.in_process import Run
from tests.passes.precision.graphs import model_of, proto_of

Array = np.ndarray[Any, Any]


def _floats(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(np.float32)


@dataclass(frozen=True)
class Form:
    """A model, and what is right.

    Attributes:
        finds: codes that check reports as errors or warnings.
        gives: operators of the result, in order of the alphabet; empty where they do not matter.
        kept: nodes that stay in FP32.
    """

    text: str
    weights: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    recipe: str = "@static-fp32"
    finds: frozenset[str] = frozenset()
    gives: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()


_STREAM: dict[str, Any] = {"w": _floats(4, 4, 3, 3, scale=1 / 8), "big": _floats(4, 4, 3, 3, scale=60)}
_STREAM |= {"sc": np.array([1, 1, 2, 2], np.float32), "s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
_UP = "[up] y = Upsample <mode = 'linear'> (x, s)"
_SCALES: dict[str, Any] = {"s": np.array([1, 1, 2, 2], np.float32)}
_BF16 = "(float[1,4,16] x) => (float[1,4,8] y) { b = Cast<to = 16>(x) m = MatMul(b, w) y = Cast<to = 1>(m) }"
_BF16_WEIGHTS = _floats(16, 8, scale=0.25).astype(ml_dtypes.bfloat16)
FORMS: dict[str, Form] = {
    "a cubic Resize of a constant": Form(
        "(float[1,64,16,16] x) => (float[1,2,16,16] y) { a = Reshape(pos, grid) b = Transpose<perm = [0, 3, 1, 2]>(a) "
        "c = Resize<mode = 'cubic', coordinate_transformation_mode = 'pytorch_half_pixel'>(b, , sc) "
        "d = Add(x, c) y = Conv(d, w) }",
        {
            "pos": _floats(1, 1369, 64),
            "grid": np.array([1, 37, 37, 64]),
            "sc": np.array([1, 1, 16.1 / 37, 16.1 / 37], np.float32),
            "w": _floats(2, 64, 1, 1),
        },
        gives=("Add", "Conv"),
    ),
    "weights that are cast from integers": Form(
        "(float[1,48,64] x) => (float[1,48,64] y) { c = Cast<to = 1>(v) d = Mul(c, k) m = MatMul(x, d) t = Tanh(m) "
        "e = Cast<to = 1>(w) f = Mul(e, k) y = MatMul(t, f) }",
        {
            "v": (_floats(64, 64) * 40).astype(np.int8),
            "w": (_floats(64, 64) * 30).astype(np.int8),
            "k": np.float32(5e-4),
        },
        recipe="@transformer-fp16",
    ),
    "the magnitude of a spectrum": Form(
        "(float[1,1,256] x) => (float[1,4,5] y) { a = Conv<strides = [32]>(x, w) re, im = Split<axis = 1>(a, halves) "
        "p = Pow(re, two) q = Pow(im, two) s = Add(p, q) m = Sqrt(s) y = Conv(m, v) }",
        {
            "w": _floats(16, 1, 128, scale=0.1),
            "v": _floats(4, 8, 1),
            "two": np.float32(2),
            "halves": np.array([8, 8]),
        },
        recipe="@vision-fp16",
    ),
    "a Resize of values beyond FP16": Form(
        "(float[1,4,8,8] x) => (float[1,4,16,16] y) { [c0] c = Conv<pads = [1, 1, 1, 1]>(x, big) "
        "[c1] d = Conv<pads = [1, 1, 1, 1]>(c, big) [resize] r = Resize<mode = 'nearest'>(d, , sc) "
        "[norm] n = InstanceNormalization(r, s, b) [tail] t = Conv<pads = [1, 1, 1, 1]>(n, w) "
        "[last] u = Conv<pads = [1, 1, 1, 1]>(t, w) [end] y = Tanh(u) }",
        _STREAM,
        recipe="@vision-fp16",
        kept=frozenset({"c1", "resize", "norm"}),
    ),
    "a file in FP16 that overflows": Form(
        "(float[4,16] x) => (float[4,16] y) { h = Cast<to = 10>(x) [first] a = MatMul(h, w) [grow] b = Mul(a, big) "
        "[square] c = Mul(b, b) [sum] s = ReduceSum<keepdims = 1>(c, one) [root] r = Sqrt(s) [back] n = Div(b, r) "
        "[second] m = MatMul(n, w) [third] o = MatMul(m, w) y = Cast<to = 1>(o) }",
        {"w": _floats(16, 16, scale=0.25).astype(np.float16), "big": np.float16(900), "one": np.array([1])},
        recipe="@transformer-fp16",
        kept=frozenset({"square", "sum"}),
    ),
    "a product of four bits whose data the CPU rounds": Form(
        "(float[5,64] x) => (float[5,16] y) { y = com.microsoft.MatMulNBits <K = 64, N = 16, bits = 4, "
        "block_size = 32, accuracy_level = 4> (x, w, s) }",
        {
            "w": np.random.default_rng(0).integers(0, 256, (16, 2, 16), dtype=np.uint8),
            "s": np.abs(_floats(32, scale=0.1)),
        },
    ),
    "an Upsample of opset 9": Form(
        f"(float[1,2,5,6] x) => (float[1,2,10,12] y) {{ {_UP} }}", _SCALES, 9, finds=frozenset({"DP628"})
    ),
    "an Upsample of opset 7": Form(
        "(float[1,2,5,6] x) => (float[1,2,10,12] y)"
        " { y = Upsample<mode = 'linear', scales = [1.0, 1.0, 2.0, 2.0]>(x) }",
        {},
        7,
        finds=frozenset({"DP628"}),
    ),
    "a Resize of opset 10": Form(
        "(float[1,2,5,6] x) => (float[1,2,10,12] y) { y = Resize <mode = 'linear'> (x, s) }",
        _SCALES,
        10,
        finds=frozenset({"DP628"}),
    ),
    "a Swish of opset 24": Form("(float[1,4,16] x) => (float[1,4,16] y) { s = Swish(x) y = Relu(s) }", opset=24),
    "a Swish with alpha": Form(
        "(float[1,4,16] x) => (float[1,4,16] y) { s = Swish<alpha = 1.5>(x) y = Relu(s) }", opset=24
    ),
    "the length of a sequence": Form(
        "(float[1,4,8] x) => (float[1,8,8] y) { a = Sigmoid(x) b = Neg(x) s = SequenceConstruct(a, b) "
        "n = SequenceLength(s) c = ConcatFromSequence<axis = 1>(s) f = Cast<to = 1>(n) m = Mul(c, f) y = Relu(m) }",
        opset=13,
    ),
    "weights of BF16 behind a cast": Form(
        _BF16, {"w": _BF16_WEIGHTS}, finds=frozenset({"DP503", "DP507"}), gives=("MatMul",)
    ),
    "weights of BF16 behind a cast, in FP16": Form(
        _BF16, {"w": _BF16_WEIGHTS}, finds=frozenset({"DP503", "DP507"}), recipe="@transformer-fp16"
    ),
    "whether an optional has an element": Form(
        "(float[1,4,8] x) => (float[1,4,8] y) { a = Sigmoid(x) n = OptionalHasElement(a) "
        "f = Cast<to = 1>(n) y = Mul(x, f) }",
        opset=18,
        finds=frozenset({"DP612"}),
    ),
}


def _saved(form: Form, path: Path) -> Path:
    version = 11 if form.opset > 21 else 8
    head = f'<ir_version: {version}, opset_import: ["" : {form.opset}, "com.microsoft" : 1]> g '
    onnx.save(proto_of(model_of((head + form.text).replace("'", '"'), dict(form.weights))), path)
    return path


@pytest.mark.parametrize("name", FORMS)
def test_check_reports_what_prepare_mends_and_nothing_else(name: str, tmp_path: Path) -> None:
    record = api.check(_saved(FORMS[name], tmp_path / "in.onnx"))
    assert {f.code for f in record.findings if f.severity in ("error", "warning")} == FORMS[name].finds


@pytest.mark.parametrize("device", ["cpu", pytest.param("dml", marks=pytest.mark.dml)])
@pytest.mark.parametrize("name", FORMS)
def test_the_result_is_proved(name: str, device: str, tmp_path: Path) -> None:
    form = FORMS[name]
    record = api.prepare(
        _saved(form, tmp_path / "in.onnx"),
        out=tmp_path / "out",
        recipe=form.recipe,
        device=device,  # type: ignore[arg-type]
    )
    assert (record.exit_code, {v.outcome for v in record.verdicts}) == (0, {"passed"}), record.error
    assert record.facts.placement_after is not None
    assert record.facts.placement_after.node_share == 1
    kept = {name for step in record.steps for name in step.facts.kept_fp32}
    assert form.kept <= kept
    assert not kept or form.kept
    made = onnx.load(tmp_path / "out" / "model.onnx").graph
    assert not form.gives or tuple(sorted(n.op_type for n in made.node)) == form.gives


_ATTENTION = """
  l0 = LayerNormalization<axis = -1>(x, g, b)
  q = MatMul(l0, wq)  qs = Reshape<allowzero = 1>(q, heads)  qt = Transpose<perm = [0, 2, 1, 3]>(qs)
  k = MatMul(l0, wk)  ks = Reshape<allowzero = 1>(k, heads)  kt = Transpose<perm = [0, 2, 3, 1]>(ks)
  v = MatMul(l0, wv)  vs = Reshape<allowzero = 1>(v, heads)  vt = Transpose<perm = [0, 2, 1, 3]>(vs)
  qm = Mul(qt, root)  km = Mul(kt, root)  s = MatMul(qm, km)  m = Add(s, mask)  p = Softmax<axis = -1>(m)
  nan = IsNaN(p)  pw = Where(nan, zero, p)  o = MatMul(pw, vt)
  ot = Transpose<perm = [0, 2, 1, 3]>(o)  os = Reshape<allowzero = 1>(ot, flat)  a = MatMul(os, wo)  r = Add(x, a)
  l1 = LayerNormalization<axis = -1>(r, g, b)  u = MatMul(l1, wu)
  d = Div(u, root2)  e = Erf(d)  e1 = Add(e, one)  ue = Mul(u, e1)  gelu = Mul(ue, half)  w = MatMul(gelu, wd)
  y = Add(r, w)"""
_BARS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a transformer of today's exporter": (
        "(float[2,16,64] x, bool[2,1,1,16] seen) => (float[2,16,64] y)"
        f" {{ mask = Where(seen, zero, lowest) {_ATTENTION} }}",
        {
            **{f"w{name}": _floats(64, 64, scale=1 / 8) for name in "qkvo"},
            "wu": _floats(64, 256, scale=1 / 8),
            "wd": _floats(256, 64, scale=1 / 16),
            "g": np.ones(64, np.float32),
            "b": np.zeros(64, np.float32),
            "heads": np.array([2, 16, 4, 16]),
            "flat": np.array([2, 16, 64]),
            **{n: np.float32(v) for n, v in {"root": 0.5, "root2": 2**0.5, "one": 1, "half": 0.5, "zero": 0}.items()},
            "lowest": np.float32(np.finfo(np.float32).min),
        },
        "@transformer-fp16",
    ),
    "a bidirectional LSTM": (
        "(float[24,2,40] x) => (float[24,2,20] y) { h = LSTM<hidden_size = 64, direction = 'bidirectional'>(x, w, r, b)"
        " t = Transpose<perm = [0, 2, 1, 3]>(h) f = Reshape(t, flat) o = MatMul(f, v) y = LogSoftmax<axis = -1>(o) }",
        {
            "w": _floats(2, 256, 40, scale=1 / 8),
            "r": _floats(2, 256, 64, scale=1 / 8),
            "b": _floats(2, 512, scale=0.1),
            "flat": np.array([24, 2, 128]),
            "v": _floats(128, 20, scale=0.1),
        },
        "@speech-fp16",
    ),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("dml", marks=pytest.mark.dml)])
@pytest.mark.parametrize("name", _BARS)
def test_fp16_is_for_all_of_a_model(name: str, device: str, tmp_path: Path) -> None:
    """Half the bytes, no node in FP32, and casts at the ends alone: nothing stays in FP32 for the CPU's sake."""
    text, weights, recipe = _BARS[name]
    path = _saved(Form(text, weights), tmp_path / "in.onnx")
    record = api.prepare(path, out=tmp_path / "out", recipe=recipe, device=device)  # type: ignore[arg-type]
    assert (record.exit_code, {v.outcome for v in record.verdicts}) == (0, {"passed"}), record.error
    assert not [kept for step in record.steps for kept in step.facts.kept_fp32]
    made = tmp_path / "out" / "model.onnx"
    assert made.stat().st_size <= 0.55 * path.stat().st_size
    assert sum(n.op_type == "Cast" for n in onnx.load(made).graph.node) <= 2


def test_the_advice_pins_a_batch_behind_the_sequence_to_1(tmp_path: Path, run: Run) -> None:
    text = "(int64[sequence,batch] ids) => (float[sequence,batch,8] y) { e = Gather(table, ids) y = MatMul(e, w) }"
    form = Form(text, {"table": _floats(50, 16), "w": _floats(16, 8)})
    shown = run("check", _saved(form, tmp_path / "in.onnx")).out
    assert "--pin batch=1" in shown
    assert "--pin sequence=1 " not in shown


_NORMED = Form(
    "(float[1,1,64] q, float[1,1,32] k, float[1,1,32] v, float[1,1,8,32] pk, float[1,1,8,32] pv) "
    "=> (float[1,1,64] y, float[1,1,8,32] ok, float[1,1,8,32] ov) { y, ok, ov = com.microsoft.GroupQueryAttention "
    "<num_heads = 2, kv_num_heads = 1, qk_norm_epsilon = 0.000001> "
    "(q, k, v, pk, pv, last, total, , , , , , , , qn, kn) }",
    {
        "last": np.array([[7]], np.int32),
        "total": np.array([8], np.int32),
        "qn": np.linspace(0.5, 2, 32, dtype=np.float32),
        "kn": np.ones(32, np.float32),
    },
    opset=21,
)
"""GroupQueryAttention that norms queries and keys, behind a cache."""


def test_norms_of_attention_are_proved_and_its_cache_is_a_warning(tmp_path: Path) -> None:
    """onnxruntime-genai binds past and present to one memory; then DirectML reads the cache."""
    record = api.prepare(_saved(_NORMED, tmp_path / "in.onnx"), out=tmp_path / "out", device="cpu")
    assert record.exit_code == 0, record.error
    (known,) = [f for f in record.all_findings() if f.code == "DP641"]
    assert (known.severity, known.facts["quirk_code"], known.facts["certain"]) == ("warning", "DP649", False)
    made = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    (attention,) = [n for n in made if n.op_type == "GroupQueryAttention"]
    assert len(attention.input) < 15
    assert len({n.op_type for n in made}) > 1


@pytest.mark.dml
def test_a_cache_that_directml_does_not_read_is_named_where_the_proof_fails(tmp_path: Path) -> None:
    record = api.prepare(_saved(_NORMED, tmp_path / "in.onnx"), out=tmp_path / "out", require_dml=True)
    assert record.exit_code == 1
    assert record.error is not None
    assert record.error.fix.endswith("is a known fault of DirectML: dmlprep explain DP649")
