"""Attention as exporters write it becomes one node that computes the same, and what is not that stays."""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import onnx
import pytest

from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.passes.fusions import write_out
from tests.passes.fuse.test_fuse import Array, contrib, feeds_of, fuse, on_cpu, same
from tests.passes.fusions.graphs import D, Graph, Guard, K, Layout, Mask, Q, Scale, sdpa

B, N = 2, 4
ONE = {"MultiHeadAttention": 1}


def becomes_one(proto: onnx.ModelProto, biased: bool) -> None:
    fused, findings = fuse(proto, attention=True)
    assert contrib(fused) == ONE
    assert [f.code for f in findings] == ["DP302"]
    node = next(n for n in fused.ir.graph if n.domain)
    assert (len(node.inputs) == 6) == biased
    if biased:
        bias = node.inputs[5]
        assert bias is not None
        assert bias.shape is not None
        assert list(bias.shape) == [B, N, Q, K], "DirectML's kernel takes no other"
    assert {n.provider for n in place(fused, find_target()).nodes} == {"DmlExecutionProvider"}
    feeds = feeds_of(proto)
    expected = on_cpu(proto, feeds)
    assert np.isfinite(expected).all()
    same(expected, on_cpu(fused, feeds))
    same(expected, on_cpu(write_out(fused, all_of_them=True).model, feeds))


@pytest.mark.parametrize(("scale", "layout"), list(product(get_args(Scale), get_args(Layout))))
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_scale_layout_and_shared_heads(scale: Scale, layout: Layout, groups: int) -> None:
    becomes_one(sdpa(scale, layout=layout, groups=groups), biased=False)


MASKS: list[tuple[Mask, Guard]] = [
    *product(("zeros", "causal", "fed", "padding"), ("none", "isnan")),
    ("two", "none"),
    ("padding", "asked"),
    ("empty", "isnan"),
    ("empty", "asked"),
    ("filled", "none"),
    ("filled", "isnan"),
    ("kept", "none"),
]


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("mask", "guard"), MASKS)
def test_masks_and_guards(mask: Mask, guard: Guard, opset: int) -> None:
    if guard == "asked" and opset >= 18:
        pytest.skip("axes are an attribute in this graph")
    becomes_one(sdpa(mask=mask, guard=guard, opset=opset), biased=mask != "zeros")


@pytest.mark.parametrize("lead", [(1, 1), (1, N), (B, 1), (B, N)])
@pytest.mark.parametrize("mask", ["causal", "fed"])
def test_masks_of_every_shape(mask: Mask, lead: tuple[int, int]) -> None:
    becomes_one(sdpa(mask=mask, lead=lead), biased=True)


@pytest.mark.parametrize("mask", ["causal", "filled", "kept"])
def test_the_lowest_number_masks_too(mask: Mask) -> None:
    becomes_one(sdpa(mask=mask, low=float(np.finfo(np.float32).min)), biased=True)


def test_fp16() -> None:
    fused, _ = fuse(sdpa(mask="causal", dtype="float16"), attention=True)
    assert contrib(fused) == ONE


def test_off_by_default() -> None:
    assert contrib(fuse(sdpa())[0]) == {}


def test_a_number_that_scores_outweigh_is_no_mask() -> None:
    assert contrib(fuse(sdpa(mask="filled", low=-1e4), attention=True)[0]) == {}
    assert contrib(fuse(sdpa(mask="filled", low=-6e4, dtype="float16"), attention=True)[0]) == {}


@pytest.mark.parametrize(("mask", "lead"), [("fed", (1, N)), ("two", (1, 1))])
def test_rows_that_are_empty_for_some_heads_stay(mask: Mask, lead: tuple[int, int]) -> None:
    fused, findings = fuse(sdpa(mask=mask, guard="isnan", lead=lead), attention=True)
    assert contrib(fused) == {}
    assert "other rows in each head" in findings[0].message


