"""What the cases are made with: values, nodes, models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["I64", "U8", "Array", "B", "Case", "F", "case", "integers", "node", "normal"]

Array = np.ndarray[Any, Any]


_MISREAD = {"norm-keepdims", "norm-types", "pad-before-maxpool"}
"""Quirks whose forms ONNX Runtime fuses into another function on the CPU, too: at least 1.24.4 does."""


@dataclass(frozen=True)
class Case:
    """A model with one quirk.

    Attributes:
        quirk: its id; the case's name after a dot tells cases of one quirk apart.
        exact: whether the rewritten model must give the very same bits on the CPU.
        optimized: whether the quirk shows at full graph optimisation; else with optimisation off.
        unfused: whether it shows with fused graphs off only.
        target: a target that it concerns.
        since: the ONNX Runtime from which on the CPU runs the model as it is; empty for any.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Array]
    exact: bool = True
    optimized: bool = True
    unfused: bool = False
    target: str = "ort-1.24"
    since: str = ""

    @property
    def quirk(self) -> str:
        return self.name.split(".")[0]

    @property
    def cpu_level(self) -> str:
        """The highest optimization level at which the CPU computes the model as it is right."""
        return "DISABLE_ALL" if self.quirk in _MISREAD else "ENABLE_ALL"


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(*dims: int) -> Array:
    return _rng().standard_normal(dims).astype(np.float32)


def _value(name: str, array: Array | tuple[int, Sequence[Any]]) -> onnx.ValueInfoProto:
    if isinstance(array, tuple):
        return helper.make_tensor_value_info(name, array[0], list(array[1]))
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


def _model(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: dict[str, tuple[int, Sequence[Any]]],
    constants: dict[str, Array | TensorProto] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quirk",
        [_value(k, v) for k, v in feeds.items()],
        [_value(k, v) for k, v in outputs.items()],
        [v if isinstance(v, TensorProto) else numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    imports = {"": opset, **{n.domain: 1 for n in nodes if n.domain}}
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset > 18 else 8)


def integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


F, B, I64, U8 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64, TensorProto.UINT8
node = helper.make_node


def case(
    name: str,
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: dict[str, tuple[int, Sequence[Any]]],
    constants: dict[str, Array | TensorProto] | None = None,
    opset: int = 17,
    **more: Any,
) -> Case:
    return Case(name, _model(nodes, feeds, outputs, constants, opset), feeds, **more)
