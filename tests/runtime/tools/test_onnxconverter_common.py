"""onnxconverter-common behind its engine: explicit limits, weights left alone, failures as refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dmlprep.core.errors import CheckNotRun, ModelRefused
from dmlprep.process.onnx_worker import calls
from dmlprep.runtime.tools import onnxconverter_common as engine

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) { a = MatMul(x, w) y = Relu(a) }'


def _proto(weight):
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return proto


def test_limits_are_those_of_fp16():
    weight = np.full((16, 16), 30000, np.float32)
    weight[0, 0], weight[0, 1] = 1e6, 1e-9
    done = engine.convert_to_fp16(_proto(weight), keep_io=True, keep_operators=(), keep_nodes=())
    stored = onnx.numpy_helper.to_array(done.graph.initializer[0])
    assert stored.dtype == np.float16
    assert stored[1, 1] == 30000, "its own default clamps at 1e4"
    assert stored[0, 0] == 65504
    assert engine.holds_fp16(done)


def test_external_weights_are_not_looked_for():
    proto = _proto(np.zeros((16, 16), np.float32))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.bin")
    done = engine.convert_to_fp16(proto, keep_io=False, keep_operators=(), keep_nodes=())
    assert done.graph.initializer[0].data_type == onnx.TensorProto.FLOAT16


def test_failures_are_refusals():
    with pytest.raises(ModelRefused) as caught:
        engine.convert_to_fp16(None, keep_io=True, keep_operators=(), keep_nodes=())  # type: ignore[arg-type]
    assert caught.value.code == "DP403"
    assert caught.value.fix


def test_a_missing_process_of_onnx_is_no_fault_of_the_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> onnx.ModelProto:
        raise CheckNotRun("its process did not start")

    monkeypatch.setattr(calls, "infer_shapes", missing)
    with pytest.raises(CheckNotRun, match="did not start"):
        engine.convert_to_fp16(_proto(np.zeros((16, 16), np.float32)), keep_io=True, keep_operators=(), keep_nodes=())
