"""The whole way of a pinned value: prepare, compare, check, kit and bisect feed the original what was pinned."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.record import RunRecord
from tests.parity.models import parse

TEXT = """g (float[n] x, int64 rate) => (float[m] y) <int64 wide = {16000}, int64[2] grid = {5, -1},
        int64[1] one = {1}> {
  c = Equal (rate, wide)
  y = If (c) <
    then_branch = t () => (float[k] p) { p = Tanh (x) },
    else_branch = e () => (float[k] r) { f = Reshape (x, grid) r = ReduceSum <keepdims = 0> (f, one) }
  >
}"""
PINS = {"n": 4, "rate:": 16000}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return parse(TEXT, tmp_path / "source.onnx")


def prepared(source: Path, drop: bool, **more: object) -> RunRecord:
    settings = {"step.pin.drop": True} if drop else {}
    return dmlprep.prepare(
        source, out=source.parent / "out", pins=PINS, settings=settings, device="cpu", force=True, **more
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("drop", [False, True])
def test_the_original_is_fed_the_value(source: Path, drop: bool) -> None:
    record = prepared(source, drop)
    assert record.exit_code == 0, record.error
    result = Model.open(record.output)
    assert [n.op_type for n in result.ir.graph] == ["Tanh"]
    assert [v.name for v in result.ir.graph.inputs] == (["x"] if drop else ["x", "rate"])
    verdict = dmlprep.compare(source, record.output)
    assert (verdict.outcome, verdict.feeds) == ("passed", 2)
    assert dmlprep.bisect(source, record.output, device="cpu").outcome == "agree"
    again = dmlprep.prepare(record.output, out=source.parent / "again", device="cpu")
    assert again.exit_code == 0
    assert dmlprep.compare(source, again.output).outcome == "passed"


@pytest.mark.parametrize("drop", [False, True])
def test_feeds_may_lack_the_input_or_have_the_value(source: Path, drop: bool) -> None:
    x = np.ones(4, np.float32)
    feeds = [{"x": x}, {"x": x, "rate": np.array(16000)}]
    record = prepared(source, drop, feeds=feeds)
    assert record.exit_code == 0, record.error
    assert record.verdicts[0].feeds == 2
    assert dmlprep.compare(source, record.output, feeds=feeds).outcome == "passed"
    wrong = [{"x": x, "rate": np.array(8000)}]
    with pytest.raises(InputError, match="another value for input 'rate' than its pinned value 16000"):
        prepared(source, drop, feeds=wrong)
    with pytest.raises(InputError, match="another value"):
        dmlprep.compare(source, record.output, feeds=wrong)


@pytest.mark.parametrize("drop", [False, True])
def test_a_kit_holds_the_feeds_that_the_model_takes(source: Path, drop: bool, tmp_path: Path) -> None:
    record = prepared(source, drop)
    kit = dmlprep.pack_kit(record.output, out=tmp_path / "kit.zip")
    with zipfile.ZipFile(kit.path) as packed:
        feeds = json.loads(packed.read("kit.json"))["feeds"]
    assert [sorted(f["inputs"]) for f in feeds] == [["x"] if drop else ["rate", "x"]] * 2
    assert [sorted(f["outputs"]) for f in feeds] == [["y"]] * 2


def test_check_tells_what_to_pin_and_what_was_pinned(source: Path) -> None:
    (hint,) = [f for f in dmlprep.check(source).findings if f.code == "DP209"]
    assert "--pin rate:=16000" in hint.message
    record = prepared(source, False)
    checked = dmlprep.check(record.output)
    assert [f.message for f in checked.findings if f.code == "DP207"] == ["input rate is pinned to 16000"]
    assert checked.exit_code == 0


def test_an_input_without_a_shape_takes_that_of_its_value(source: Path) -> None:
    model = onnx.load(source)
    model.graph.input[1].type.tensor_type.ClearField("shape")
    onnx.save(model, source)
    assert prepared(source, False).exit_code == 0


def test_a_recipe_file_pins_values(source: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        'doc = "Wide band only."\n[step.pin]\nsizes = { n = 4 }\nvalues = { rate = 16000 }\ndrop = true\n'
    )
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=recipe, device="cpu")
    assert record.exit_code == 0, record.error
    assert [i.name for i in onnx.load(record.output).graph.input] == ["x"]
    assert dmlprep.plan(recipe).values == {"rate": 16000}
