"""Edges of operators: one model each, run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import Edge, W, ints, normal, text

OPERATORS: dict[str, Edge] = {
    "eyelike_nodtype": Edge(text("e=EyeLike(w) a=MatMul(x, e) y=Relu(a)"), W),
    "onehot_float": Edge(
        text("o=OneHot(i, d, v) y=MatMul(o, w)", "(int64[2] i) => (float[2, 16] y)"),
        {**W, "d": np.array(16), "v": np.array([0, 1], np.float32)},
    ),
    "resize_roi": Edge(
        text(
            'a=Mul(x, k) y=Resize<mode="linear", '
            'coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=0.5>(a, r, '
            ", s)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 16, 12] y)",
        ),
        {"k": np.float32(0.5), "s": ints(1, 3, 16, 12), "r": np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.8], np.float32)},
    ),
    "resize_empty_roi": Edge(
        text(
            "e=Constant<value=float[0]{}>() a=Mul(x, k) y=Resize(a, e, s)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 16, 16] y)",
            opset=11,
            ir=6,
        ),
        {"k": np.float32(0.5), "s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "upsample7": Edge(
        text(
            'a=Relu(x) y=Upsample<scales=[1.0, 1.0, 2.0, 2.0], mode="nearest">(a)',
            "(float[1, 3, 8, 8] x) => (float[1, 3, 16, 16] y)",
            opset=8,
            ir=3,
        )
    ),
    "upsample9_linear": Edge(
        text(
            'a=Relu(x) y=Upsample<mode="linear">(a, s)',
            "(float[1, 3, 8, 8] x) => (float[1, 3, 16, 16] y)",
            opset=9,
            ir=4,
        ),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "bn_training": Edge(
        text(
            "y, m2, v2=BatchNormalization<training_mode=1>(x, s, b, m, v)",
            "(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y)",
            opset=15,
        ),
        {"s": normal(4), "b": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 1},
    ),
    "bn_training_outs": Edge(
        text(
            "y, m2, v2=BatchNormalization<training_mode=1>(x, s, b, m, v)",
            "(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y, float[4] m2, float[4] v2)",
            opset=15,
        ),
        {"s": normal(4), "b": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 1},
    ),
    "bn_shared_params": Edge(
        text(
            "y0=BatchNormalization(x, s, b, m, v) t=CumSum(m, i) r=Reshape(t, sh) y=Add(y0, r)",
            "(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y)",
        ),
        {
            "s": normal(4),
            "b": normal(4),
            "m": normal(4),
            "v": np.abs(normal(4)) + 1,
            "i": np.array(0),
            "sh": ints(1, 4, 1, 1),
        },
    ),
    "ln3_stash": Edge(
        text(
            "y, m, iv=LayerNormalization<axis=-1, stash_type=1>(x, s, b)",
            "(float[2, 16] x) => (float[2, 16] y, float[2, 1] m, float[2, 1] iv)",
        ),
        {"s": normal(16), "b": normal(16)},
    ),
    "gn21": Edge(
        text(
            "y=GroupNormalization<num_groups=2>(x, s, b)",
            "(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y)",
            opset=21,
            ir=10,
        ),
        {"s": normal(4), "b": normal(4)},
    ),
    "lpnorm": Edge(text("a=Mul(x, k) y=LpNormalization<axis=1, p=2>(a)"), {"k": np.float32(300)}),
    "rms23": Edge(
        text("a=Mul(x, k) y=RMSNormalization<axis=-1>(a, s)", opset=23, ir=11), {"s": normal(16), "k": np.float32(0.5)}
    ),
    "lstm_all": Edge(
        text(
            'o, hh, c=LSTM<hidden_size=8, direction="bidirectional", activations=["HardSigmoid", '
            '"Tanh", "Affine", "Sigmoid", "LeakyRelu", "Tanh"], activation_alpha=[0.3, 0.5, '
            "0.01], activation_beta=[0.6, 0.1], clip=3.0>(x, w1, r, b, sl, h0, c0, p) "
            "y=ReduceMean<axes=[1], keepdims=0>(o)",
            "(float[5, 2, 16] x) => (float[5, 2, 8] y, float[2, 2, 8] hh, float[2, 2, 8] c)",
        ),
        {
            "w1": normal(2, 32, 16, k=0.2),
            "r": normal(2, 32, 8, k=0.2),
            "b": normal(2, 64, k=0.2),
            "sl": np.array([5, 3], np.int32),
            "h0": normal(2, 2, 8),
            "c0": normal(2, 2, 8),
            "p": normal(2, 24, k=0.2),
        },
    ),
    "gru_lbr": Edge(
        text(
            "o, hh=GRU<hidden_size=8, linear_before_reset=1>(x, w1, r, b, , h0) y=Squeeze(o, ax)",
            "(float[5, 2, 16] x) => (float[5, 2, 8] y, float[1, 2, 8] hh)",
        ),
        {
            "w1": normal(1, 24, 16, k=0.2),
            "r": normal(1, 24, 8, k=0.2),
            "b": normal(1, 48, k=0.2),
            "h0": normal(1, 2, 8),
            "ax": ints(1),
        },
    ),
    "rnn_h0_in": Edge(
        text(
            "o, hh=RNN<hidden_size=8>(x, w1, r, , , h0) y=MatMul(o, wo)",
            "(float[5, 2, 16] x, float[1, 2, 8] h0) => (float[5, 1, 2, 4] y, float[1, 2, 8] hh)",
        ),
        {"w1": normal(1, 8, 16, k=0.2), "r": normal(1, 8, 8, k=0.2), "wo": normal(8, 4)},
    ),
    "dropout12": Edge(
        text("y, m=Dropout(x, r)", "(float[2, 16] x) => (float[2, 16] y)", opset=13), {"r": np.float32(0.5)}
    ),
    "dropout7": Edge(text("a=MatMul(x, w) y=Dropout<ratio=0.5>(a)", opset=9, ir=4), W),
    "topk_idx": Edge(
        text("a=MatMul(x, w) v, i=TopK(a, k) y=GatherElements<axis=1>(x, i)", "(float[2, 16] x) => (float[2, 3] y)"),
        {**W, "k": ints(3)},
    ),
    "roialign": Edge(
        text(
            "a=Mul(x, k) y=RoiAlign<output_height=2, output_width=2>(a, r, b)",
            "(float[1, 3, 8, 8] x) => (float[2, 3, 2, 2] y)",
        ),
        {"k": np.float32(0.5), "r": np.array([[0, 0, 4, 4], [1, 1, 7, 7]], np.float32), "b": ints(0, 0)},
    ),
    "gridsample20": Edge(
        text(
            'a=Mul(x, k) y=GridSample<mode="linear">(a, g)',
            "(float[1, 3, 8, 8] x, float[1, 4, 4, 2] g) => (float[1, 3, 4, 4] y)",
            opset=20,
            ir=9,
        ),
        {"k": np.float32(0.5)},
    ),
    "affinegrid": Edge(
        text(
            'g=AffineGrid(t, s) y=GridSample<mode="linear">(x, g)',
            "(float[1, 3, 4, 4] x, float[1, 2, 3] t) => (float[1, 3, 4, 4] y)",
            opset=20,
            ir=9,
        ),
        {"s": ints(1, 3, 4, 4)},
    ),
    "dft": Edge(
        text("d=DFT<axis=1>(x) y=ReduceSum(d, ax)", "(float[1, 16, 1] x) => (float[1, 16, 1] y)"), {"ax": ints(2)}
    ),
    "stft": Edge(
        text("w1=HannWindow(n) y=STFT(x, s, w1)", "(float[1, 64] x) => (float[1, p, q, 2] y)"),
        {"n": np.array(16), "s": np.array(8)},
    ),
    "melweight": Edge(
        text("m=MelWeightMatrix(a, b, c, d, e) y=MatMul(x, m)", "(float[2, 9] x) => (float[2, 8] y)"),
        {"a": np.array(8), "b": np.array(16), "c": np.array(8000), "d": np.float32(0), "e": np.float32(4000)},
    ),
    "nllloss": Edge(
        text("l=LogSoftmax(x) y=NegativeLogLikelihoodLoss(l, t, ww)", "(float[2, 16] x, int64[2] t) => (float y)"),
        {"ww": np.abs(normal(16))},
    ),
    "scel": Edge(
        text(
            "y, lp=SoftmaxCrossEntropyLoss<ignore_index=-1>(x, t)",
            "(float[2, 16] x, int64[2] t) => (float y, float[2, 16] lp)",
        )
    ),
    "attention23": Edge(
        text(
            "y=Attention(q, k, v, m)",
            "(float[1, 2, 4, 8] q, float[1, 2, 4, 8] k, float[1, 2, 4, 8] v) => (float[1, 2, 4, 8] y)",
            opset=23,
            ir=11,
        ),
        {"m": np.where(np.tri(4) > 0, 0, -3.4e38).astype(np.float32)},
    ),
    "rotary23": Edge(
        text(
            "a=Mul(q, k) y=RotaryEmbedding(a, c, s, p)",
            "(float[1, 2, 4, 8] q, int64[1, 4] p) => (float[1, 2, 4, 8] y)",
            opset=23,
            ir=11,
        ),
        {"k": np.float32(0.5), "c": normal(8, 4), "s": normal(8, 4)},
    ),
    "swish24": Edge(text("a=MatMul(x, w) y=Swish(a)", opset=24, ir=11), W),
    "unique": Edge(text("a, b, c, d=Unique(x) y=Relu(a)", "(float[8] x) => (float[m] y)")),
    "compress": Edge(
        text("y=Compress<axis=0>(x, c)", "(float[2, 16] x) => (float[m, 16] y)"), {"c": np.array([True, False])}
    ),
    "tfidf": Edge(
        text(
            't=TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, '
            "ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[1, 2]>(i) y=Relu(t)",
            "(int64[4] i) => (float[2] y)",
        )
    ),
    "maxunpool": Edge(
        text(
            "a, i=MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(x) b=Relu(a) "
            "y=MaxUnpool<kernel_shape=[2, 2], strides=[2, 2]>(b, i)",
            "(float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y)",
        )
    ),
    "scatternd_add": Edge(
        text('a=MatMul(x, w) y=ScatterND<reduction="add">(a, i, u)', opset=16),
        {**W, "i": ints(0, 1).reshape(2, 1), "u": normal(2, 16)},
    ),
    "bn_large_var": Edge(
        text(
            "a=BatchNormalization(x, s, b, m, v) c=Relu(a) d=MatMul(c, w) y=Relu(d)",
            "(float[2, 4, 3, 16] x) => (float[2, 4, 3, 16] y)",
        ),
        {
            **W,
            "s": np.abs(normal(4)) * 200,
            "b": normal(4),
            "m": np.array([90000.0, 1, 2, 3], np.float32),
            "v": np.array([100000.0, 200000.0, 70000.0, 1000.0], np.float32),
        },
    ),
    "gather_scalar_shape_div": Edge(
        text("s=Shape(x) g=Gather(s, one) f=Cast<to=1>(g) q=Sqrt(f) a=MatMul(x, w) b=Div(a, q) y=Softmax(b)"),
        {**W, "one": np.array(1)},
    ),
}
