"""Models whose weights ONNX Runtime's own quantizer rounded to four bits, from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dmlprep import api
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics.precision_traits import has_few_bits
from dmlprep.record import Check

quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")

_SIDE, _LAYERS = 256, 3


@pytest.fixture(scope="module", params=[True, False], ids=["symmetric", "zero points"])
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers with ReLUs between them; DequantizeLinear in blocks before each MatMul."""
    random, value = np.random.default_rng(0), "x"
    made, weights = [], []
    for layer in range(_LAYERS):
        weight = random.standard_normal((_SIDE, _SIDE)).astype(np.float32) / np.float32(16)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        made += [
            helper.make_node("MatMul", [value, f"w{layer}"], [f"p{layer}"], name=f"product{layer}"),
            helper.make_node("Relu", [f"p{layer}"], [f"r{layer}"], name=f"relu{layer}"),
        ]
        value = f"r{layer}"
    ends = [helper.make_tensor_value_info(name, 1, ["batch", _SIDE]) for name in ("x", value)]
    graph = helper.make_graph(made, "layers", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    form = onnx_format()
    config = quantizer.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=request.param, quant_format=form)
    work = quantizer.MatMulNBitsQuantizer(model, algo_config=config)
    work.process()
    path: Path = tmp_path_factory.mktemp("four") / "four.onnx"
    onnx.save(work.model.model, path)
    return path


def onnx_format() -> object:
    from onnxruntime.quantization import QuantFormat

    return QuantFormat.QDQ


@pytest.mark.parametrize("target", ["ort-1.21", "ort-1.24", "ort-1.30"])
def test_they_are_proved_and_stay_small(quantized: Path, target: str, tmp_path: Path) -> None:
    record = api.prepare(
        quantized, out=tmp_path / "out", pins={"batch": 2}, recipe="@static-fp32", target=target, device="cpu"
    )
    assert record.exit_code == 0
    (verdict,) = [v for v in record.verdicts if v.check == Check("parity", "cpu") and v.outputs]
    assert verdict.tolerance.startswith("fp32-cpu")
    assert max(output.max_rel for output in verdict.outputs) < 1e-5
    result = tmp_path / "out" / "model.onnx"
    assert result.stat().st_size < 1.1 * quantized.stat().st_size
    ops = {node.op_type for node in nodes(Model.open(result).ir)}
    assert ("MatMulNBits" in ops, "DequantizeLinear" in ops) == (target != "ort-1.24", target == "ort-1.24")
    assert has_few_bits(Model.open(quantized))
    assert has_few_bits(Model.open(result))