def by_hand(
    g: Graph, scores: str, v: str, axis: int = -1, shape: tuple[int, ...] = (B, Q, N, D)
) -> tuple[str, onnx.ModelProto]:
    weights = g.op("Softmax", scores, axis=axis)
    together = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    return weights, g.model(g.op("Relu", together), shape)


def heads(heads_of_keys: int = N) -> tuple[Graph, str, str, str]:
    g = Graph()
    q, v = g.fed("q", (B, N, Q, D)), g.fed("v", (B, N, K, D))
    return g, q, g.fed("k", (B, heads_of_keys, D, K)), v


def test_heads_first_are_turned() -> None:
    g, q, k, v = heads()
    proto = by_hand(g, g.op("MatMul", q, k), v)[1]
    fused, _ = fuse(proto, attention=True)
    assert contrib(fused) == ONE
    feeds = feeds_of(proto)
    same(on_cpu(proto, feeds), on_cpu(fused, feeds))


def test_a_scale_behind_the_mask_stays() -> None:
    g, q, k, v = heads()
    masked = g.op("Add", g.op("MatMul", q, k), g.fed("m", (1, 1, Q, K)))
    proto = by_hand(g, g.op("Mul", masked, g.constant(0.5)), v)[1]
    assert contrib(fuse(proto, attention=True)[0]) == {}


def test_softmax_of_another_axis_stays() -> None:
    g, q, k, v = heads()
    assert contrib(fuse(by_hand(g, g.op("MatMul", q, k), v, axis=2)[1], attention=True)[0]) == {}


def test_heads_that_are_broadcast_stay() -> None:
    g, q, k, v = heads(heads_of_keys=1)
    fused, findings = fuse(by_hand(g, g.op("MatMul", q, k), v)[1], attention=True)
    assert contrib(fused) == {}
    assert "broadcast" in findings[0].message


def test_weights_that_are_read_stay() -> None:
    g, q, k, v = heads()
    weights, proto = by_hand(g, g.op("MatMul", q, k), v)
    kind = onnx.TensorProto.FLOAT
    proto.graph.output.append(onnx.helper.make_tensor_value_info(weights, kind, (B, N, Q, K)))
    fused, findings = fuse(proto, attention=True)
    assert contrib(fused) == {}
    assert "other nodes read its softmax weights" in findings[0].message


def test_a_guard_that_asks_another_mask_stays() -> None:
    g, q, k, v = heads()
    masked = g.op("Add", g.op("MatMul", q, k), g.fed("m", (1, 1, Q, K)))
    asked = g.op("Equal", g.op("ReduceMax", g.fed("n", (1, 1, Q, K)), axes=[-1]), g.constant(-np.inf))
    weights = g.op("Where", asked, g.constant(0.0), g.op("Softmax", masked, axis=-1))
    proto = g.model(g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3]), (B, Q, N, D))
    assert contrib(fuse(proto, attention=True)[0]) == {}


def test_layers_share_one_mask() -> None:
    g, q, k, v = heads()
    seen = g.op("Greater", g.fed("p", (B, 1, 1, K)), g.constant(0.5 * np.ones((1, 1, Q, 1)) - 1))

    def layer(x: str) -> str:
        bias = g.op("Where", seen, g.constant(0.0), g.constant(-np.inf))  # once more for each layer
        weights = g.op("Softmax", g.op("Add", g.op("MatMul", x, k), bias), axis=-1)
        weights = g.op("Where", g.op("IsNaN", weights), g.constant(0.0), weights)
        return str(g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3]))

    first = g.op("Transpose", layer(q), perm=[0, 2, 1, 3])
    proto = g.model(g.op("Relu", layer(first)), (B, Q, N, D))
    fused, _ = fuse(proto, attention=True)
    assert contrib(fused) == {"MultiHeadAttention": 2}
    assert [n.op_type for n in fused.ir.graph].count("Expand") == 1
    feeds: dict[str, Array] = feeds_of(proto)
    same(on_cpu(proto, feeds), on_cpu(fused, feeds))
