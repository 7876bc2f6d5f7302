"""A model written for a run of our own costs no copy of its weights and computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.graph.model import MappedTensor, Model
from dmlprep.runtime import DATA_FOLDER, SessionOptions, open_cpu


@pytest.mark.parametrize("which", ["mlp_path", "external_path"])
def test_runs_without_a_copy(
    which: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Path = request.getfixturevalue(which)
    feeds = {"x": np.ones((2, 64), np.float32)}
    with open_cpu(source) as session:
        want = session.run(feeds)
    model = Model.open(source)
    with monkeypatch.context() as patch:
        patch.setattr(MappedTensor, "tofile", lambda *_: pytest.fail("a weight was copied"))
        folder = model.save_linked(tmp_path / "run.onnx")
    with open_cpu(tmp_path / "run.onnx", SessionOptions(config={DATA_FOLDER: str(folder)})) as session:
        got = session.run(feeds)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_changed_tensors_are_written_beside(mlp_path: Path, tmp_path: Path) -> None:
    model = Model.open(mlp_path)
    zero = ir.LazyTensor(
        lambda: ir.tensor(np.zeros((64, 64), np.float32)), dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]), name="w"
    )
    model.ir.graph.initializers["w"].const_value = zero
    folder = model.save_linked(tmp_path / "run.onnx")
    with open_cpu(tmp_path / "run.onnx", SessionOptions(config={DATA_FOLDER: str(folder)})) as session:
        assert not session.run({"x": np.ones((1, 64), np.float32)})["y"].any()
