"""A model with the properties that torch.onnx.export(dynamo=True) writes on each node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = 3

BLOCK = (
    ("norm1", 21, ("LayerNormalization",)),
    ("attn.q_proj", 31, ("MatMul", "Add")),
    ("attn.k_proj", 32, ("MatMul", "Add")),
    ("attn.v_proj", 33, ("MatMul", "Add")),
    ("attn", 34, ("Transpose", "MatMul", "Mul", "Softmax", "MatMul", "Transpose")),
    ("attn.o_proj", 36, ("MatMul", "Add")),
    ("", 22, ("Add",)),
    ("norm2", 23, ("LayerNormalization",)),
    ("mlp.fc1", 41, ("MatMul", "Add")),
    ("mlp.act", 42, ("Relu",)),
    ("mlp.fc2", 43, ("MatMul", "Add")),
    ("", 24, ("Add",)),
)
"""A layer of a transformer: for each module, the line of its call and its operators. Shapes stay [8, 8]."""

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
    for index in range(LAYERS):
        layer = ["", f"layers.{index}", f"layers.{index}.mlp"]
        for op, child, line in (("MatMul", "fc", 15), ("Gelu", "act", 16), ("Softmax", "norm", 17)):
            output_name = f"{op.lower()}_{index}"
            nodes.append(
                node(op, [value, *["weight"] * (op == "MatMul")], output_name, [*layer, f"{layer[-1]}.{child}"], line)
            )
            value = output_name
    nodes.append(node("Relu", [value], "y", [""], 43))
    return _save(path, nodes, [2, 8], opset)


def write_transformer(path: Path, nodes: int = 5000, stages: int = 4) -> Path:
    """Write layers of ``BLOCK`` in stages, and one Gelu, which DirectML runs no kernel for, in the last stage.

    The model has at least ``nodes`` nodes. Modules are called ``stages.3.layers.7.mlp.act``.
    """
    layers = -(-nodes // (stages * sum(len(ops) for _, _, ops in BLOCK)))
    written, value, skip = [], "x", "x"
    for stage, layer in product(range(stages), range(layers)):
        scopes = ["", f"stages.{stage}", f"stages.{stage}.layers.{layer}"]
        last = (stage, layer) == (stages - 1, layers - 2)
        for child, line, ops in BLOCK:
            for op in ops:
                op = "Gelu" if last and op == "Relu" else op
                inputs = [
                    value,
                    *{"MatMul": ["weight"], "Mul": ["weight"], "Add": [value if child else skip]}.get(op, []),
                ]
                inputs += ["scale"] * (op == "LayerNormalization")
                value = f"{op.lower()}_{len(written)}"
                inner = [".".join([scopes[-1], *child.split(".")[:depth]]) for depth in range(1, child.count(".") + 2)]
                written.append(node(op, inputs, value, [*scopes, *inner] if child else scopes, line))
                skip = skip if child else value
    written.append(node("Relu", [value], "y", ["", "head"], 12))
    return _save(path, written, [8, 8], 20)


def _save(path: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[int], opset: int) -> Path:
    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32), "weight")]
    if any("scale" in one.input for one in nodes):
        weights.append(numpy_helper.from_array(np.ones(8, np.float32), "scale"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path
