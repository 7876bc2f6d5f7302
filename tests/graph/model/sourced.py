"""A model with the properties that torch.onnx.export(dynamo=True) writes on each node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = 3

TRACE = """File "C:\\Users\\ada\\my net\\model.py", line 41, in forward
    x = layer(x)
  File "C:\\Users\\ada\\my net\\model.py", line {line}, in forward
    return self.{call}(x)
  File "C:\\Python312\\Lib\\site-packages\\torch\\nn\\modules\\{file}.py", line 134, in forward
    return F.{call}(input)
"""
"""A trace as torch 2.9 writes it: the outermost frame first, torch's own frames last."""


def node(
    op: str, inputs: Sequence[str], output: str, scopes: Sequence[str], line: int, **more: object
) -> onnx.NodeProto:
    """Return a node of a module with the properties of torch."""
    sourced = helper.make_node(op, inputs, [output], f"node_{output}", **more)
    trace = TRACE.format(line=line, call=op.lower(), file="activation")
    for key, value in (
        ("namespace", "/".join(f"{scope}: torch.nn.Module" for scope in scopes)),
        ("pkg.torch.onnx.class_hierarchy", repr(["torch.nn.Module"] * len(scopes) + [f"aten.{op.lower()}.default"])),
        ("pkg.torch.onnx.name_scopes", repr([*scopes, output])),
        ("pkg.torch.onnx.stack_trace", trace),
    ):
        sourced.metadata_props.add(key=key, value=value)
    return sourced


def write(path: Path, opset: int = 20) -> Path:
    """Write three layers of MatMul, Gelu and Softmax. DirectML has no kernel for Gelu of opset 20."""
    nodes, value = [], "x"
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "weight")
    for index in range(LAYERS):
        layer = ["", f"layers.{index}", f"layers.{index}.mlp"]
        for op, child, line in (("MatMul", "fc", 15), ("Gelu", "act", 16), ("Softmax", "norm", 17)):
            output_name = f"{op.lower()}_{index}"
            nodes.append(
                node(op, [value, *["weight"] * (op == "MatMul")], output_name, [*layer, f"{layer[-1]}.{child}"], line)
            )
            value = output_name
    nodes.append(node("Relu", [value], "y", [""], 43))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path
