"""Project files and recipes from Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import InputError, RecipeError, UsageError
from tests.fixtures_index import fixture
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / "models").mkdir(parents=True)
    for name in ("residual_cnn", "half_cnn"):
        shutil.copy(fixture(name).path, place / "models")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-runtime"))
    monkeypatch.chdir(place)
    return place


def test_a_project_is_begun_read_and_prepared(folder: Path) -> None:
    asked: list[tuple[str, str, int]] = []

    def ask(model: Path, name: str, example: int) -> int:
        asked.append((model.name, name, example))
        return 2

    begun = dmlprep.init_project(ask=ask, results="made")
    assert asked == [("half_cnn.onnx", "batch", 1), ("residual_cnn.onnx", "batch", 1)]
    assert [one.sizes for one in begun.models] == [{"batch": 2}, {"batch": 2}]
    assert "RECIPE @vision-fp16 PINS batch=2)" in dmlprep.build_snippet(begun, "cmake")
    with pytest.raises(UsageError, match="unknown build system"):
        dmlprep.build_snippet(begun, "make")  # type: ignore[arg-type]
    again = dmlprep.init_project()
    assert (again.models, [one.recipe for one in again.present]) == ([], ["@static-fp32", "@vision-fp16"])
    assert dmlprep.build_snippet(again, "cmake") == dmlprep.build_snippet(begun, "cmake")
    project = dmlprep.read_project()
    assert project is not None
    assert project.models["models/half_cnn.onnx"]["recipe"] == "@static-fp32"
    done = dmlprep.prepare_project(device="cpu", settings={"parity.seeds": 1}, pins={"batch": 1})
    assert (done.exit_code, done.errors) == (0, {})
    assert [path.name for path in done.records] == ["half_cnn.onnx", "residual_cnn.onnx"]
    record = done.records[Path("models/residual_cnn.onnx")]
    assert (record.recipe, record.output) == ("@vision-fp16", str(folder / "made/residual_cnn/model.onnx"))
    assert record.steps[0].options["sizes"] == {"batch": 1}, "what is given goes over the file"
    alone = dmlprep.prepare_project("dmlprep.toml", models=["models/half_cnn.onnx"], device="cpu", out="alone")
    assert (folder / "alone" / "model.onnx").exists()
    assert list(alone.records) == [Path("models/half_cnn.onnx")]


def test_a_model_that_cannot_be_read_stops_no_other(folder: Path) -> None:
    (folder / "models/broken.onnx").write_bytes(b"no model")
    begun = dmlprep.init_project()
    assert [one.path for one in begun.models] == ["models/half_cnn.onnx", "models/residual_cnn.onnx"]
    assert [path.name for path in begun.unreadable] == ["broken.onnx"]
    with pytest.raises(InputError):
        dmlprep.init_project("models/broken.onnx", force=True)
    models = ["models/broken.onnx", "models/residual_cnn.onnx"]
    done = dmlprep.prepare_project(models=models, device="cpu", settings={"parity.cpu": False})
    assert (done.exit_code, len(done.records), len(done.errors)) == (2, 1, 1)


def test_a_project_that_is_not_there(folder: Path) -> None:
    assert dmlprep.read_project() is None
    with pytest.raises(UsageError, match="no project file"):
        dmlprep.prepare_project()
    (folder / "dmlprep.toml").write_text('[models."gone/*.onnx"]\n')
    with pytest.raises(UsageError, match="names no existing model"):
        dmlprep.prepare_project()


def test_recipes_are_listed_shown_and_validated() -> None:
    assert dmlprep.list_recipes()["@vision-fp16"].doc
    text = dmlprep.recipe_text("@vision-fp16")
    plan = dmlprep.validate_recipe("mine.toml", text=text)
    assert [step.name for step in plan.steps] == list(dmlprep.list_recipes()["@vision-fp16"].step)
    with pytest.raises(RecipeError, match="unknown field") as wrong:
        dmlprep.validate_recipe("mine.toml", text=text + "\n[parity]\nsead = 1\n")
    assert "mine.toml" in wrong.value.where
    with pytest.raises(RecipeError, match="no built-in recipe"):
        dmlprep.validate_recipe("@vision")


def test_every_release_says_what_it_runs() -> None:
    records = dmlprep.check_releases(fixture("opset22_cnn").path)
    assert list(records) == [target.name for target in dmlprep.list_targets()]
    assert records["ort-1.24"].target == dmlprep.find_target("1.24").name == "ort-1.24"


def test_a_record_is_read_from_its_folder(folder: Path) -> None:
    dmlprep.prepare("models/residual_cnn.onnx", out="out", pins={"batch": 1}, settings={"parity.cpu": False})
    assert dmlprep.read_record("out") == dmlprep.read_record("out/run.json")
    assert "::" in dmlprep.render_record("out", "github")
    assert dmlprep.render_record("out", "msbuild")
    with pytest.raises(InputError):
        dmlprep.read_record("models")
