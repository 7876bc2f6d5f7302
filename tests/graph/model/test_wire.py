"""The wire scan gives the same model as protobuf does, with any threshold, and never more than an InputError."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.tensors import chunks
from dmlprep.graph.model.walk import tensors
from dmlprep.graph.model.wire import SELF, data_locations, skeleton, varint
from tests.graph.model.conftest import mlp


def _fill(proto: onnx.ModelProto, data: bytes) -> onnx.ModelProto:
    """Put the payloads back where the skeleton has references."""
    stack: list[object] = [proto.graph]
    while stack:
        graph = stack.pop()
        found = list(graph.initializer)  # type: ignore[attr-defined]
        for node in graph.node:  # type: ignore[attr-defined]
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    found.append(attribute.t)
                if attribute.HasField("g"):
                    stack.append(attribute.g)
        for tensor in found:
            entries = {e.key: e.value for e in tensor.external_data}
            if entries.get("location") == SELF:
                at, length = int(entries["offset"]), int(entries["length"])
                tensor.raw_data = data[at : at + length]
                tensor.ClearField("data_location")
                del tensor.external_data[:]
    return proto


@given(threshold=st.integers(0, 20_000), width=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_skeleton_is_the_model(threshold: int, width: int) -> None:
    model = mlp(max(width, 32))
    data = model.SerializeToString()
    light = skeleton(data, threshold)
    assert _fill(onnx.ModelProto.FromString(light), data) == model


@given(data=st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_skeleton_or_an_error(data: bytes) -> None:
    with contextlib.suppress(InputError):
        skeleton(data, 0)


@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_a_flipped_byte_never_crashes(at: int, byte: int, tmp_path_factory: object) -> None:
    data = bytearray(mlp(32).SerializeToString())
    data[at % len(data)] = byte
    path = Path(tmp_path_factory.getbasetemp()) / "flipped.onnx"  # type: ignore[attr-defined]
    path.write_bytes(data)
    with contextlib.suppress(InputError, ModelRefused):
        model = Model.open(path)
        model.snapshot()
        check(model.ir)


@given(st.integers(0, 1 << 62))
def test_varint(value: int) -> None:
    proto = TensorProto(dims=[value])
    assert varint(value) in proto.SerializeToString()


def test_skeleton_of_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp().SerializeToString())
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len(skeleton(mapped)) < 6000


def test_narrow_types_and_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "u8": rng.integers(0, 255, (50, 100)).astype(np.uint8),
        "i64": rng.integers(-5, 5, 3000),
        "f16": rng.standard_normal(3000).astype(np.float16),
    }
    init = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    init.append(
        helper.make_tensor("i4", TensorProto.INT4, [3001], bytes(rng.integers(0, 255, 1501).astype(np.uint8)), True)
    )
    graph = helper.make_graph(
        [helper.make_node("Identity", ["f16"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [3000])],
        init,
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path)
    opened = {t.name: t for t in tensors(Model.open(path).ir)}
    for name, want in arrays.items():
        np.testing.assert_array_equal(opened[name].numpy(), want)
        pieces = list(chunks(opened[name], 1000))
        assert len(pieces) > 1
        np.testing.assert_array_equal(np.concatenate(pieces), want.reshape(-1))
    want4 = numpy_helper.to_array(init[-1])
    np.testing.assert_array_equal(np.asarray(opened["i4"].numpy()).astype(np.int8), want4.astype(np.int8))


def test_locations_of_data_in_initializers_and_in_nodes(tmp_path: Path) -> None:
    model = mlp()
    path = tmp_path / "model.onnx"
    for index, tensor in enumerate((model.graph.initializer[0], helper.make_tensor("t", TensorProto.FLOAT, [1], [0]))):
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"data{index}")
        if index:
            model.graph.node.append(helper.make_node("Constant", [], ["t"], value=tensor))
        path.write_bytes(model.SerializeToString())
        assert data_locations(path) == ["data0", "data1"][: index + 1]
