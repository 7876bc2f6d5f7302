"""What is changed while a run uses it: nothing appears that vouches for it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from dmlprep import api, runtime
from dmlprep.core.errors import InputError
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.pipeline.observer import Observer
from dmlprep.record import RunRecord, StepRecord, Verdict
from dmlprep.runtime import DmlStatus, SessionOptions, open_cpu
from tests.changed import Once, added, flip, names, touch
from tests.system import not_on_windows


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with its weights in a data file."""
    return added(tmp_path / "in.onnx")


class _Meanwhile(Observer):
    """Something that happens once, after a step or after a check."""

    def __init__(self, act: Callable[[], Any], *, late: bool) -> None:
        self.act, self.late, self.done = act, late, False

    def _now(self, late: bool) -> None:
        if late == self.late and not self.done:
            self.done = True
            self.act()

    def step_finished(self, record: StepRecord) -> None:
        self._now(False)

    def check_finished(self, verdict: Verdict) -> None:
        self._now(True)


def _prepare(model: Path, act: Callable[[], Any], *, late: bool = True, **options: Any) -> RunRecord:
    options = {"pins": {"batch": 2}, "device": "cpu", **options}
    return api.prepare(model, out=model.parent / "out", observer=_Meanwhile(act, late=late), **options)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["in.onnx", "in.data"])
def test_a_model_that_is_changed_in_place(model: Path, name: str, late: bool) -> None:
    with pytest.raises(InputError) as refused:
        _prepare(model, lambda: flip(model.parent / name), late=late)
    # A model that is broken by it may be told as that.
    assert refused.value.exit_code == 2
    if late:
        assert (refused.value.code, refused.value.where) == ("DP015", str(model.parent / name))
    assert not (model.parent / "out" / "model.onnx").exists()
    assert not (model.parent / "out" / "run.json").exists()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("recipe", ["@static-fp32", "@vision-fp16"])
