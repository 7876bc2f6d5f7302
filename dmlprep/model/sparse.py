"""Sparse weights become dense ones while a model is opened: onnx-ir holds none, and ONNX Runtime does the same."""

from __future__ import annotations

import math

import numpy as np
import onnx

from dmlprep.errors import InputError, ModelRefused
from dmlprep.model import protos

__all__ = ["densify"]

_LARGEST = 1 << 30
"""Bytes of one dense tensor: beyond it, a small file could fill the memory."""


def densify(proto: onnx.ModelProto, where: str) -> None:
    """Replace sparse initializers, and the sparse values of Constant nodes, by dense tensors, in place.

    Raises:
        InputError: indices lie outside the tensor, or do not fit the values.
        ModelRefused: the values lie in a data file, or the dense tensor would take more than 1 GiB.
    """
    for graph in protos.graphs(proto):
        for sparse in graph.sparse_initializer:
            if not sparse.values.name:
                raise _invalid("an initializer has no name", where)
            graph.initializer.append(_dense(sparse, where))
        del graph.sparse_initializer[:]
    for node in protos.nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
                dense = _dense(attribute.sparse_tensor, where)
                attribute.Clear()
                attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(dense)


def _dense(sparse: onnx.SparseTensorProto, where: str) -> onnx.TensorProto:
    values, indices, dims = sparse.values, sparse.indices, list(sparse.dims)
    name = values.name or "without a name"
    where = f"{where}: sparse tensor {name}"
    if onnx.TensorProto.EXTERNAL in (values.data_location, indices.data_location):
        raise ModelRefused(
            "sparse values lie in a data file", where=where, code="DP004", fix="export the model with dense weights"
        )
    try:
        held, places = onnx.numpy_helper.to_array(values).reshape(-1), onnx.numpy_helper.to_array(indices)
    except (ValueError, TypeError, KeyError) as error:
        raise _invalid(str(error), where) from error
    if any(d < 0 for d in dims) or places.dtype != np.int64:
        raise _invalid("its dimensions or indices are no indices", where)
    if math.prod(dims) * held.dtype.itemsize > _LARGEST:
        raise ModelRefused(
            f"dense, it would take {math.prod(dims) * held.dtype.itemsize / 1e9:.1f} GB",
            where=where,
            code="DP004",
            fix="export the model with dense weights",
        )
    if places.ndim == 2:
        if places.shape != (held.size, len(dims)) or not ((places >= 0) & (places < dims)).all():
            raise _invalid("its indices lie outside", where)
        places = np.ravel_multi_index(tuple(places.T), dims) if held.size else np.empty(0, np.int64)
    if places.shape != (held.size,) or not ((places >= 0) & (places < math.prod(dims))).all():
        raise _invalid("its indices lie outside", where)
    full = np.zeros(math.prod(dims), held.dtype)
    full[places] = held
    dense = onnx.numpy_helper.from_array(full.reshape(dims), values.name)
    dense.doc_string = values.doc_string
    return dense


def _invalid(what: str, where: str) -> InputError:
    return InputError(f"a sparse tensor is invalid: {what}", where=where, code="DP003", fix="export the model again")
