"""Which jobs a file stands for, what it cannot say, and which of them are run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dmlprep.core.errors import UsageError
from dmlprep.fleet import Job, jobs_of, read_shard, selected, sharded
from dmlprep.fleet.matrix import Shard
from dmlprep.pipeline.project import read_project


def _jobs(folder: Path, text: str, *models: str) -> list[Job]:
    for name in models:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("model")
    (folder / "dmlprep.toml").write_text(text)
    return jobs_of(read_project(folder / "dmlprep.toml"))


_ALL = """
targets = ["ort-1.24", "ort-1.30"]
pins = { batch = 1 }
settings = ["parity.seeds=3"]
feeds = ["feeds/{name}.npz"]
metric = "measure.py:psnr"
metric_bound = 2
[models."m/**/*.onnx"]
recipe = "@vision-fp16"
[models."m/**/*.onnx".sizes]
small = { height = 32 }
large = { height = 64, batch = 2 }
[models."m/vision/b.onnx"]
recipes = ["@static-fp32", "own.toml"]
target = "ort-1.20"
sizes = {}
settings = ["parity.seeds=4"]
"""


def test_every_model_with_every_choice_that_holds_for_it(tmp_path: Path) -> None:
    jobs = _jobs(tmp_path, _ALL, "m/a.onnx", "m/vision/b.onnx", "other.onnx")
    assert [job.name for job in jobs] == [
        "a/ort-1.24/small",
        "a/ort-1.24/large",
        "a/ort-1.30/small",
        "a/ort-1.30/large",
        "vision/b/static-fp32",
        "vision/b/own",
    ]
    first, second, last = jobs[0], jobs[1], jobs[-1]
    assert (first.recipe, first.target, first.size) == ("@vision-fp16", "ort-1.24", "small")
    assert (first.pins, second.pins, last.pins) == (
        {"batch": 1, "height": 32},
        {"batch": 2, "height": 64},
        {"batch": 1},
    )
    assert first.options == {
        "feeds": (str(tmp_path / "feeds/a.npz"),),
        "metric": str(tmp_path / "measure.py:psnr"),
        "metric_bound": 2.0,
    }
    assert (last.recipe, last.target, last.settings) == (
        str(tmp_path / "own.toml"),
        "ort-1.20",
        {"parity.seeds": 4},
    )


def test_a_plain_file_is_a_fleet_of_plain_jobs(tmp_path: Path) -> None:
    (job,) = _jobs(tmp_path, '[models."m/a.onnx"]', "m/a.onnx")
    assert (job.name, job.recipe, job.target) == ("a", "@static-fp32", "")


def test_exclusions(tmp_path: Path) -> None:
    text = _ALL + '[[exclude]]\nmodel = "m/a*"\nsize = "large"\ntarget = ["ort-1.2[0-4]"]\n[[exclude]]\nmodel = "b"\n'
    names = [job.name for job in _jobs(tmp_path, text, "m/a.onnx", "m/vision/b.onnx")]
    assert names == ["a/ort-1.24/small", "a/ort-1.30/small", "a/ort-1.30/large"]


_ONE = '[models."m/*.onnx"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no models"),
        ("models = 1", "Expected `object"),
        ("[models]\n'm/*.onnx' = 1", 'models."m/*.onnx"'),
        ("[model]\nout = 'x'\n" + _ONE, "did you mean 'models'"),
        (_ONE + "receipe = '@x'", "'models.\"m/*.onnx\".receipe'|did you mean 'recipe'"),
        (_ONE + "device = 'gpu'", "'models.\"m/*.onnx\".device'|one of: auto, cpu, dml"),
        (_ONE + "sizes = { small = 1 }", "sizes"),
        (_ONE + "sizes = { '../x' = { batch = 1 } }", "is not a valid name"),
        (_ONE + "sizes = { small = {} }", "pins nothing"),
        (_ONE + "target = 'a'\ntargets = ['b']", "both 'models.\"m/*.onnx\".target' and"),
        (_ONE + "recipes = []", "is empty"),
        (_ONE + "targets = ['a', 'a']", "has duplicates"),
        (_ONE + "out = 'x'", "at the top of the file"),
        ('[models."m/*.onx"]', "no file matches"),
        ('[models."/"]', "not a file pattern"),
        (_ONE + "[[exclude]]\n", "excludes all jobs"),
        (_ONE + "[[exclude]]\nmodels = 'x'", "did you mean 'model'"),
        (_ONE + "targets = ['ort-1.24', 'ort-1.30']\n[[exclude]]\ntarget = 'ort-1.25'", "did you mean 'ort-1.24'"),
        (_ONE + "[[exclude]]\nmodel = '*'", "no jobs remain"),
        (_ONE + "recipes = ['x/a.toml', 'y/a.toml']", "different names"),
        ('[models."m/a.onnx"]\n[models."n/a.onnx"]', "both be named 'a'"),
        ('[models."m/a.onnx"]\n[models."n/A.onnx"]', "both be named"),
        (_ONE + "targets = ['ort-1.24', '']", "is empty"),
        ("x = " + "[" * 5000, "deep"),
        ("[", "not TOML"),
    ],
)
def test_files_that_say_what_they_cannot(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _jobs(tmp_path, text, "m/a.onnx", "n/a.onnx", "n/A.onnx")
    assert caught.value.code == "DP904"
    assert str(tmp_path / "dmlprep.toml") in caught.value.where
    for word in said.split("|"):
        assert word in f"{caught.value.what} {caught.value.fix}"


def test_a_matrix_of_billions_is_refused_before_it_is_made(tmp_path: Path) -> None:
    many = ", ".join(f"'t{number}'" for number in range(3000))
    sizes = ", ".join(f"s{number} = {{ batch = {number} }}" for number in range(3000))
    text = f"{_ONE}recipes = [{many}]\ntargets = [{many}]\nsizes = {{ {sizes} }}"
    with pytest.raises(UsageError, match="more than 100,000 jobs"):
        _jobs(tmp_path, text, "m/a.onnx")


def test_a_name_that_is_no_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a file pattern"):
        _jobs(tmp_path, '[models."."]\n', "m/a.onnx")


def test_shards_are_all_of_it_and_none_twice(tmp_path: Path) -> None:
    jobs = _jobs(tmp_path, _ONE, *(f"m/{number}.onnx" for number in range(60)))
    parts = [sharded(jobs, read_shard(f"{index}/8")) for index in range(1, 9)]
    assert Counter(job.name for part in parts for job in part) == Counter(job.name for job in jobs)
    assert sharded(jobs, read_shard("")) == jobs
    # A job stays in its part, whatever comes beside it.
    fewer = [job for job in jobs if job.name != "7"]
    assert [job for job in parts[2] if job.name != "7"] == sharded(fewer, Shard(3, 8))


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/", "a/b", "-1/2", "1/99999", "1/0"])
def test_parts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_shard(text)
    assert caught.value.where == "--shard"


def test_jobs_are_named_by_patterns(tmp_path: Path) -> None:
    jobs = _jobs(tmp_path, _ALL, "m/a.onnx", "m/vision/b.onnx")
    assert len(selected(jobs, ["a"])) == 4
    assert [job.name for job in selected(jobs, ["*/large"])] == ["a/ort-1.24/large", "a/ort-1.30/large"]
    assert [job.name for job in selected(jobs, ["vision/b/own", "a/ort-1.24"])] == [
        "a/ort-1.24/small",
        "a/ort-1.24/large",
        "vision/b/own",
    ]
    assert len(selected(jobs, ["m/vision/b.onnx"])) == 2
    with pytest.raises(UsageError) as caught:
        selected(jobs, ["a/ort-1.24/smal"])
    assert "did you mean 'a/ort-1.24/small'" in caught.value.fix


def test_names_of_an_error_are_few(tmp_path: Path) -> None:
    jobs = _jobs(tmp_path, _ONE, *(f"m/{number}.onnx" for number in range(60)))
    with pytest.raises(UsageError) as caught:
        selected(jobs, ["nothing-like-it"])
    assert len(caught.value.fix) < 200


@pytest.mark.parametrize("pattern", ["m/...onnx", "m/..onnx", "m/.dmlprep-fleet.onnx"])
def test_a_model_whose_stem_is_no_folder_of_its_own_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(UsageError):
        _jobs(tmp_path, f'[models."{pattern}"]\n', pattern)


def test_a_recipe_whose_stem_is_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"would have the folder '\.\.'"):
        _jobs(tmp_path, '[models."m/a.onnx"]\nrecipes = ["@static-fp32", "...toml"]\n', "m/a.onnx")
