"""Edges of constants, masks and types: one model each, run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import MINE, Edge, W, ints, normal, text

_RNG = np.random.default_rng(3)

VALUES: dict[str, Edge] = {
    "resize_scales_input": Edge(
        text("a=Mul(x, k) y=Resize(a, , s)", "(float[1, 3, 8, 8] x, float[4] s) => (float[1, 3, h, w] y)"),
        {"k": np.float32(0.5)},
        feeds={"x": normal(1, 3, 8, 8), "s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize_scales_computed_fp": Edge(
        text(
            "sh=Shape(x) sf=Cast<to=1>(sh) q=Slice(sf, b, e) m=Mul(q, k2) d=Div(m, q) "
            "c=Concat<axis=0>(o, d) a=Mul(x, k) y=Resize(a, , c)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 16, 16] y)",
        ),
        {"k": np.float32(0.5), "b": ints(2), "e": ints(4), "k2": np.float32(2), "o": np.array([1, 1], np.float32)},
    ),
    "bn_tiny_var": Edge(
        text("y=BatchNormalization<epsilon=1e-12>(x, s, b, m, v)", "(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y)"),
        {"s": normal(4, k=1e-05), "b": normal(4), "m": normal(4), "v": np.abs(normal(4, k=1e-10)) + 1e-10},
    ),
    "dq_tiny_scale": Edge(
        text("w1=DequantizeLinear<axis=1>(wq, ws) y=MatMul(x, w1)", opset=21, ir=10),
        {"wq": _RNG.integers(-127, 127, (16, 16)).astype(np.int8), "ws": np.full(16, 4e-06, np.float32)},
    ),
    "castlike_in": Edge(text("a=CastLike(i, x) y=Add(a, x)", "(int64[2, 16] i, float[2, 16] x) => (float[2, 16] y)")),
    "castlike_to_int": Edge(
        text("a=CastLike(x, i) b=Add(a, i) y=Cast<to=1>(b)", "(int64[2, 16] i, float[2, 16] x) => (float[2, 16] y)")
    ),
    "cast_string": Edge(text("s=Cast<to=8>(x) y=Cast<to=1>(s)")),
    "int_cast_feeds_both": Edge(
        text("f=Cast<to=1>(i) a=MatMul(f, w) b=CumSum(f, z) y=Add(a, b)", "(int64[2, 16] i) => (float[2, 16] y)"),
        {**W, "z": np.array(1)},
    ),
    "cast_chain_fdf": Edge(
        text(
            "a=Cast<to=11>(x) b=Mul(a, k) c=Cast<to=1>(b) d=MatMul(c, w) e=Cast<to=11>(d) "
            "f=Cast<to=1>(e) g=Cast<to=16>(f) y=Cast<to=1>(g)"
        ),
        {**W, "k": np.float64(0.5)},
    ),
    "bool_cast": Edge(text("g=Greater(x, z) f=Cast<to=1>(g) m=Mul(x, f) y=MatMul(m, w)"), {**W, "z": np.float32(0)}),
    "double_consts": Edge(
        text("a=Mul(x, k) b=Exp(a) y=Div(b, k2)", "(double[2, 16] x) => (double[2, 16] y)"),
        {"k": np.float64(0.5), "k2": np.float64(0.001)},
    ),
    "nan_inf_const": Edge(
        text(
            "a=Where(m, x, nan) b=Where(n, a, inf) y=Add(b, ninf)",
            "(float[2, 16] x, bool[2, 16] m, bool[2, 16] n) => (float[2, 16] y)",
        ),
        {"nan": np.float32(np.nan), "inf": np.float32(np.inf), "ninf": np.array([0] * 15 + [-np.inf], np.float32)},
    ),
    "big_chain": Edge(
        text("a=Mul(x, k) b=Mul(a, k) c=Mul(b, r) y=Mul(c, r)"), {"k": np.float32(100000.0), "r": np.float32(1e-05)}
    ),
    "big_chain_mid": Edge(
        text("a=Mul(x, k) b=Relu(a) c=Transpose<perm=[1, 0]>(b) d=Reshape(c, s) y=Mul(d, r)"),
        {"k": np.float32(100000.0), "r": np.float32(1e-05), "s": ints(2, 16)},
    ),
    "big_const_add_sub": Edge(text("a=Add(x, k) y=Sub(a, k)"), {"k": np.float32(100000.0)}),
    "big_div": Edge(text("a=Div(x, k) y=Mul(a, k)"), {"k": np.float32(100000.0)}),
    "big_pow": Edge(text("a=Pow(x, k) s=Sqrt(a) y=Sqrt(s)"), {"k": np.float32(4)}),
    "pow_int": Edge(text("a=Pow(x, k) y=Add(a, x)"), {"k": np.array(2)}),
    "pow_int_computed": Edge(text("s=Shape(x) e=Gather(s, z) a=Pow(x, e) y=Add(a, x)"), {"z": np.array(0)}),
    "clip_maxfloat": Edge(
        text("a=MatMul(x, w) b=Clip(a, lo, ) y=Clip(b, , hi)"),
        {**W, "lo": np.float32(0), "hi": np.float32(3.4028235e38)},
    ),
    "clip_const_nodes": Edge(
        text(
            "lo=Constant<value=float{-3.4028235e38}>() hi=Constant<value_float=6.0>() a=MatMul(x, w) y=Clip(a, lo, hi)"
        ),
        W,
    ),
    "clip_computed": Edge(
        text("m=ReduceMax<keepdims=0>(x) a=MatMul(x, w) y=Clip(a, z, m)"), {**W, "z": np.float32(-1)}
    ),
    "where_min": Edge(
        text(
            "a=MatMul(x, w) b=Where(m, a, low) r=ReduceMax<axes=[1], keepdims=1>(b) y=Softmax(b)",
            "(float[2, 16] x, bool[2, 16] m) => (float[2, 16] y)",
        ),
        {**W, "low": np.float32(-3.4028235e38)},
    ),
    "mask_mul_1e9": Edge(
        text(
            "a=MatMul(x, w) f=Cast<to=1>(m) i=Sub(one, f) b=Mul(i, big) c=Add(a, b) y=Softmax(c)",
            "(float[2, 16] x, int64[2, 16] m) => (float[2, 16] y)",
        ),
        {**W, "one": np.float32(1), "big": np.float32(-1000000000.0)},
    ),
    "dropout12_mask": Edge(
        text("a=MatMul(x, w) d, m=Dropout(a, r, t) n=Cast<to=1>(m) y=Mul(d, n)", opset=13),
        {**W, "r": np.float32(0.5), "t": np.array(False)},
    ),
    "ml_scaler_norm": Edge(
        '<ir_version:8, opset_import:["":17, "ai.onnx.ml":3]> g (float[2, 3] x)=>(float[2, 3] y){ '
        'a=ai.onnx.ml.Scaler<offset=[0.5], scale=[2.0]>(x) b=ai.onnx.ml.Normalizer<norm="L2">(a) '
        "y=MatMul(b, w) }",
        {"w": normal(3, 3)},
    ),
    "fn_const_inside": Edge(
        text(
            "y=my.F(x)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17]> F(p)=>(o){ k=Constant<value=float{1e6}>() '
            "a=Mul(p, k) r=Constant<value=float{1e-6}>() o=Mul(a, r) }",
        )
    ),
    "const_fold_scalar_int": Edge(text("c=Constant<value_int=3>() f=Cast<to=1>(c) y=Mul(x, f)")),
    "constant_double": Edge(text("c=Constant<value=double{0.5}>() d=Cast<to=1>(c) y=Mul(x, d)")),
    "two_outputs_same_producer_cast": Edge(
        text(
            "a=MatMul(x, w) y=Cast<to=11>(a) z=Cast<to=10>(a) q=Cast<to=1>(a)",
            "(float[2, 16] x)=>(double[2, 16] y, float16[2, 16] z, float[2, 16] q)",
        ),
        W,
    ),
    "half_input_mixed": Edge(
        text("f=Cast<to=1>(h) a=Add(x, f) y=MatMul(a, w)", "(float[2, 16] x, float16[2, 16] h)=>(float[2, 16] y)"), W
    ),
    "half_output_mixed": Edge(
        text("a=MatMul(x, w) h=Cast<to=10>(a) y=Relu(a)", "(float[2, 16] x)=>(float[2, 16] y, float16[2, 16] h)"), W
    ),
    "shape_of_cast": Edge(text("d=Cast<to=11>(x) s=Shape(d) n=Size(d) y=Reshape(x, s)")),
    "constantofshape_int": Edge(text("s=Shape(x) c=ConstantOfShape<value=int64[1]{2}>(s) f=Cast<to=1>(c) y=Mul(x, f)")),
    "constantofshape_big": Edge(
        text("s=Shape(x) c=ConstantOfShape<value=float[1]{1e6}>(s) a=Mul(x, c) d=Div(a, c) y=Tanh(d)")
    ),
    "div_65535": Edge(
        text(
            "f=Cast<to=1>(i) a=Div(f, k) b=Sub(a, m) c=MatMul(b, w) d=Relu(c) y=MatMul(d, w)",
            "(uint16[2, 16] i) => (float[2, 16] y)",
        ),
        {**W, "k": np.float32(65535), "m": np.float32(0.5)},
        feeds={"i": _RNG.integers(0, 65535, (2, 16)).astype(np.uint16)},
    ),
    "div_int32": Edge(
        text("f=Cast<to=1>(i) a=Mul(f, k) c=MatMul(a, w) y=Relu(c)", "(int32[2, 16] i) => (float[2, 16] y)"),
        {**W, "k": np.float32(2 ** (-31))},
        feeds={"i": _RNG.integers(-(2**31), 2**31 - 1, (2, 16)).astype(np.int32)},
    ),
    "scale_then_conv": Edge(
        text("a=Mul(x, k) c=Conv(a, cw) d=Relu(c) y=Mul(d, r)", "(float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y)"),
        {"k": np.float32(100000.0), "cw": normal(4, 3, 3, 3, k=0.3), "r": np.float32(1e-05)},
    ),
    "scale_residual": Edge(
        text(
            "a=Mul(x, k) b=Mul(z, k) c=Add(a, b) d=Sub(c, b) y=Mul(d, r)",
            "(float[2, 16] x, float[2, 16] z) => (float[2, 16] y)",
        ),
        {"k": np.float32(100000.0), "r": np.float32(1e-05)},
    ),
    "tiny_then_mid": Edge(
        text("a=Mul(x, k) b=Relu(a) c=Transpose<perm=[1, 0]>(b) y=Mul(c, r)", "(float[2, 16] x) => (float[16, 2] y)"),
        {"k": np.float32(1e-07), "r": np.float32(30000.0)},
    ),
    "tiny_weights_relu": Edge(
        text("a=MatMul(x, w) b=Relu(a) c=MatMul(b, w2) y=Mul(c, r)"),
        {"w": normal(16, 16, k=1e-08), "w2": normal(16, 16), "r": np.float32(60000.0)},
    ),
    "mask_cos_shape": Edge(
        text(
            "s=Shape(x) c=ConstantOfShape<value=float[1]{-3.4028235e38}>(s) t=Trilu<upper=1>(c, "
            "one) a=MatMul(x, w) b=Add(a, t) y=Softmax(b)"
        ),
        {**W, "one": np.array(1)},
    ),
    "mask_expand_slice": Edge(
        text("e=Expand(m, sh) l=Slice(e, b0, b1, b2) a=MatMul(x, w) b=Add(a, l) y=Softmax(b)"),
        {
            **W,
            "m": np.where(np.tri(1, 32, 8) > 0, 0, -1e30).astype(np.float32),
            "sh": ints(2, 32),
            "b0": ints(0),
            "b1": ints(16),
            "b2": ints(1),
        },
    ),
    "mask_in_if": Edge(
        text(
            "a=MatMul(x, w) o=If(c)<then_branch=t()=>(float[2, 16] p){p=Where(m, a, low)}, "
            "else_branch=e()=>(float[2, 16] q){q=Identity(a)}> y=Softmax(o)",
            "(float[2, 16] x, bool c, bool[2, 16] m) => (float[2, 16] y)",
        ),
        {**W, "low": np.float32(-1e30)},
    ),
    "mask_double": Edge(
        text("a=MatMul(x, w) b=Where(m, a, low) y=Softmax(b)", "(double[2, 16] x, bool[2, 16] m) => (double[2, 16] y)"),
        {"w": W["w"].astype(np.float64), "low": np.float64(-1.7e308)},
    ),
    "mask_product": Edge(
        text(
            "f=Cast<to=1>(m) g=Sub(one, f) h=Mul(g, low) u=Unsqueeze(h, ax) a=MatMul(x, w) "
            "b=Add(a, u) r=ReduceMax<axes=[-1], keepdims=1>(b) d=Sub(b, r) e=Exp(d) "
            "s=ReduceSum(e, ax2) y=Div(e, s)",
            "(float[2, 3, 16] x, int64[2, 16] m) => (float[2, 3, 16] y)",
        ),
        {**W, "one": np.float32(1), "low": np.float32(-3.4028235e38), "ax": ints(1), "ax2": ints(-1)},
    ),
    "mask_argmax": Edge(
        text(
            "a=MatMul(x, w) b=Where(m, a, low) i=ArgMax<axis=1>(b) y=Cast<to=1>(i)",
            "(float[2, 16] x, bool[2, 16] m) => (float[2, 1] y)",
        ),
        {**W, "low": np.float32(-1e38)},
    ),
    "mask_topk": Edge(
        text(
            "a=MatMul(x, w) b=Where(m, a, low) v, i=TopK(b, k) y=Softmax(v)",
            "(float[2, 16] x, bool[2, 16] m) => (float[2, 4] y)",
        ),
        {**W, "low": np.float32(-1e38), "k": ints(4)},
    ),
    "isinf_mask": Edge(
        text(
            "a=Where(m, x, low) b=Equal(a, low) c=Where(b, z, x) y=MatMul(c, w)",
            "(float[2, 16] x, bool[2, 16] m) => (float[2, 16] y)",
        ),
        {**W, "low": np.float32(-3.4028235e38), "z": np.float32(0)},
    ),
    "compare_big": Edge(
        text("a=Greater(x, k) b=Where(a, z, x) y=MatMul(b, w)"), {**W, "k": np.float32(1000000.0), "z": np.float32(0)}
    ),
    "compare_tiny": Edge(
        text("a=Abs(x) b=Less(a, k) c=Where(b, z, x) y=MatMul(c, w)"), {**W, "k": np.float32(1e-08), "z": np.float32(0)}
    ),
    "minmax_big": Edge(
        text("a=Max(x, lo) b=Min(a, hi) y=MatMul(b, w)"), {**W, "lo": np.float32(-1e30), "hi": np.float32(1e30)}
    ),
    "layernorm_decomposed_1e-12": Edge(
        text(
            "m=ReduceMean<axes=[-1]>(x) d=Sub(x, m) p=Pow(d, two) v=ReduceMean<axes=[-1]>(p) "
            "e=Add(v, eps) q=Sqrt(e) n=Div(d, q) y=MatMul(n, w)"
        ),
        {**W, "two": np.float32(2), "eps": np.float32(1e-12)},
    ),
    "rms_rsqrt": Edge(
        text(
            "p=Mul(x, x) v=ReduceMean<axes=[-1]>(p) e=Add(v, eps) q=Sqrt(e) r=Reciprocal(q) n=Mul(x, r) y=MatMul(n, w)"
        ),
        {**W, "eps": np.float32(1e-06)},
    ),
    "half_weights_cast_up": Edge(text("u=Cast<to=1>(h) a=MatMul(x, u) y=Relu(a)"), {"h": W["w"].astype(np.float16)}),
    "weights_int8_cast": Edge(
        text("u=Cast<to=1>(h) v=Mul(u, s) a=MatMul(x, v) y=Relu(a)"),
        {"h": _RNG.integers(-127, 127, (16, 16)).astype(np.int8), "s": np.float32(0.01)},
    ),
    "floor_div_index": Edge(
        text(
            "f=Cast<to=1>(i) d=Div(f, k) l=Floor(d) j=Cast<to=7>(l) y=Gather(x, j)",
            "(float[3000, 2] x, int64[4] i)=>(float[4, 2] y)",
        ),
        {"k": np.float32(3)},
        feeds={"x": normal(3000, 2), "i": np.array([8997, 8996, 6143, 4099])},
    ),
}
