"""Bodies and functions that are odd, whole or broken: prepared and equal, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import DmlprepError
from dmlprep.record import Check

_FLOAT = TensorProto.FLOAT


def _info(name: str, dims: Sequence[int | str] | None, kind: int = _FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _saved(path: Path, nodes: Sequence[onnx.NodeProto], *, function: bool = False) -> Path:
    constants = {"m": np.array(3), "t": np.array(True), "ax": np.array([0]), "w": np.ones((2, 2), np.float32)}
    read = {name for node in nodes for name in node.input} | {"w", "ax"}
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in read]
    graph = helper.make_graph(nodes, "g", [_info("x", ["n", 2])], [_info("y", None)], weights)
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid("f", 1)] if function else [])]
    inner = helper.make_node("Relu", ["a"], ["b"])
    functions = [helper.make_function("f", "F", ["a"], ["b"], [inner], imports[:1])] if function else []
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def _loop(nodes: Sequence[onnx.NodeProto], inputs: int, outputs: int, made: Sequence[str]) -> onnx.NodeProto:
    given = [
        _info("i", [], TensorProto.INT64),
        _info("c", [], TensorProto.BOOL),
        _info("v", ["n", 2]),
        _info("more", None),
    ]
    taken = [_info("c2", [], TensorProto.BOOL), _info("v2", None), _info("o", None)]
    first = helper.make_node("Identity", ["c"], ["c2"])
    body = helper.make_graph([first, *nodes], "body", given[:inputs], taken[:outputs])
    return helper.make_node("Loop", ["m", "t", "x"], made, "loop", body=body)


@pytest.mark.parametrize("carried", ["[1]", "[2, 2, 2]"])
def test_a_loop_whose_body_counts_in_vectors(carried: str, tmp_path: Path) -> None:
    """ONNX has scalars there; ONNX Runtime gives a body what it declares."""
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[1] x, float{carried} w) => (float{carried} y)
    <int64[1] trips = {{2}}, bool[1] go = {{1}}, float[1] one = {{1}}> {{
        y = Loop (trips, go, x) <body = b (int64[1] i, bool[1] c, float[1] v) => (bool[1] c2, float{carried} s) {{
            c2 = If (c) <then_branch = t () => (bool[1] a) {{ a = Cast <to = 9> (one) }},
                         else_branch = e () => (bool[1] d) {{ d = Cast <to = 9> (x) }}>
            n = Cast <to = 1> (i)
            m = Add (v, n)
            s = Add (w, m)
        }}>
    }}"""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    record = dmlprep.prepare(path, out=tmp_path / "out", recipe="@static-fp32", device="cpu")
    assert record.exit_code == 0, record.error
    (loop,) = [node for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node if node.op_type == "Loop"]
    sizes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in loop.attribute[0].g.input[:2]]
    assert sizes == [[1], [1]]


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "collected"])
def test_a_squeeze_in_the_body_of_a_loop(carried: bool, tmp_path: Path) -> None:
    """Its axes come from outside of the body, or it has none."""
    if carried:
        steps = [("Unsqueeze", ["v", "ax"], "u"), ("MatMul", ["u", "w"], "p"), ("Squeeze", ["p", "ax"], "v2")]
    else:
        steps = [("Relu", ["v"], "v2"), ("Squeeze", ["v"], "o")]
    nodes = [helper.make_node(op, read, [made]) for op, read, made in steps]
    loop = _loop(nodes, 3, 2 if carried else 3, ["y"] if carried else ["y", "all"])
    path = _saved(tmp_path / "m.onnx", [loop])
    record = dmlprep.prepare(path, out=tmp_path / "out", recipe="@vision-fp16", pins={"n": 3}, device="cpu")
    assert record.exit_code == 0, record.error
    assert [v.outcome for v in record.verdicts if v.check == Check("parity", "cpu")] == ["passed"]


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 2), (3, 3), (3, 1), (2, 2)])
def test_a_loop_whose_body_has_other_counts(inputs: int, outputs: int, tmp_path: Path) -> None:
    steps = [helper.make_node("Relu", ["v"], ["v2"]), helper.make_node("Neg", ["v"], ["o"])]
    path = _saved(tmp_path / "m.onnx", [_loop(steps, inputs, outputs, ["y"])])
    _refused(path, tmp_path / "out")


@pytest.mark.parametrize(("read", "made"), [(["x"], ["y", "z"]), (["x", "x", "x"], ["y"]), ([], ["y"])])
def test_a_call_with_other_counts_than_its_function(read: list[str], made: list[str], tmp_path: Path) -> None:
    path = _saved(tmp_path / "m.onnx", [helper.make_node("F", read, made, domain="f")], function=True)
    _refused(path, tmp_path / "out")


def _refused(path: Path, out: Path) -> None:
    try:
        code = dmlprep.prepare(path, out=out, recipe="@vision-fp16", pins={"n": 3}, device="cpu").exit_code
    except DmlprepError as error:
        code = error.exit_code
    assert code in (1, 2)
    assert not out.exists()
