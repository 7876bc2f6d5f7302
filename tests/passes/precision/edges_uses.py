"""What real models do with types, padding and weights of several uses; run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import Edge, W, ints, normal, text

_RNG = np.random.default_rng(3)

USES: dict[str, Edge] = {
    "trilu_pad_reflect": Edge(
        text('p=Pad<mode="reflect">(x, pp) t=Trilu(p) y=MatMul(t, w)', "(float[4, 14] x) => (float[4, 16] y)"),
        {**W, "pp": ints(0, 1, 0, 1)},
    ),
    "pad_neg_inf_maxpool": Edge(
        text(
            "p=Pad(x, pp, v) y=MaxPool<kernel_shape=[3, 3], strides=[2, 2]>(p)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] y)",
        ),
        {"pp": ints(0, 0, 1, 1, 0, 0, 0, 0), "v": np.float32(-np.inf)},
    ),
    "pad_min_maxpool": Edge(
        text(
            "p=Pad(x, pp, v) y=MaxPool<kernel_shape=[3, 3], strides=[2, 2]>(p)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] y)",
        ),
        {"pp": ints(0, 0, 1, 1, 0, 0, 0, 0), "v": np.float32(-3.4028235e38)},
    ),
    "pad2_attr": Edge(
        text(
            "p=Pad<pads=[0, 0, 1, 1, 0, 0, 1, 1], value=-3.4e38>(x) y=MaxPool<kernel_shape=[3, 3]>(p)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y)",
            opset=10,
            ir=5,
        )
    ),
    "pad2_attr_half": Edge(
        text(
            "p=Pad<pads=[0, 0, 1, 1, 0, 0, 1, 1], value=100000.0>(x) c=Greater(p, k) f=Cast<to=1>(c) y=Mul(f, h2)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 10, 10] y)",
            opset=10,
            ir=5,
        ),
        {"k": np.float32(5), "h2": np.float32(0.5)},
    ),
    "leakyrelu_attr_tiny": Edge(text("y=LeakyRelu<alpha=1e-9>(x)")),
    "clip6_attr_big": Edge(text("a=MatMul(x, w) y=Clip<min=-3.4e38, max=3.4e38>(a)", opset=10, ir=5), W),
    "thresholded_elu_selu": Edge(
        text("a=Elu<alpha=1.5>(x) b=Selu(a) c=ThresholdedRelu<alpha=0.1>(b) d=Celu(c) y=HardSigmoid(d)")
    ),
    "resize_attr_extrap_big": Edge(
        text(
            'y=Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", '
            "extrapolation_value=1e6>(x, r, , s)",
            "(float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y)",
        ),
        {"r": np.array([0, 0, 0.2, 0.2, 1, 1, 0.8, 0.8], np.float32), "s": ints(1, 1, 4, 4)},
    ),
    "reduce_l1_l2": Edge(
        text(
            "p=Sigmoid(x) a=ReduceL1<axes=[1]>(x) b=ReduceL2<axes=[1]>(x) "
            "c=ReduceLogSum<axes=[1]>(p) d=ReduceLogSumExp<axes=[1]>(x) e=ReduceProd<axes=[1]>(p) "
            "f=ReduceSumSquare<axes=[1]>(x) y=Sum(a, b, c, d, e, f)",
            "(float[2, 16] x) => (float[2, 1] y)",
        )
    ),
    "logsumexp_big": Edge(
        text("a=Mul(x, k) y=ReduceLogSumExp<axes=[1]>(a)", "(float[2, 16] x) => (float[2, 1] y)"), {"k": np.float32(30)}
    ),
    "attention_decomp_big_scores": Edge(
        text(
            "q=MatMul(x, w) k=MatMul(x, w) kt=Transpose<perm=[1, 0]>(k) s=MatMul(q, kt) d=Div(s, "
            "sc) p=Softmax(d) y=MatMul(p, x)"
        ),
        {"w": normal(16, 16, k=8), "sc": np.float32(4)},
    ),
    "double_float_mix": Edge(
        text(
            "d=Cast<to=11>(x) c=MatMul(d, wd) e=Cast<to=1>(c) f=Add(e, x) g0=Cast<to=11>(f) "
            "s=ReduceSum<keepdims=0>(g0) t=Cast<to=1>(s) y=Mul(x, t)"
        ),
        {"wd": W["w"].astype(np.float64)},
    ),
    "init_unused": Edge(text("y=Relu(x)"), {"u": normal(16, 16)}),
    "init_output_only": Edge(text("y=Relu(x)", "(float[2, 16] x) => (float[2, 16] y, float[16, 16] w)"), W),
    "init_output_and_used_both": Edge(
        text("a=MatMul(x, w) c=CumSum(w, z) y=MatMul(a, c)", "(float[2, 16] x) => (float[2, 16] y, float[16, 16] w)"),
        {**W, "z": np.array(0)},
    ),
    "input_two_types_use": Edge(
        text(
            "a=MatMul(x, w) b=CumSum(x, z) c=NonZero(x) d=Shape(c) e=Cast<to=1>(d) "
            "s=ReduceSum<keepdims=0>(e) f=Add(a, b) y=Mul(f, s)"
        ),
        {**W, "z": np.array(1)},
    ),
    "cast_half_then_out": Edge(text("a=MatMul(x, w) h0=Cast<to=10>(a) f=Cast<to=1>(h0) y=Relu(f)"), W),
    "quant_dynamic_in_if": Edge(
        text(
            "y=If(c)<then_branch=t()=>(float[2, 16] o){q, s, z=DynamicQuantizeLinear(x) "
            "m=MatMulInteger(q, wq, z) f=Cast<to=1>(m) sc=Mul(s, ws) o=Mul(f, sc)}, "
            "else_branch=e()=>(float[2, 16] p){p=Neg(x)}>",
            "(float[2, 16] x, bool c) => (float[2, 16] y)",
        ),
        {"wq": _RNG.integers(-127, 127, (16, 16)).astype(np.int8), "ws": np.float32(0.01)},
    ),
    "qdq_per_channel_conv": Edge(
        text(
            "q=QuantizeLinear(x, s, z) d=DequantizeLinear(q, s, z) "
            "wd=DequantizeLinear<axis=0>(wq, ws, wz) c=Conv(d, wd, b) r=Relu(c) "
            "q2=QuantizeLinear(r, s2, z) y=DequantizeLinear(q2, s2, z)",
            "(float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y)",
        ),
        {
            "s": np.float32(0.03),
            "z": np.uint8(128),
            "wq": _RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8),
            "ws": np.full(4, 0.01, np.float32),
            "wz": np.zeros(4, np.int8),
            "b": normal(4),
            "s2": np.float32(0.02),
        },
    ),
    "bias_int32_dq": Edge(
        text("bd=DequantizeLinear(bq, bs) a=MatMul(x, w) y=Add(a, bd)"),
        {**W, "bq": _RNG.integers(-(2**20), 2**20, 16).astype(np.int32), "bs": np.float32(1e-06)},
    ),
    "int_div_float_norm": Edge(
        text(
            "i=ReduceSum(m, ax) f=Cast<to=1>(i) e=Cast<to=1>(m) p=Mul(x, e) s=ReduceSum(p, ax) y=Div(s, f)",
            "(float[2, 4000] x, int64[2, 4000] m) => (float[2, 1] y)",
        ),
        {"ax": ints(1)},
        feeds={"x": normal(2, 4000), "m": np.ones((2, 4000), np.int64)},
    ),
    "masked_mean_long": Edge(
        text(
            "e=Cast<to=1>(m) i=ReduceSum(e, ax) p=Mul(x, e) s=ReduceSum(p, ax) c=Clip(i, eps, ) y=Div(s, c)",
            "(float[2, 8000] x, bool[2, 8000] m) => (float[2, 1] y)",
        ),
        {"ax": ints(1), "eps": np.float32(1e-09)},
        feeds={"x": normal(2, 8000) + 1, "m": np.ones((2, 8000), bool)},
    ),
}
