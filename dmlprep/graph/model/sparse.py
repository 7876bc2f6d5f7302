"""Convert sparse weights to dense ones while a model is opened, as ONNX Runtime does: onnx-ir has no sparse ones.

The weights stay sparse in memory, and become dense only while their values are read.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model import protos
from dmlprep.graph.model.bounds import invalid
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.tensors import LazyTensor
from dmlprep.graph.model.wire import SPARSE
from dmlprep.portable.arrays import Array


class SpreadTensor(LazyTensor):
    """A dense tensor of shape ``dims`` that is stored sparse: 0 except for ``values`` at flat indices ``places``."""

    def __init__(
        self, values: Array, places: Array, dtype: ir.DataType, dims: tuple[int, ...], name: str, doc_string: str | None
    ) -> None:
        super().__init__((values, places), dtype, ir.Shape(dims), name, doc_string)
        self.values, self.places = values, places

    def numpy(self) -> Array:
        """Return the dense values, [dims]."""
        full = np.zeros(self.size, self.values.dtype)
        full[self.places] = self.values
        return full.reshape(self.shape.numpy())


def densify(proto: onnx.ModelProto, budget: Budget, where: str) -> list[SpreadTensor]:
    """Replace sparse initializers, and sparse values of Constant nodes, by references to dense tensors, in place.

    Returns:
        the dense tensors. ``proto`` refers to each by the location ``SPARSE`` and its index in the list as the offset.

    Raises:
        InputError: indices are outside the tensor or do not fit the values, or an initializer has no name.
        ModelRefused: DP004, the values are in a data file, or of a type that is not supported (text, or less than a
            byte); DP014, they exceed the model's budget.
    """
    dense_tensors: list[SpreadTensor] = []

    def stand_in(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
        dense = _spread(sparse, where)
        place = f"{where}: sparse tensor {dense.name!r}"
        budget.spend(dense.nbytes, what="its sparse weights, converted to dense,", where=place)
        dense_tensors.append(dense)
        tensor = onnx.TensorProto(
            name=dense.name,
            data_type=sparse.values.data_type,
            dims=sparse.dims,
            doc_string=sparse.values.doc_string,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        protos.refer(tensor, SPARSE, len(dense_tensors) - 1, dense.nbytes)
        return tensor

    for graph in protos.graphs(proto):
        for sparse in graph.sparse_initializer:
            if not sparse.values.name:
                raise _invalid("an initializer has no name", where)
            graph.initializer.append(stand_in(sparse))
        del graph.sparse_initializer[:]
    for node in protos.nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
                tensor = stand_in(attribute.sparse_tensor)
                attribute.Clear()
                attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(tensor)
    return dense_tensors


def _spread(sparse: onnx.SparseTensorProto, where: str) -> SpreadTensor:
    values, indices, dims = sparse.values, sparse.indices, tuple(sparse.dims)
    where = f"{where}: sparse tensor {values.name or 'without a name'}"
    if onnx.TensorProto.EXTERNAL in (values.data_location, indices.data_location):
        raise _unkept("sparse values are in a data file", where)
    try:
        held, places = onnx.numpy_helper.to_array(values).reshape(-1), onnx.numpy_helper.to_array(indices)
        kind = ir.DataType(values.data_type)
    except (ValueError, TypeError, KeyError) as error:
        raise _invalid(str(error), where) from error
    if kind == ir.DataType.STRING or kind.bitwidth < 8:
        raise _unkept(f"sparse weights of type {kind.name} are not supported", where)
    size = math.prod(dims)
    if any(d < 0 for d in dims) or places.dtype != np.int64 or size >= 2**63:
        raise _invalid("its dimensions or indices are invalid", where)
    if places.ndim == 2:
        if places.shape != (held.size, len(dims)) or not ((places >= 0) & (places < dims)).all():
            raise _invalid("its indices are out of range", where)
        places = np.ravel_multi_index(tuple(places.T), dims) if held.size else np.empty(0, np.int64)
    if places.shape != (held.size,) or not ((places >= 0) & (places < size)).all():
        raise _invalid("its indices are out of range", where)
    return SpreadTensor(held, places, kind, dims, values.name, values.doc_string)


def _unkept(what: str, where: str) -> ModelRefused:
    return ModelRefused(what, where=where, code="DP004", fix="export the model with dense weights")


def _invalid(what: str, where: str) -> InputError:
    return invalid(f"a sparse tensor is invalid: {what}", where)
