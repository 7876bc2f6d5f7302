"""The data files of a model: whatever the size of their tensors, and wherever below the model's folder they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dmlprep import api
from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import data_files, named_data_files
from tests.package.runs import run_of


def scaled(path: Path, data: str, size: int = 1) -> Model:
    """A product whose one weight is in the file ``data``, in the model where that is empty."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [size])],
        [helper.make_tensor_value_info("y", 1, [size])],
        [numpy_helper.from_array(np.ones(size, np.float32), "w")],
    )
    (path.parent / data).parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=bool(data), location=data or None, size_threshold=0)
    return Model.open(path)


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("data", ["weights.bin", "below/weights.bin"])
def test_a_data_file_counts_whatever_it_holds(tmp_path: Path, data: str, size: int) -> None:
    model = scaled(tmp_path / "model.onnx", data, size)
    assert data_files(model) == [tmp_path.resolve() / data]
    assert list(named_data_files(model)) == [data]


def test_a_file_that_no_tensor_is_read_from_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.onnx.data").write_bytes(b"from an earlier export")
    assert data_files(scaled(tmp_path / "model.onnx", "")) == []
    run = run_of(tmp_path)
    api.package_model(run, out=tmp_path / "app", language="python")
    assert not list((tmp_path / "app").glob("*.data"))


def test_a_kit_has_folders_and_a_package_has_none(tmp_path: Path) -> None:
    scaled(tmp_path / "run" / "model.onnx", "below/weights.bin")
    packed = api.pack_kit(tmp_path / "run" / "model.onnx", out=tmp_path / "k.zip")
    assert packed.manifest.model.data == ["model/below/weights.bin"]
    with pytest.raises(ModelRefused, match="below/weights"):
        api.package_model(run_of(tmp_path / "run"), out=tmp_path / "app", language="python")
