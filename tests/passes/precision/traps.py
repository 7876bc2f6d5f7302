"""Models that hold one trap of FP16 conversion each; every one must convert, load, and keep its values."""

from __future__ import annotations

import numpy as np

_RNG = np.random.default_rng(1)


def _normal(*shape: int) -> np.ndarray:
    return (_RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def _text(
    body: str, ends: str = "(float[2,16] x) => (float[2,16] y)", opset: int = 17, ir: int = 8, more: str = ""
) -> str:
    return f'<ir_version: {ir}, opset_import: ["" : {opset}{more}]>\ng {ends} {{\n{body}\n}}'


W = {"w": _normal(16, 16)}

TRAPS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "explicit_cast": (
        _text("m = Cast<to=1>(i) a = MatMul(x, w) y = Mul(a, m)", "(float[2,16] x, int64[2,16] i) => (float[2,16] y)"),
        W,
    ),
    "cast_chain": (_text("d = Cast<to=11>(x) e = Cast<to=1>(d) a = MatMul(e, w) f = Cast<to=1>(a) y = Relu(f)"), W),
    "cast_to_output": (_text("y = Cast<to=1>(i)", "(int64[2,16] i) => (float[2,16] y)"), {}),
    "cast_back_to_int": (
        _text(
            "f = Cast<to=1>(i) g = Mul(f, k) h = Floor(g) j = Cast<to=7>(h) y = Gather<axis=1>(x, j)",
            "(float[2,4096] x, int64[3] i) => (float[2,3] y)",
        ),
        {"k": np.float32(2047.0)},
    ),
    "cast_like": (
        _text("a = MatMul(x, w) c = CastLike(i, a) y = Mul(a, c)", "(float[2,16] x, int64[2,16] i) => (float[2,16] y)"),
        W,
    ),
    "constant_of_shape": (_text("s = Shape(x) c = ConstantOfShape(s) a = MatMul(x, w) y = Add(a, c)"), W),
    "constant_of_shape_value": (
        _text("s = Shape(x) c = ConstantOfShape<value = float[1] {0.5}>(s) y = Add(x, c)"),
        {},
    ),
    "constant_float": (_text("c = Constant<value_float = 0.25>() y = Mul(x, c)"), {}),
    "constant_floats": (_text("c = Constant<value_floats = [0.25]>() a = MatMul(x, w) y = Mul(a, c)"), W),
    "constant_is_output": (
        _text(
            "c = Constant<value = float[2] {0.5, 2.0}>() z = Identity(c) y = Relu(x)",
            "(float[2,16] x) => (float[2,16] y, float[2] z)",
        ),
        {},
    ),
    "eye_like": (_text("e = EyeLike<dtype=1>(w) a = MatMul(x, e) y = Relu(a)"), W),
    "range": (_text("r = Range(z, n, o) y = Add(x, r)"), {"z": np.float32(0), "n": np.float32(16), "o": np.float32(1)}),
    "resize_scales_shared": (
        _text(
            'r = Resize<mode="linear">(x, , s) t = Mul(s, k) u = ReduceSum<keepdims=0>(t) y = Mul(r, u)',
            "(float[1,3,8,8] x) => (float[1,3,16,16] y)",
        ),
        {"s": np.array([1, 1, 2, 2], np.float32), "k": np.float32(0.5)},
    ),
    "resize_10": (
        _text("r = Resize(x, s) y = Relu(r)", "(float[1,3,8,8] x) => (float[1,3,16,16] y)", opset=10, ir=5),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "upsample_9": (
        _text("r = Upsample(x, s) y = Relu(r)", "(float[1,3,8,8] x) => (float[1,3,16,16] y)", opset=9, ir=4),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize_computed_scales": (
        _text(
            "s = Shape(x) f = Cast<to=1>(s) g = Mul(f, k) h = Div(g, f) r = Resize(x, , h) y = Relu(r)",
            "(float[1,3,8,8] x) => (float[1,3,16,16] y)",
        ),
        {"k": np.array([1, 1, 2, 2], np.float32)},
    ),
    "batch_normalization": (
        _text("y = BatchNormalization(x, s, b, m, v)", "(float[2,4,3,3] x) => (float[2,4,3,3] y)"),
        {
            "s": _normal(4),
            "b": _normal(4),
            "m": _normal(4),
            "v": np.array([1e-9, 0.5, 1.0, 2.0], np.float32),
        },
    ),
    "layer_normalization_mean": (
        _text(
            "n, mean, inv = LayerNormalization<axis=-1>(x, s, b) y = Add(n, mean)",
        ),
        {"s": _normal(16), "b": _normal(16)},
    ),
    "lstm": (
        _text(
            "o, h, c = LSTM<hidden_size=8>(t, lw, lr) y = MatMul(h, hw)",
            "(float[5,2,16] t) => (float[1,2,4] y)",
        ),
        {"lw": _normal(1, 32, 16), "lr": _normal(1, 32, 8), "hw": _normal(8, 4)},
    ),
    "gru_swapped_axes": (
        _text(
            "t = Transpose<perm=[1,0,2]>(x) o, h = GRU<hidden_size=8>(t, lw, lr) q = Squeeze(o, one) "
            "z = Transpose<perm=[1,0,2]>(q) y = MatMul(z, hw)",
            "(float[2,5,16] x) => (float[2,5,4] y)",
        ),
        {"lw": _normal(1, 24, 16), "lr": _normal(1, 24, 8), "hw": _normal(8, 4), "one": np.array([1])},
    ),
    "swapped_axes_before_matmul": (
        _text("t = Transpose<perm=[1,0,2]>(x) y = MatMul(t, w)", "(float[2,3,16] x) => (float[3,2,16] y)"),
        W,
    ),
    "rotated_axes_before_matmul": (
        _text(
            "t = Transpose<perm=[1,2,0,3]>(x) y = MatMul(t, w)",
            "(float[1,2,3,16] x) => (float[2,3,1,16] y)",
        ),
        W,
    ),
    "decomposed_layer_norm": (
        _text(
            "m = ReduceMean<axes=[-1]>(b) d = Sub(b, m) p = Pow(d, two) v = ReduceMean<axes=[-1]>(p) e = Add(v, eps) "
            "q = Sqrt(e) n = Div(d, q) y = Mul(n, s)",
            "(float[2,16] b) => (float[2,16] y)",
        ),
        {"two": np.float32(2), "eps": np.float32(1e-12), "s": _normal(16)},
    ),
    "qdq_13": (
        _text(
            "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(wq, ws, wz) a = "
            "MatMul(d, e) "
            "y = Relu(a)",
            "(float[2,16] x) => (float[2,8] y)",
            opset=13,
            ir=7,
        ),
        {
            "s": np.float32(0.03),
            "z": np.int8(0),
            "wq": _RNG.integers(-127, 127, (16, 8)).astype(np.int8),
            "ws": np.float32(0.01),
            "wz": np.int8(0),
        },
    ),
    "qdq_19": (
        _text("a = MatMul(x, w) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) y = Relu(d)", opset=19, ir=9),
        {**W, "s": np.float32(0.03), "z": np.int8(0)},
    ),
    "if_captures": (
        _text(
            "s = ReduceSum<keepdims=0>(x) c = Greater(s, zero) h = Relu(x) "
            "o = If(c) <then_branch = t () => (float[2,16] a) { a = MatMul(h, w) }, "
            "else_branch = e () => (float[2,16] b) { b0 = Mul(h, k) b = Neg(b0) }> y = Tanh(o)"
        ),
        {**W, "zero": np.float32(0), "k": np.float32(0.5)},
    ),
    "loop_carried": (
        _text(
            "o, all = Loop(n, t, x) <body = b (int64 i, bool c, float[2,16] s) => (bool c2, float[2,16] s3, "
            "float[2,16] r) "
            "{ c2 = Identity(c) s2 = MatMul(s, w) f = Cast<to=1>(i) s3 = Add(s2, f) r = Relu(s3) }> "
            "u = ReduceSum<keepdims=0>(all, z) y = Add(o, u)"
        ),
        {**W, "n": np.array(3), "t": np.array(True), "z": np.array([0])},
    ),
    "scan": (
        _text(
            "f, y = Scan<num_scan_inputs=1, body = b (float[16] s, float[16] r) => (float[16] t, float[16] u) "
            "{ t = Add(s, r) u = Mul(t, k) }>(init, x)"
        ),
        {"init": _normal(16), "k": np.float32(0.5)},
    ),
    "sequence": (
        _text(
            "a = MatMul(x, w) q = SequenceConstruct(a, x) c = ConcatFromSequence<axis=0>(q) y = Relu(c)",
            "(float[2,16] x) => (float[4,16] y)",
        ),
        W,
    ),
    "split_to_sequence": (
        _text(
            "q = SplitToSequence<axis=1>(x, eight) a = SequenceAt(q, one) y = Relu(a)",
            "(float[2,16] x) => (float[2,8] y)",
        ),
        {"eight": np.array(8), "one": np.array(1)},
    ),
    "optional": (
        _text("o = Optional(x) e = OptionalGetElement(o) y = MatMul(e, w)", opset=18),
        W,
    ),
    "initializer_shared": (_text("a = MatMul(x, w) c = CumSum(w, zero) y = MatMul(a, c)"), {**W, "zero": np.array(0)}),
    "initializer_is_output": (
        _text("y = MatMul(x, w)", "(float[2,16] x) => (float[2,16] y, float[16,16] w)"),
        W,
    ),
    "input_is_output": (
        _text("y = MatMul(x, w)", "(float[2,16] x, float[3] p) => (float[2,16] y, float[3] p)"),
        W,
    ),
    "output_is_read": (_text("a = MatMul(x, w) y = Relu(a)", "(float[2,16] x) => (float[2,16] a, float[2,16] y)"), W),
    "half_already_in_places": (
        _text("h = Cast<to=10>(x) a = Mul(h, hk) f = Cast<to=1>(a) y = MatMul(f, w)"),
        {**W, "hk": np.float16(0.5)},
    ),
    "clip_without_bounds": (
        _text("a = MatMul(x, w) y = Clip(a, lo, hi)"),
        {**W, "lo": np.float32(-3.4028235e38), "hi": np.float32(3.4028235e38)},
    ),
    "clip_6": (_text("a = MatMul(x, w) y = Clip<min=0.0, max=6.0>(a)", opset=9, ir=4), W),
    "pad_value": (
        _text("y = Pad(x, p, v)", "(float[2,16] x) => (float[2,18] y)"),
        {"p": np.array([0, 1, 0, 1]), "v": np.float32(0.1)},
    ),
    "where_mask": (
        _text(
            "a = MatMul(x, w) m = Where(b, a, neg) y = Softmax(m)",
            "(float[2,16] x, bool[2,16] b) => (float[2,16] y)",
        ),
        {**W, "neg": np.float32(-3.4028235e38)},
    ),
    "two_masks": (
        _text(
            "a = MatMul(x, w) f = Cast<to=1>(i) g = Sub(one, f) m = Mul(g, neg) n = Add(m, causal) s = Add(a, n) "
            "y = Softmax(s)",
            "(float[2,16] x, int64[2,16] i) => (float[2,16] y)",
        ),
        {
            **W,
            "one": np.float32(1),
            "neg": np.float32(-3.4028235e38),
            "causal": np.where(np.tri(2, 16, 8) > 0, 0, -1e9).astype(np.float32),
        },
    ),
    "minus_infinity_mask": (
        _text("a = MatMul(x, w) s = Add(a, m) y = Softmax(s)"),
        {**W, "m": np.where(np.tri(2, 16, 4) > 0, 0, -np.inf).astype(np.float32)},
    ),
    "tiny_weights": (_text("a = MatMul(x, t) y = Mul(a, k)"), {"t": _normal(16, 16) * 1e-7, "k": np.float32(1e6)}),
    "large_scale": (_text("a = Mul(x, k) b = Mul(a, l) y = Tanh(b)"), {"k": np.float32(1e5), "l": np.float32(1e-5)}),
    "l2_normalise": (
        _text("n = ReduceL2<axes=[-1]>(x) c = Clip(n, eps) y = Div(x, c)"),
        {"eps": np.float32(1e-12)},
    ),
    "reciprocal_of_epsilon": (
        _text(
            "v = ReduceMean<axes=[-1]>(x) z = Mul(v, nil) e = Add(z, eps) q = Sqrt(e) r = Reciprocal(q) t = "
            "Mul(r, small) y = Mul(x, t)"
        ),
        {"eps": np.float32(1e-12), "nil": np.float32(0), "small": np.float32(1e-6)},
    ),
    "position_phase": (
        _text(
            "f = Cast<to=1>(p) u = Unsqueeze(f, one) a = Mul(u, k) s = Sin(a) y = MatMul(s, w)",
            "(int64[3] p) => (float[3,16] y)",
        ),
        {**W, "k": np.linspace(900, 0.01, 16).astype(np.float32), "one": np.array([1])},
    ),
    "running_phase": (
        _text(
            "u = Unsqueeze(f, one) r = Resize<mode='nearest'>(u, , scales) d = Div(r, rate) c = CumSum(d, two) "
            "a = Mul(c, turn) y = Sin(a)".replace("'", '"'),
            "(float[1,16] f) => (float[1,1,512] y)",
        ),
        {
            "one": np.array([1]),
            "two": np.array(2),
            "scales": np.array([1, 1, 32], np.float32),
            "rate": np.float32(12),
            "turn": np.float32(6.2831853),
        },
    ),
    "top_k": (
        _text("v, i = TopK(x, k) y = Relu(v)", "(float[2,16] x) => (float[2,3] y)"),
        {"k": np.array([3])},
    ),
    "double": (
        _text("a = MatMul(x, d) b = Cast<to=1>(a) y = Relu(b)", "(double[2,16] x) => (float[2,16] y)"),
        {"d": _normal(16, 16).astype(np.float64)},
    ),
    "double_in_and_out": (
        _text("a = Cast<to=1>(x) b = MatMul(a, w) y = Cast<to=11>(b)", "(double[2,16] x) => (double[2,16] y)"),
        W,
    ),
    "scatter_with_reduction": (
        _text('a = MatMul(x, w) y = ScatterElements<axis=1, reduction="add">(a, i, x)', opset=16),
        {**W, "i": _RNG.integers(0, 16, (2, 16))},
    ),
    "machine_learning_domain": (
        '<ir_version: 8, opset_import: ["ai.onnx.ml" : 1]>\n'
        "g (float[2,3] x) => (float[2,3] y) { y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x) }",
        {},
    ),
    "einsum": (_text('y = Einsum<equation="ij,jk->ik">(x, w)'), W),
    "variadic": (
        _text("a = Sum(x, x, k) b = Max(a, x) c, d = Split<axis=1>(b) y = Concat<axis=1>(d, c)"),
        {"k": np.float32(0.25)},
    ),
    "contrib": (
        _text(
            "a = MatMul(x, w) g = com.microsoft.Gelu(a) y = com.microsoft.FusedMatMul<alpha = 0.5>(g, w)",
            more=', "com.microsoft" : 1',
        ),
        W,
    ),
    "skip_layer_normalization": (
        _text(
            "a = MatMul(x, w) y, m, v, s = com.microsoft.SkipLayerNormalization<epsilon = 1e-5>(a, x, g)",
            more=', "com.microsoft" : 1',
        ),
        {**W, "g": _normal(16)},
    ),
    "names_taken": (
        _text("y_fp16 = MatMul(x, w) x_fp16 = Relu(y_fp16) y = CumSum(x_fp16, zero)"),
        {**W, "zero": np.array(1)},
    ),
    "initializer_input_ir3": (
        _text("a = MatMul(x, w) y = Relu(a)", "(float[2,16] x, float[16,16] w) => (float[2,16] y)", opset=9, ir=3),
        W,
    ),
    "initializer_input_ir3_shared": (
        _text(
            "a = MatMul(x, w) y = CumSum(a, zero)",
            "(float[2,16] x, float[16,16] w, int32 zero) => (float[2,16] y)",
            opset=11,
            ir=3,
        ),
        {**W, "zero": np.array(0, np.int32)},
    ),
    "initializer_input_ir8": (
        _text("a = MatMul(x, w) y = Relu(a)", "(float[2,16] x, float[16,16] w) => (float[2,16] y)"),
        W,
    ),
    "function": (
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n'
        "g (float[2,16] x) => (float[2,16] y) { a = MatMul(x, w) b = my.Swish(a) y = my.Swish(b) }\n"
        '<domain: "my", opset_import: ["" : 17]>\n'
        "Swish (a) => (o) { k = Constant<value_float = 1.702>() b = Mul(a, k) s = Sigmoid(b) o = Mul(a, s) }",
        W,
    ),
    "non_max_suppression": (
        _text(
            "b = MatMul(x, bw) c = Mul(b, k) boxes = Reshape(c, bs) s = MatMul(x, sw) t = Sigmoid(s) scores "
            "= Reshape(t, ss) "
            "i = NonMaxSuppression(boxes, scores, n, iou) y = Cast<to=1>(i)",
            "(float[1,16] x) => (float[m,3] y)",
        ),
        {
            "bw": _normal(16, 16),
            "k": np.float32(640),
            "bs": np.array([1, 4, 4]),
            "sw": _normal(16, 4),
            "ss": np.array([1, 1, 4]),
            "n": np.array([4]),
            "iou": np.array([0.5], np.float32),
        },
    ),
    "mean_variance_normalization": (
        _text(
            "a = Mul(x, k) n = MeanVarianceNormalization(a) y = Mul(n, k)", "(float[2,3,4,4] x) => (float[2,3,4,4] y)"
        ),
        {"k": np.float32(0.5)},
    ),
    "cast_like_between_types": (
        _text(
            "m = Where(b, zero, low) c = CastLike(m, h) s = Add(h, c) y = Softmax(s)",
            "(float16[2,16] h, bool[2,16] b) => (float16[2,16] y)",
        ),
        {"zero": np.float32(0), "low": np.float32(-np.inf)},
    ),
    "log_sum_exp": (
        _text("l = Mul(x, k) e = Exp(l) s = ReduceSum(e, one) y = Log(s)", "(float[2,16] x) => (float[2,1] y)"),
        {"k": np.float32(20), "one": np.array([1])},
    ),
    "dynamic_quantisation": (
        _text(
            "hi = ReduceMax<keepdims=0>(x) lo = ReduceMin<keepdims=0>(x) r = Sub(hi, lo) "
            "s = Div(r, n) l = Div(lo, s) p = Neg(l) q = Round(p) z = Cast<to=2>(q) y = QuantizeLinear(x, s, z)",
            "(float[2,16] x) => (uint8[2,16] y)",
        ),
        {"n": np.float32(255)},
    ),
    "nothing_floating": (_text("y = Add(i, i)", "(int64[2] i) => (int64[2] y)"), {}),
}
"""Name -> (ONNX text, weights)."""
