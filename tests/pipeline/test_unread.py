"""Initializers that no node reads: apps read them from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from dmlprep import api
from dmlprep.record import RunRecord

_UNREAD = {
    "first": np.array([3, 1, 2], np.int64),
    "m": np.ones((1, 4, 6, 6), np.float32),  # pin gives a value this name in ``_SHAPES``
    "emap": np.arange(1024, dtype=np.float32).reshape(32, 32),
}


def _model(tmp_path: Path, ir_version: int, graph: str) -> Path:
    model = parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : 13]>' + graph)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32) * 0.2
    tensors = [numpy_helper.from_array(array, name) for name, array in ({"w": weight} | _UNREAD).items()]
    model.graph.initializer.extend([tensors[1], tensors[0], *tensors[2:]])
    if ir_version < 4:
        model.graph.input.extend(
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer
        )
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    return path


_CONV = "g (float[n,3,8,8] x) => (float[n,4,6,6] y) { c = Conv (x, w)  y = Relu (c) }"
_SHAPES = """g (float[n,3,8,8] x) => (float[n,144] y) <int64[1] rest = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
  c = Conv (x, w)  s = Shape (c)  k = Slice (s, zero, one)  t = Concat <axis = 0> (k, rest)  y = Reshape (c, t)
}"""


def _prepare(path: Path, out: Path, **more: object) -> tuple[RunRecord, list[onnx.TensorProto]]:
    record = api.prepare(path, out=out, device="cpu", **more)  # type: ignore[arg-type]
    assert record.exit_code == 0, record.error
    return record, list(onnx.load(out / "model.onnx").graph.initializer)


@pytest.mark.parametrize("recipe", ["@static-fp32", "@vision-fp16"])
@pytest.mark.parametrize("ir_version", [3, 8])
@pytest.mark.parametrize("graph", [_CONV, _SHAPES], ids=["conv", "shapes"])
def test_every_step_keeps_them_last(tmp_path: Path, graph: str, ir_version: int, recipe: str) -> None:
    record, tensors = _prepare(_model(tmp_path, ir_version, graph), tmp_path / "out", recipe=recipe, pins={"n": 1})
    assert [t.name for t in tensors[-3:]] == list(_UNREAD)
    for tensor, array in zip(tensors[-3:], _UNREAD.values(), strict=True):
        read = numpy_helper.to_array(tensor)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
    (found,) = [f for f in record.findings if f.code == "DP307"]
    assert found.facts == {"removed": False, "bytes": sum(array.nbytes for array in _UNREAD.values())}


def test_they_go_on_request(tmp_path: Path) -> None:
    settings = {"step.simplify.drop_unread": True}
    record, tensors = _prepare(_model(tmp_path, 8, _CONV), tmp_path / "out", pins={"n": 1}, settings=settings)
    assert [t.name for t in tensors] == ["w"]
    assert [f.facts["removed"] for f in record.findings if f.code == "DP307"] == [True]


@pytest.mark.parametrize(("step", "setting"), [('[step.tidy]\nuse = "simplify"', "step.tidy.drop_unread"), ("", "")])
def test_the_way_to_remove_them_names_the_step_of_the_recipe(tmp_path: Path, step: str, setting: str) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'doc = "d"\n[step.pin]\n{step}\n', encoding="utf-8")
    record, _ = _prepare(_model(tmp_path, 8, _CONV), tmp_path / "out", pins={"n": 1}, recipe=recipe)
    (unread,) = [f for f in record.findings if f.code == "DP307"]
    assert ("--set" in unread.message) is bool(setting)
    assert setting in unread.message


def test_a_value_leaves_them_their_name(tmp_path: Path) -> None:
    from dmlprep.graph.model import Model
    from dmlprep.graph.rewriting.unread import put_unread, take_unread

    model = Model.open(_model(tmp_path, 8, _CONV))
    unread = take_unread(model.ir)
    next(iter(model.ir.graph)).outputs[0].name = "emap"
    put_unread(model.ir, unread)
    assert list(model.ir.graph.initializers)[-3:] == list(_UNREAD)
    assert next(iter(model.ir.graph)).outputs[0].name == "emap_2"