@pytest.mark.parametrize("inside", [False, True])
def test_weights_that_are_cut_off(tmp_path: Path, inside: bool, recipe: str, late: bool) -> None:
    """A download that begins again: the file is short for a while. Mapped weights end no process."""
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 256] x) => (float[batch, 256] y)
        { y = MatMul(x, w) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w"))
    path = tmp_path / "in.onnx"
    onnx.save(proto, path, save_as_external_data=not inside, location="in.data", size_threshold=0)
    weights = path if inside else tmp_path / "in.data"
    with pytest.raises(InputError, match="changed during the run") as refused:
        _prepare(path, lambda: os.truncate(weights, 1000), late=late, recipe=recipe)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert str(weights) in refused.value.where
    assert not (tmp_path / "out" / "model.onnx").exists()


@not_on_windows("it removes no file that is mapped")
@pytest.mark.parametrize("recipe", ["@static-fp32", "@vision-fp16"])
def test_weights_that_are_removed(tmp_path: Path, recipe: str) -> None:
    """The error names the weights, not a temporary file that cannot be written."""
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 256] x) => (float[batch, 256] y)
        { y = MatMul(x, w) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w"))
    onnx.save(proto, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    weights = tmp_path / "in.data"
    with pytest.raises(InputError, match="cannot be read") as refused:
        _prepare(tmp_path / "in.onnx", weights.unlink, late=False, recipe=recipe)
    assert refused.value.where == str(weights)


def test_a_recipe_that_is_changed(model: Path) -> None:
    recipe = model.parent / "own.toml"
    recipe.write_text('doc = "d"\n[step.opset]\n')
    with pytest.raises(InputError, match="changed during the run") as refused:
        _prepare(model, lambda: recipe.write_text('doc = "e"\n'), recipe=recipe, pins={})
    assert refused.value.where == str(recipe)


def test_a_refusal_vouches_for_no_digest_either(model: Path) -> None:
    never = {"metric": lambda reference, candidate: (1.0, False)}
    assert _prepare(model, lambda: None, **never).exit_code == 1
    with pytest.raises(InputError, match="DP015"):
        _prepare(model, lambda: flip(model.parent / "in.data"), **never)


def test_the_record_has_the_digest_of_every_file(model: Path) -> None:
    def same() -> None:
        """Another file of the same contents."""
        shutil.copyfile(model.parent / "in.data", model.parent / "copy")
        os.replace(model.parent / "copy", model.parent / "in.data")

    record = _prepare(model, same)
    assert record.exit_code == 0
    expected = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in (model, model.parent / "in.data")}
    assert record.facts.digests == expected
    assert record.input_sha256 == expected[str(model)]


@pytest.mark.parametrize("name", ["in.onnx", "in.data", "other.onnx", "other.data"])
def test_compare(model: Path, name: str) -> None:
    other = added(model.parent / "other.onnx")

    def touched(reference: Any, candidate: Any) -> float:
        touch(model.parent / name)
        return 0.0

    with pytest.raises(InputError, match="the file changed during the run") as refused:
        api.compare(model, other, sizes={"batch": 2}, metric=touched, metric_bound=1.0)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(model.parent / name)
    assert api.compare(model, other, sizes={"batch": 2}).outcome == "passed"


@pytest.mark.parametrize("name", ["in.onnx", "in.data", "other.onnx", "other.data"])
def test_bisect(model: Path, name: str) -> None:
    other, before = added(model.parent / "other.onnx", 1, 2, 3, 5), names(model.parent)
    out = {"sizes": {"batch": 2}, "out": model.parent / "found"}
    with pytest.raises(InputError) as refused:
        api.bisect(model, other, progress=Once(lambda: touch(model.parent / name)), **out)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(model.parent / name)
    assert names(model.parent) == before
    assert api.bisect(model, other, **out).outcome == "found"


def test_bisect_while_it_writes_what_it_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = added(model.parent / "other.onnx", 1, 2, 3, 5)
    before, save = names(model.parent), np.savez_compressed

    def touched(file: Path, **rest: Any) -> None:
        touch(model.parent / "other.data")
        save(file, **rest)

    monkeypatch.setattr(np, "savez_compressed", touched)
    with pytest.raises(InputError) as refused:
        api.bisect(model, other, sizes={"batch": 2}, out=model.parent / "found")
    assert (refused.value.code, refused.value.where) == ("DP015", str(model.parent / "other.data"))
    assert names(model.parent) == before


@pytest.mark.parametrize("name", ["in.onnx", "in.data"])
def test_check_that_asks_directml(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(path: Path, options: SessionOptions, **_: Any) -> Any:
        touch(model.parent / name)
        return open_cpu(path, options)  # stands in for DirectML

    monkeypatch.setattr(runtime, "dml_status", lambda *_, **__: DmlStatus(True))
    monkeypatch.setattr(runtime, "open_dml", opener)
    with pytest.raises(InputError) as refused:
        api.check(model, verify=True)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(model.parent / name)
    assert names(model.parent) == ["in.data", "in.onnx"]


def test_what_a_run_goes_on_with_and_what_it_has_read(model: Path) -> None:
    data = model.parent / "in.data"
    sha = hashlib.sha256(data.read_bytes()).hexdigest()
    files = Unchanged()
    files.take_digests({data: sha})
    files.check()
    flip(data)
    with pytest.raises(InputError, match="DP015"):
        files.check()
    with pytest.raises(InputError, match="DP015"):
        files.check_read(data, hashlib.sha256(data.read_bytes()).hexdigest())
    files.check_read(data, sha)
    files.check()  # the file is not read for what was read already


def test_a_file_that_is_gone(model: Path) -> None:
    files = Unchanged()
    files.take([model])
    model.unlink()
    with pytest.raises(InputError, match="DP015"):
        files.check()
    with pytest.raises(InputError, match="no such file"):
        Unchanged().take_model(model)
