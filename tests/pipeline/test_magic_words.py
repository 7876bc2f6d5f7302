"""Names in a model that are words of our messages change no verdict, exit code, error code or headline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.record import RunRecord
from dmlprep.record.run_record import headline

PLAIN = ("m", "x", "h", "w", "mul", "y")
HOSTILE = [
    ("parity on dml (kit)", "out of memory", "fix: x", "(kit", "parity on dml", "passed"),
    ("out of memory", "limit: x", "parity on cpu", "DP804", "not proven", "fp16 emulation (storage)"),
    ("step pin", "error: x [DP001]", "a may hold b", "software adapter", "step pin", "ONNX Runtime 1.2"),
]


def _model(names: tuple[str, ...], folder: Path) -> Path:
    file, x, hidden, weight, node, y = names
    graph = helper.make_graph(
        [helper.make_node("Mul", [x, weight], [hidden], name=node), helper.make_node("Tanh", [hidden], [y])],
        "passed",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.linspace(0.1, 0.7, 4, dtype=np.float32), weight)],
    )
    path = folder / f"{file}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _outcome(record: RunRecord) -> object:
    error = record.error
    return (
        record.exit_code,
        [(verdict.check, verdict.outcome, verdict.decides, verdict.ended) for verdict in record.verdicts],
        [(one.code, one.severity) for one in record.all_findings()],
        (error.code, bool(error.fix)) if error is not None else None,
        headline(record).level,
        headline(record).text.partition(", worst error")[0] if error is None else "",
    )


@pytest.mark.parametrize("names", HOSTILE, ids=["kit", "limits", "steps"])
@pytest.mark.parametrize("bound", ["auto", "rel:1e-7"])
def test_magic_words_change_nothing(names: tuple[str, ...], bound: str, tmp_path: Path) -> None:
    settings = {"parity.tolerance": bound, "parity.dml": "off", "parity.noise": "off"}
    outcomes = []
    for number, used in enumerate((PLAIN, names)):
        model = _model(used, tmp_path)
        record = dmlprep.prepare(model, out=tmp_path / str(number), recipe="@vision-fp16", settings=settings)
        assert record.exit_code == (0 if bound == "auto" else 1), record.error
        outcomes.append(_outcome(record))
    assert outcomes[0] == outcomes[1]
