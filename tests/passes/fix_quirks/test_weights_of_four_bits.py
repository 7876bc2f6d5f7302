"""Which weights of four bits become a MatMulNBits: those that fit it, and no others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dmlprep.graph.model.walk import nodes
from tests.passes.fix_quirks.test_fix_quirks import fixed, on_cpu

_FOUR = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}


def _model(
    weights: np.ndarray[Any, Any],
    scales: np.ndarray[Any, Any],
    zeros: np.ndarray[Any, Any] | None = None,
    *,
    block: int = 16,
    axis: int = 0,
    others: int = 0,
) -> onnx.ModelProto:
    """MatMul of three rows with blocked weights, which ``others`` read as well."""
    depth, columns = weights.shape
    held = {"w": weights, "s": scales, **({} if zeros is None else {"z": zeros})}
    made = [
        helper.make_node("DequantizeLinear", list(held), ["d"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        *(helper.make_node("Neg", ["d"], [f"n{index}"]) for index in range(others)),
    ]
    ends = [
        helper.make_tensor_value_info("x", 1, [3, depth]),
        helper.make_tensor_value_info("y", 1, [3, columns]),
        *(helper.make_tensor_value_info(f"n{index}", 1, [depth, columns]) for index in range(others)),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _ops(model: onnx.ModelProto) -> tuple[onnx.ModelProto, set[str]]:
    after, _, _ = fixed(model, "ort-1.30")
    return ir.to_proto(after.ir), {node.op_type for node in nodes(after.ir)}


@given(
    kind=st.sampled_from(sorted(_FOUR)),
    block=st.sampled_from([16, 32, 64, 128, 256]),
    count=st.integers(1, 5),
    columns=st.integers(1, 9),
    with_zeros=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_numbers_are_the_same(kind: str, block: int, count: int, columns: int, with_zeros: bool, seed: int) -> None:
    random, ends = np.random.default_rng(seed), (-8, 8) if kind == "int4" else (0, 16)

    def some(rows: int) -> np.ndarray[Any, Any]:
        return random.integers(*ends, (rows, columns)).astype(_FOUR[kind])

    scales = random.uniform(0.01, 1.0, (count, columns)).astype(np.float32)
    before = _model(some(block * count), scales, some(count) if with_zeros else None, block=block)
    after, ops = _ops(before)
    assert ops == {"MatMulNBits"}
    assert {tensor.name for tensor in after.graph.initializer} == set(after.graph.node[0].input) - {"x"}
    feeds = {"x": random.standard_normal((3, block * count)).astype(np.float32)}
    np.testing.assert_allclose(on_cpu(after, feeds)[0], on_cpu(before, feeds)[0], rtol=1e-4, atol=1e-3)


_W = np.arange(64).reshape(32, 2)
_S = np.full((2, 2), 0.5, np.float32)


@pytest.mark.parametrize(
    ("model", "stays"),
    [
        (_model((_W % 16).astype(np.uint8), _S), False),
        (_model((_W % 16).astype(ml_dtypes.uint4), np.full((4, 2), 0.5, np.float32), block=8), False),
        (_model((_W % 16).astype(ml_dtypes.uint4), np.full((32, 1), 0.5, np.float32), block=2, axis=1), False),
        (_model((_W % 16).astype(ml_dtypes.uint4), _S, others=1), False),
        (_model((_W % 16).astype(ml_dtypes.uint4), np.full((2, 1), 0.5, np.float32)), True),
        (_model((_W % 16).astype(ml_dtypes.uint4), _S, np.zeros((1, 2), ml_dtypes.uint4)), True),
        (_model((_W % 16).astype(ml_dtypes.uint4), _S, np.zeros((2, 2), ml_dtypes.int4)), True),
    ],
    ids=["eight bits", "small blocks", "along rows", "read twice", "fewer scales", "fewer zeros", "other zeros"],
)
def test_what_does_not_fit_is_no_matmulnbits(model: onnx.ModelProto, stays: bool) -> None:
    """What contradicts itself, which no ONNX Runtime takes, is written as the arithmetic or left as it is."""
    _, ops = _ops(model)
    assert "MatMulNBits" not in ops
    if not stays:
        assert "DequantizeLinear" not in ops
