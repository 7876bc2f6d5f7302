"""bfloat16 and FP64 become FP32, where nodes are on the CPU otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep import api


def _model(path: Path, wide: int, *, ends: bool = False, turns: bool = False) -> Path:
    """A MatMul, or a Transpose, in a wide type: between Casts, or between inputs and outputs of that type."""
    dtype = helper.tensor_dtype_to_np_dtype(wide)
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 8)).astype(dtype), "w")
    inner = helper.make_node("Transpose", ["a"], ["b"]) if turns else helper.make_node("MatMul", ["a", "w"], ["b"])
    first, last = (
        helper.make_node("Identity", [a], [b]) if ends else helper.make_node("Cast", [a], [b], to=to)
        for a, b, to in (("x", "a", wide), ("b", "y", TensorProto.FLOAT))
    )
    kind = wide if ends else TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, [8, 8]) for name in "xy")
    graph = helper.make_graph([first, inner, last], "g", [x], [y], [] if turns else [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("ends", [False, True], ids=["between casts", "to the ends"])
@pytest.mark.parametrize("wide", [TensorProto.BFLOAT16, TensorProto.DOUBLE], ids=["bfloat16", "double"])
def test_weights_and_arithmetic_become_fp32(tmp_path: Path, wide: int, ends: bool) -> None:
    path = _model(tmp_path / "in.onnx", wide, ends=ends)
    record = api.prepare(path, out=tmp_path / "out", device="cpu")
    assert record.exit_code == 0, record.error
    assert [v.outcome for v in record.verdicts] == ["passed"]
    assert "DP105" in [f.code for step in record.steps for f in step.findings]
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert [t.data_type for t in made.graph.initializer] == [TensorProto.FLOAT]
    kind = wide if ends else TensorProto.FLOAT
    assert [v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output)] == [kind, kind]


def test_check_names_the_step_that_brings_them(tmp_path: Path) -> None:
    record = api.check(_model(tmp_path / "in.onnx", TensorProto.BFLOAT16))
    remedies = {f.remedy for f in record.findings if f.code in ("DP503", "DP507")}
    assert remedies
    assert all("brings" in remedy and "step opset" in remedy for remedy in remedies)


def test_fp64_that_directml_runs_stays(tmp_path: Path) -> None:
    record = api.prepare(
        _model(tmp_path / "in.onnx", TensorProto.DOUBLE, turns=True), out=tmp_path / "out", device="cpu"
    )
    assert record.exit_code == 0, record.error
    assert "DP105" not in [f.code for step in record.steps for f in step.findings]
    assert [n.op_type for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node] == ["Cast", "Transpose", "Cast"]
