"""Edges of quantised, com.microsoft and ai.onnx.ml operators: one model each, run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import MICROSOFT, Edge, W, normal, text

_RNG = np.random.default_rng(3)

CONTRIB: dict[str, Edge] = {
    "dyn_matmulinteger": Edge(
        text(
            "q, s, z=DynamicQuantizeLinear(x) m=MatMulInteger(q, wq, z, wz) f=Cast<to=1>(m) "
            "sc=Mul(s, ws) o=Mul(f, sc) y=Add(o, b)"
        ),
        {
            "wq": _RNG.integers(0, 255, (16, 16)).astype(np.uint8),
            "wz": np.uint8(128),
            "ws": np.float32(0.01),
            "b": normal(16),
        },
    ),
    "dyn_matmulinteger_big": Edge(
        text(
            "q, s, z=DynamicQuantizeLinear(x) m=MatMulInteger(q, wq, z, wz) f=Cast<to=1>(m) "
            "sc=Mul(s, ws) o=Mul(f, sc) y=Add(o, b)",
            "(float[2, 512] x) => (float[2, 16] y)",
        ),
        {
            "wq": _RNG.integers(0, 255, (512, 16)).astype(np.uint8),
            "wz": np.uint8(0),
            "ws": np.float32(0.0001),
            "b": normal(16),
        },
    ),
    "convinteger": Edge(
        text(
            "q, s, z=DynamicQuantizeLinear(x) m=ConvInteger(q, wq, z, wz) f=Cast<to=1>(m) sc=Mul(s, ws) y=Mul(f, sc)",
            "(float[1, 64, 8, 8] x) => (float[1, 4, 6, 6] y)",
        ),
        {"wq": _RNG.integers(0, 255, (4, 64, 3, 3)).astype(np.uint8), "wz": np.uint8(10), "ws": np.float32(0.0001)},
    ),
    "qlinearconv": Edge(
        text(
            "q=QuantizeLinear(x, s, z) c=QLinearConv(q, s, z, wq, ws, wz, os, oz) y=DequantizeLinear(c, os, oz)",
            "(float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y)",
        ),
        {
            "s": np.float32(0.03),
            "z": np.uint8(128),
            "wq": _RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8),
            "ws": np.full(4, 0.01, np.float32),
            "wz": np.zeros(4, np.int8),
            "os": np.float32(0.05),
            "oz": np.uint8(128),
        },
    ),
    "qlinearmatmul": Edge(
        text("q=QuantizeLinear(x, s, z) c=QLinearMatMul(q, s, z, wq, ws, wz, os, oz) y=DequantizeLinear(c, os, oz)"),
        {
            "s": np.float32(0.03),
            "z": np.uint8(128),
            "wq": _RNG.integers(-127, 127, (16, 16)).astype(np.int8),
            "ws": np.float32(0.01),
            "wz": np.int8(0),
            "os": np.float32(0.05),
            "oz": np.uint8(128),
        },
    ),
    "dq_weight_only": Edge(
        text("w1=DequantizeLinear<axis=1>(wq, ws) a=MatMul(x, w1) y=Gelu(a)", opset=20, ir=9),
        {"wq": _RNG.integers(-127, 127, (16, 16)).astype(np.int8), "ws": np.full(16, 0.004, np.float32)},
    ),
    "ms_gelu": Edge(
        text(
            "a=com.microsoft.BiasGelu(x, b) c=com.microsoft.QuickGelu(a) "
            "d=com.microsoft.FastGelu(c, b) y=com.microsoft.Gelu(d)",
            more=MICROSOFT,
        ),
        {"b": normal(16)},
    ),
    "ms_fusedmatmul": Edge(text("y=com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, w)", more=MICROSOFT), W),
    "ms_attention": Edge(
        text(
            "a=com.microsoft.Attention<num_heads=2>(x, aw, ab, m) y=Relu(a)",
            "(float[1, 4, 16] x, int32[1] m) => (float[1, 4, 16] y)",
            more=MICROSOFT,
        ),
        {"aw": normal(16, 48, k=0.2), "ab": normal(48)},
        feeds={"x": normal(1, 4, 16), "m": np.array([4], np.int32)},
    ),
    "ms_mha": Edge(
        text(
            "y=com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b)",
            "(float[1, 4, 16] q, float[1, 4, 16] k, float[1, 4, 16] v) => (float[1, 4, 16] y)",
            more=MICROSOFT,
        ),
        {"b": normal(48)},
    ),
    "ms_mha_bias_past": Edge(
        text(
            "y, pk, pv=com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b, , ab, k0, v0)",
            "(float[1, 4, 16] q, float[1, 4, 16] k, float[1, 4, 16] v, float[1, 2, 3, 8] k0, "
            "float[1, 2, 3, 8] v0, float[1, 1, 4, 7] ab) => (float[1, 4, 16] y, float[1, 2, 7, 8] "
            "pk, float[1, 2, 7, 8] pv)",
            more=MICROSOFT,
        ),
        {"b": normal(48)},
    ),
    "ms_skipln": Edge(
        text(
            "y, , , s=com.microsoft.SkipLayerNormalization(x, k, g, b, c)",
            "(float[1, 4, 16] x, float[1, 4, 16] k) => (float[1, 4, 16] y, float[1, 4, 16] s)",
            more=MICROSOFT,
        ),
        {"g": normal(16), "b": normal(16), "c": normal(16)},
    ),
    "ms_embed": Edge(
        text(
            "y, m, e=com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(i, s, we, pe, se, g, b, k)",
            "(int32[1, 4] i, int32[1, 4] s, int32[1, 4] k) => (float[1, 4, 16] y, int32[1] m)",
            more=MICROSOFT,
        ),
        {"we": normal(10, 16), "pe": normal(8, 16), "se": normal(2, 16), "g": normal(16), "b": normal(16)},
        feeds={
            "i": np.array([[1, 2, 3, 4]], np.int32),
            "s": np.zeros((1, 4), np.int32),
            "k": np.ones((1, 4), np.int32),
        },
    ),
    "ms_rotary": Edge(
        text(
            "a=Mul(x, k) y=com.microsoft.RotaryEmbedding(a, p, c, s)",
            "(float[1, 2, 4, 8] x, int64[1, 4] p) => (float[1, 2, 4, 8] y)",
            more=MICROSOFT,
        ),
        {"k": np.float32(0.5), "c": normal(8, 4), "s": normal(8, 4)},
    ),
    "ms_gqa": Edge(
        text(
            "y, pk, pv=com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=1>(q, k, v, k0, v0, sl, tl)",
            "(float[1, 1, 16] q, float[1, 1, 8] k, float[1, 1, 8] v, float[1, 1, 8, 8] k0, "
            "float[1, 1, 8, 8] v0) => (float[1, 1, 16] y, float[1, 1, 8, 8] pk, float[1, 1, 8, 8] "
            "pv)",
            more=MICROSOFT,
        ),
        {"sl": np.array([3], np.int32), "tl": np.array(4, np.int32)},
    ),
    "ms_matmulnbits": Edge(
        text(
            "y=com.microsoft.MatMulNBits<K=32, N=16, bits=4, block_size=32>(x, b, s)",
            "(float[2, 32] x) => (float[2, 16] y)",
            more=MICROSOFT,
        ),
        {"b": _RNG.integers(0, 255, (16, 1, 16)).astype(np.uint8), "s": np.abs(normal(16, k=0.02))},
    ),
    "ms_fusedconv": Edge(
        text(
            'y=com.microsoft.FusedConv<activation="Relu", kernel_shape=[3, 3]>(x, cw, cb)',
            "(float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y)",
            more=MICROSOFT,
        ),
        {"cw": normal(4, 3, 3, 3, k=0.3), "cb": normal(4)},
    ),
    "ms_qlinearadd": Edge(
        text(
            "q=QuantizeLinear(x, s, z) r=com.microsoft.QLinearAdd(q, s, z, q, s, z, s2, z) "
            "y=DequantizeLinear(r, s2, z)",
            more=MICROSOFT,
        ),
        {"s": np.float32(0.03), "z": np.uint8(128), "s2": np.float32(0.06)},
    ),
    "ms_q": Edge(
        text("q=com.microsoft.QuantizeLinear(x, s, z) y=com.microsoft.DequantizeLinear(q, s, z)", more=MICROSOFT),
        {"s": np.float32(0.03), "z": np.uint16(32768)},
    ),
    "ms_dqmm": Edge(
        text("y=com.microsoft.DynamicQuantizeMatMul(x, wq, ws, wz, b)", more=MICROSOFT),
        {
            "wq": _RNG.integers(0, 255, (16, 16)).astype(np.uint8),
            "ws": np.float32(0.01),
            "wz": np.uint8(128),
            "b": normal(16),
        },
    ),
    "ms_mmitf": Edge(
        text(
            "y=com.microsoft.MatMulIntegerToFloat(x, wq, xs, ws, xz, wz)",
            "(uint8[2, 16] x) => (float[2, 16] y)",
            more=MICROSOFT,
        ),
        {
            "wq": _RNG.integers(0, 255, (16, 16)).astype(np.uint8),
            "ws": np.float32(0.01),
            "xs": np.float32(0.02),
            "wz": np.uint8(128),
            "xz": np.uint8(0),
        },
        feeds={"x": _RNG.integers(0, 255, (2, 16)).astype(np.uint8)},
    ),
    "ms_sls": Edge(
        text(
            "y, , , s=com.microsoft.SkipSimplifiedLayerNormalization(x, k, g)",
            "(float[1, 4, 16] x, float[1, 4, 16] k) => (float[1, 4, 16] y, float[1, 4, 16] s)",
            more=MICROSOFT,
        ),
        {"g": normal(16)},
    ),
    "ml_tree": Edge(
        '<ir_version:8, opset_import:["":17, "ai.onnx.ml":3]> g (float[2, 3] x)=>(float[2, 1] y){ '
        "r=Relu(x) y=ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0, 0, 0], "
        'nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", '
        '"LEAF"], nodes_values=[0.5, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], '
        "nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2], "
        'target_ids=[0, 0], target_weights=[1.0, 2.0], post_transform="NONE">(r) }'
    ),
    "ml_only_imports": Edge(
        '<ir_version:8, opset_import:["ai.onnx.ml":3]> g (float[2, 3] x)=>(float[2, 3] y){ '
        'a=ai.onnx.ml.Scaler<offset=[0.5], scale=[2.0]>(x) y=ai.onnx.ml.Normalizer<norm="MAX">(a) '
        "}"
    ),
}
