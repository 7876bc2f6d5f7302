"""What real models do around their layers: positions, masks, boxes, statistics; run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import Edge, W, ints, normal, text

_RNG = np.random.default_rng(3)

IDIOMS: dict[str, Edge] = {
    "loop_cond_float_chain": Edge(
        text(
            "f=Loop(n, t, x)<body=b(int64 i, bool c, float[2, 16] s)=>(bool d, float[2, 16] "
            "r){r=Mul(s, k) m=ReduceMax<keepdims=0>(r) d=Greater(m, th)}> y=MatMul(f, w)"
        ),
        {**W, "n": np.array(5), "t": np.array(True), "k": np.float32(0.5), "th": np.float32(1e-09)},
    ),
    "loop_accumulate_long": Edge(
        text(
            "f=Loop(n, t, z)<body=b(int64 i, bool c, float s)=>(bool d, float r){d=Identity(c) "
            "r=Add(s, one)}> y=Mul(x, f)"
        ),
        {"n": np.array(5000), "t": np.array(True), "z": np.float32(0), "one": np.float32(1)},
    ),
    "mask_cumsum_positions": Edge(
        text(
            "f=Cast<to=1>(m) c=CumSum(f, ax) d=Sub(c, one) i=Cast<to=7>(d) e=Gather(tb, i) y=MatMul(e, w)",
            "(bool[2, 16] m) => (float[2, 16, 16] y)",
        ),
        {**W, "ax": np.array(1), "one": np.float32(0), "tb": normal(20, 16)},
    ),
    "rope_decomp": Edge(
        text(
            "p=Range(z, n, o) f=Cast<to=1>(p) u=Unsqueeze(f, ax1) fr=Mul(u, inv) c=Cos(fr) "
            "s=Sin(fr) a=Mul(x, c) b=Mul(x, s) y=Add(a, b)",
            "(float[4000, 8] x) => (float[4000, 8] y)",
        ),
        {
            "z": np.array(0),
            "n": np.array(4000),
            "o": np.array(1),
            "ax1": ints(1),
            "inv": (1 / 10000 ** (np.arange(8) / 8)).astype(np.float32),
        },
    ),
    "time_embedding": Edge(
        text(
            "f=Cast<to=1>(t) u=Unsqueeze(f, ax1) fr=Mul(u, inv) c=Cos(fr) s=Sin(fr) "
            "k=Concat<axis=1>(c, s) y=MatMul(k, w)",
            "(int64[2] t) => (float[2, 16] y)",
        ),
        {**W, "ax1": ints(1), "inv": (1 / 10000 ** (np.arange(8) / 8)).astype(np.float32)},
        feeds={"t": ints(999, 421)},
    ),
    "time_embedding_float": Edge(
        text(
            "u=Unsqueeze(t, ax1) fr=Mul(u, inv) c=Cos(fr) s=Sin(fr) k=Concat<axis=1>(c, s) y=MatMul(k, w)",
            "(float[2] t) => (float[2, 16] y)",
        ),
        {**W, "ax1": ints(1), "inv": (1 / 10000 ** (np.arange(8) / 8)).astype(np.float32)},
        feeds={"t": np.array([999.0, 421.0], np.float32)},
    ),
    "meshgrid_linspace": Edge(
        text(
            "r=Range(z, n, o) f=Cast<to=1>(r) a=Add(f, h) d=Div(a, nn) e=Expand(d, sh) y=Add(x, e)",
            "(float[2, 3000] x) => (float[2, 3000] y)",
        ),
        {
            "z": np.array(0),
            "n": np.array(3000),
            "o": np.array(1),
            "h": np.float32(0.5),
            "nn": np.float32(3000),
            "sh": ints(2, 3000),
        },
    ),
    "anchor_boxes": Edge(
        text(
            "c=Cast<to=1>(i) m=Mul(c, st) a=Add(m, x) b=Concat<axis=0>(a, anc) y=Identity(b)",
            "(int64[2, 4] i, float[2, 4] x) => (float[4, 4] y)",
        ),
        {"st": np.float32(32), "anc": np.array([[1000, 1000, 1333, 1333], [0, 0, 2000, 2000]], np.float32)},
        feeds={"i": _RNG.integers(0, 40, (2, 4)), "x": normal(2, 4)},
    ),
    "clip_to_image": Edge(
        text("a=Mul(x, k) y=Clip(a, lo, hi)", "(float[2, 4] x) => (float[2, 4] y)"),
        {"k": np.float32(1333), "lo": np.float32(0), "hi": np.float32(1332)},
    ),
    "uint8_image_preproc": Edge(
        text(
            "f=Cast<to=1>(i) s=Sub(f, m) d=Div(s, sd) t=Transpose<perm=[0, 3, 1, 2]>(d) c=Conv(t, cw) y=Relu(c)",
            "(uint8[1, 8, 8, 3] i) => (float[1, 4, 6, 6] y)",
        ),
        {
            "m": np.array([123.675, 116.28, 103.53], np.float32),
            "sd": np.array([58.395, 57.12, 57.375], np.float32),
            "cw": normal(4, 3, 3, 3, k=0.3),
        },
        feeds={"i": _RNG.integers(0, 255, (1, 8, 8, 3)).astype(np.uint8)},
    ),
    "postproc_uint8": Edge(
        text(
            "c=Conv(x, cw) a=Mul(c, k) b=Clip(a, lo, hi) r=Round(b) y=Cast<to=2>(r)",
            "(float[1, 3, 8, 8] x) => (uint8[1, 4, 6, 6] y)",
        ),
        {"cw": normal(4, 3, 3, 3, k=0.001), "k": np.float32(255), "lo": np.float32(0), "hi": np.float32(255)},
    ),
    "mel_log": Edge(
        text(
            "p=Mul(x, x) m=MatMul(p, mw) c=Clip(m, eps, ) l=Log(c) mx=ReduceMax<keepdims=0>(l) "
            "s=Sub(mx, e8) t=Max(l, s) u=Add(t, f4) y=Div(u, f4)"
        ),
        {"mw": np.abs(normal(16, 16, k=0.01)), "eps": np.float32(1e-10), "e8": np.float32(8), "f4": np.float32(4)},
    ),
    "log_eps": Edge(text("s=Sigmoid(x) a=Add(s, eps) y=Log(a)"), {"eps": np.float32(1e-08)}),
    "log_zero_eps": Edge(text("r=Relu(x) a=Add(r, eps) y=Log(a)"), {"eps": np.float32(1e-09)}),
    "div_eps": Edge(
        text("r=Relu(x) s=ReduceSum(r, ax) a=Add(s, eps) y=Div(r, a)"), {"eps": np.float32(1e-09), "ax": ints(1)}
    ),
    "cosine_sim": Edge(
        text("p=Mul(x, x) s=ReduceSum(p, ax) q=Sqrt(s) m=Max(q, eps) n=Div(x, m) y=MatMul(n, w)"),
        {**W, "eps": np.float32(1e-08), "ax": ints(1)},
    ),
    "softmax_temp": Edge(text("a=MatMul(x, w) d=Div(a, t) y=Softmax(d)"), {**W, "t": np.float32(0.07)}),
    "logit_scale_exp": Edge(text("e=Exp(ls) a=MatMul(x, w) y=Mul(a, e)"), {**W, "ls": np.float32(4.6052)}),
    "groupnorm_as_instancenorm": Edge(
        text(
            "r=Reshape(x, s) n=InstanceNormalization(r, o, z) t=Reshape(n, s2) m=Mul(t, g) y=Add(m, b)",
            "(float[1, 8, 4, 4] x) => (float[1, 8, 4, 4] y)",
        ),
        {
            "s": ints(0, 2, -1),
            "o": np.ones(2, np.float32),
            "z": np.zeros(2, np.float32),
            "s2": ints(1, 8, 4, 4),
            "g": normal(8, 1, 1),
            "b": normal(8, 1, 1),
        },
    ),
    "std_unbiased": Edge(
        text("m=ReduceMean<axes=[1]>(x) d=Sub(x, m) p=Mul(d, d) s=ReduceSum(p, ax) v=Div(s, nm) q=Sqrt(v) y=Div(d, q)"),
        {"ax": ints(1), "nm": np.float32(15)},
    ),
    "var_big_inputs": Edge(
        text(
            "a=Mul(x, k) m=ReduceMean<axes=[1]>(a) d=Sub(a, m) p=Pow(d, two) "
            "s=ReduceMean<axes=[1]>(p) e=Add(s, eps) q=Sqrt(e) y=Div(d, q)"
        ),
        {"k": np.float32(1000), "two": np.float32(2), "eps": np.float32(1e-05)},
    ),
    "gelu_tanh": Edge(
        text(
            "c=Pow(x, three) m=Mul(c, k1) a=Add(x, m) b=Mul(a, k2) t=Tanh(b) o=Add(t, one) h0=Mul(x, o) y=Mul(h0, hf)"
        ),
        {
            "three": np.float32(3),
            "k1": np.float32(0.044715),
            "k2": np.float32(0.7978846),
            "one": np.float32(1),
            "hf": np.float32(0.5),
        },
    ),
    "silu_hardswish": Edge(text("s=Sigmoid(x) a=Mul(x, s) y=HardSwish(a)")),
    "pixel_shuffle_resize": Edge(
        text(
            'd=DepthToSpace<blocksize=2, mode="CRD">(x) y=Resize<mode="linear", '
            'coordinate_transformation_mode="align_corners">(d, , s)',
            "(float[1, 8, 4, 4] x) => (float[1, 2, 16, 16] y)",
        ),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "where_both_types": Edge(
        text(
            "a=Where(m, x, h0) y=MatMul(a, w) z=Where(m, i, j)",
            "(float[2, 16] x, bool[2, 16] m, int64[2, 16] i, int64[2, 16] j) => (float[2, 16] y, int64[2, 16] z)",
        ),
        {**W, "h0": np.float32(0)},
    ),
    "nms_full": Edge(
        text(
            "b=Mul(x, k) s=Sigmoid(q) n=NonMaxSuppression(b, s, mo, iou, st) g0=Slice(n, b0, b1, "
            "ax) f=Squeeze(g0, ax) bb=Squeeze(b, z0) y=Gather(bb, f)",
            "(float[1, 6, 4] x, float[1, 1, 6] q) => (float[m, 4] y)",
        ),
        {
            "k": np.float32(640),
            "mo": ints(3),
            "iou": np.float32(0.5),
            "st": np.float32(0.1),
            "b0": ints(2),
            "b1": ints(3),
            "ax": ints(1),
            "z0": ints(0),
        },
        feeds={"x": np.abs(normal(1, 6, 4)).cumsum(-1).astype(np.float32), "q": normal(1, 1, 6)},
    ),
    "gather_nd_scatter": Edge(
        text("g0=GatherND(x, i) u=Relu(g0) y=ScatterND(x, i, u)"), {"i": ints(0, 1).reshape(2, 1)}
    ),
    "scatter_elements_axis": Edge(
        text("y=ScatterElements<axis=1>(x, i, u)"), {"i": np.tile(ints(3, 1), (2, 1)), "u": normal(2, 2)}
    ),
}
