"""Sparse weights become dense while a model is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model import Model
from tests.graph.model.conftest import mlp


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_weights_become_dense(tmp_path: Path, flat: bool) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,3] y) { a = MatMul(x, w) y = Add(a, c) }'
    )
    places = np.array([1, 5, 11], np.int64)
    indices = places if flat else np.stack(np.unravel_index(places, (4, 3)), 1).astype(np.int64)
    values = onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    weight = onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(indices, "i"), [4, 3])
    model.graph.sparse_initializer.append(weight)
    bias = onnx.helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(np.array([7], np.float32)), onnx.numpy_helper.from_array(np.array([2])), [3]
    )
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["c"], sparse_value=bias))
    onnx.save(model, tmp_path / "s.onnx")
    opened = ir.to_proto(Model.open(tmp_path / "s.onnx").ir)
    onnx.checker.check_model(opened, full_check=True)
    dense = np.zeros(12, np.float32)
    dense[places] = [1, 2, 3]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(opened.graph.initializer[0]), dense.reshape(4, 3))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(opened.graph.node[0].attribute[0].t), [0, 0, 7])


@pytest.mark.parametrize(
    ("dims", "index", "error"), [([4], 4, InputError), ([4], -1, InputError), ([1 << 40], 3, ModelRefused)]
)
def test_sparse_weights_that_do_not_fit(tmp_path: Path, dims: list[int], index: int, error: type[Exception]) -> None:
    model = mlp()
    values = onnx.numpy_helper.from_array(np.array([1], np.float32), "sparse")
    indices = onnx.numpy_helper.from_array(np.array([index]), "i")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, dims))
    (tmp_path / "s.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(error, match="sparse"):
        Model.open(tmp_path / "s.onnx")


@pytest.mark.parametrize(("kind", "bits"), [(onnx.TensorProto.INT8, 8), (onnx.TensorProto.INT4, 4)])
def test_sparse_weights_of_less_than_a_byte_are_refused(tmp_path: Path, kind: int, bits: int) -> None:
    model = mlp()
    values = onnx.helper.make_tensor("sparse", kind, [2], [3, -4])
    indices = onnx.numpy_helper.from_array(np.array([0, 3]), "i")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))
    (tmp_path / "s.onnx").write_bytes(model.SerializeToString())
    if bits < 8:
        with pytest.raises(ModelRefused, match="INT4 are not supported"):
            Model.open(tmp_path / "s.onnx")
    else:
        weights = Model.open(tmp_path / "s.onnx").ir.graph.initializers["sparse"].const_value
        assert weights is not None
        assert weights.numpy().tolist() == [3, 0, 0, -4]


def test_weights_of_bodies_and_empty_ones(tmp_path: Path) -> None:
    model = mlp()
    (branch,) = [a.g for node in model.graph.node for a in node.attribute if a.name == "then_branch"]
    values = onnx.numpy_helper.from_array(np.empty(0, np.float32), "w_in")
    indices = onnx.numpy_helper.from_array(np.empty((0, 2), np.int64), "i")
    del branch.initializer[:]
    branch.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [64, 64]))
    (tmp_path / "s.onnx").write_bytes(model.SerializeToString())
    opened = ir.to_proto(Model.open(tmp_path / "s.onnx").ir)
    (branch,) = [a.g for node in opened.graph.node for a in node.attribute if a.name == "then_branch"]
    assert not branch.sparse_initializer
    assert not onnx.numpy_helper.to_array(branch.initializer[0]).any()
    assert list(branch.initializer[0].dims) == [64, 64]


def test_values_in_a_data_file_are_refused(tmp_path: Path) -> None:
    model = mlp()
    values = onnx.TensorProto(name="sparse", data_type=onnx.TensorProto.FLOAT, dims=[1])
    values.data_location = onnx.TensorProto.EXTERNAL
    values.external_data.add(key="location", value="w.bin")
    indices = onnx.numpy_helper.from_array(np.array([0]), "i")
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[4]))
    (tmp_path / "s.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelRefused, match="sparse values are in a data file"):
        Model.open(tmp_path / "s.onnx")
