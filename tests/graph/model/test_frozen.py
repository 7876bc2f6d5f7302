"""A snapshot shares the large tensors, reads none of them, and does not move with the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.graph.model import MappedTensor, Model, freeze, thaw
from dmlprep.graph.model.frozen import stub_index
from dmlprep.graph.model.walk import tensors


def test_freeze_and_thaw_share_tensors(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    before = freeze(model.ir)
    again = thaw(before)
    assert freeze(again).same_as(before)
    ids = {id(t) for t in tensors(model.ir) if t.nbytes > 1024}
    assert {id(t) for t in tensors(again) if t.nbytes > 1024} == ids


def test_a_snapshot_does_not_move_with_the_model(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    snapshot = model.snapshot()
    next(iter(model.ir.graph)).name = "renamed"
    model.ir.graph.initializers["b"].const_value = ir.tensor(np.ones(64, np.float32), name="b")
    assert not model.snapshot().same_as(snapshot)
    model.restore(snapshot)
    assert model.snapshot().same_as(snapshot)
    assert next(iter(model.ir.graph)).name == "constant"


def test_no_value_is_read_and_the_model_is_as_it_was(mlp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model.open(mlp_path)
    before = [id(tensor) for tensor in tensors(model.ir)]
    monkeypatch.setattr(MappedTensor, "map_bytes", lambda *_: pytest.fail("a weight was read"))
    frozen = freeze(model.ir)
    assert [id(tensor) for tensor in tensors(model.ir)] == before
    assert frozen.proto.ByteSize() < 4096
    stubs = {tensor.name: stub_index(tensor) for tensor in frozen.proto.graph.initializer}
    assert stubs["zero"] is None
    assert stubs["w"] is not None
    assert frozen.tensors[stubs["w"]] is model.ir.graph.initializers["w"].const_value


def test_tensors_of_constants_stay_where_only_initializers_are_taken_out(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    names = [{t.name for t in freeze(model.ir, attributes=attributes).tensors} for attributes in (True, False)]
    (constant,) = [node for node in model.ir.graph if node.op_type == "Constant"]
    assert names[0] - names[1] == {constant.attributes["value"].as_tensor().name}


def test_the_completed_form_is_the_one_with_references_for_initializers_only(mlp_path: Path, tmp_path: Path) -> None:
    model = Model.open(mlp_path)
    snapshot = model.snapshot()
    assert not snapshot.complete
    untouched = snapshot.proto.SerializeToString(deterministic=True)
    whole, directly = snapshot.completed(), freeze(model.ir, attributes=False)
    assert whole.complete
    assert whole.completed() is whole
    assert thaw(whole).graph.initializers.keys() == thaw(directly).graph.initializers.keys()
    saved = model.save(tmp_path / "a.onnx", frozen=snapshot), model.save(tmp_path / "b.onnx")
    assert saved[0].sha256 == saved[1].sha256
    assert snapshot.proto.SerializeToString(deterministic=True) == untouched


def test_two_tensors_of_the_same_values_are_not_the_very_same(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    before = model.snapshot()
    weight = model.ir.graph.initializers["w"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy().copy(), name="w")
    assert not model.snapshot().same_as(before)
