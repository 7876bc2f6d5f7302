"""The scripts of ``action.yml`` and ``azure/dmlprep.yml`` are run on a fleet, as a runner and an agent would."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.buildsys.ci_runners import ACTION, TEMPLATE, Azure, GitHub, load, needs_bash, python_in
from tests.cli.buildsys.tools import ROOT
from tests.fixtures_index import FOLDER, fixture

pytestmark = pytest.mark.skipif(needs_bash[0], reason=needs_bash[1])

_TEXT = """
device = "cpu"
settings = ["parity.cpu=false"]
[models."models/*.onnx"]
sizes = { one = { batch = 1 } }
[models."models/wrong type.onnx"]
sizes = {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work space"
    (place / "models").mkdir(parents=True)
    shutil.copy(fixture("residual_cnn").path, place / "models")
    shutil.copy(FOLDER / "broken/wrong_type.onnx", place / "models/wrong type.onnx")
    (place / "dmlprep.toml").write_text(_TEXT)
    # What lies in the working folder is not taken for dmlprep, nor for what it imports.
    (place / "dmlprep").mkdir()
    (place / "dmlprep/__init__.py").write_text("raise SystemExit('taken from the working folder')")
    (place / "numpy.py").write_text("raise SystemExit('taken from the working folder')")
    return place


@pytest.fixture
def github(folder: Path, tmp_path: Path) -> GitHub:
    return GitHub(folder, tmp_path / "runner", python_in(tmp_path / "bin"))


@pytest.fixture
def azure(folder: Path, tmp_path: Path) -> Azure:
    return Azure(folder, tmp_path / "agent", python_in(tmp_path / "bin"))


@pytest.mark.builds
def test_one_model_is_refused(github: GitHub, folder: Path, tmp_path: Path) -> None:
    done = github.run(sarif="true")
    assert done.code == 1
    assert done.names == [
        "Python",
        "Install dmlprep",
        "The jobs of earlier runs",
        "dmlprep fleet",
        "Keep the jobs",
        "Findings for code scanning",
        "Verdict",
    ]
    assert [step.code for step in done.steps] == [0, 0, 0, 0, 0, 0, 1]
    assert (tmp_path / "bin/pip.txt").read_text().split()[-1] == str(ROOT)  # of the action's own checkout
    assert done.step("dmlprep fleet").out.count("::error file=models/wrong type.onnx,title=dmlprep wrong type") == 1
    assert done.summary.startswith("### 2 jobs: 1 failed, 1 review\n")
    assert "| residual_cnn/one | **review** | " in done.summary
    assert "- **wrong type**: " in done.summary
    assert done.outputs == {
        "exit-code": "1",
        "counts": '{"failed":1,"good":1}',
        "fleet-json": "build/models/fleet.json",
        "index": "build/models/index.html",
        "sarif": "build/models/fleet.sarif",
        "junit": "build/models/junit.xml",
    }
    assert done.step("Findings for code scanning").given == {"sarif_file": "build/models/fleet.sarif"}
    assert json.loads((folder / done.outputs["sarif"]).read_text())["version"] == "2.1.0"
    kept, restored = done.step("Keep the jobs").given, done.step("The jobs of earlier runs").given
    assert kept == {"path": "build/models", "key": restored["key"]}
    assert kept["key"] == f"{restored['restore-keys']}7-1"
    again = github.run()
    assert again.code == 1
    assert "2 known from before" in again.summary
    assert "Findings for code scanning" not in again.names


@pytest.mark.builds
def test_a_part_has_files_and_a_cache_of_its_own(github: GitHub) -> None:
    part = github.run(shard="1/1000")
    whole = github.run(options="--only=residual_cnn")
    assert (part.code, part.outputs["fleet-json"]) == (0, "build/models/fleet-1-of-1000.json")
    assert part.summary == "### 0 jobs, part 1/1000\n"
    keys = [run.step("Keep the jobs").given["key"] for run in (part, whole)]
    assert keys[0] != keys[1]
    refused = github.run(shard="1/2", sarif="true")
    assert (refused.code, refused.names[-1]) == (2, "Install dmlprep")
    assert "replace each other" in refused.steps[-1].out


@pytest.mark.builds
def test_the_last_run_knows_what_the_parts_did(folder: Path, tmp_path: Path) -> None:
    """Each on a machine of its own; what is carried has new times, and no hidden files."""
    results = tmp_path / "results"
    for index in (1, 2):
        machine = tmp_path / f"machine{index}" / "work space"
        shutil.copytree(folder, machine)
        GitHub(machine, tmp_path / f"runner{index}", python_in(tmp_path / "bin")).run(shard=f"{index}/2")
        made = machine / "build/models"
        shutil.copytree(
            made, results, ignore=shutil.ignore_patterns(".*"), copy_function=shutil.copyfile, dirs_exist_ok=True
        )
    shutil.copytree(results, folder / "build/models")
    whole = GitHub(folder, tmp_path / "runner", python_in(tmp_path / "bin")).run(cache="false", sarif="true")
    assert (whole.code, whole.outputs["counts"]) == (1, '{"failed":1,"good":1}')
    assert "(2 known from before)" in whole.summary


@pytest.mark.builds
def test_what_is_wrong_ends_with_2_and_tells_no_older_table(github: GitHub, folder: Path) -> None:
    github.run(options="--only=residual_cnn")
    (folder / "dmlprep.toml").write_text("models = 1")
    done = github.run(sarif="true")
    assert (done.code, done.outputs["exit-code"], done.outputs["sarif"]) == (2, "2", "")
    assert "exit code 2" in done.summary
    assert "DP904" in done.step("dmlprep fleet").out
    assert "Findings for code scanning" not in done.names


@pytest.mark.builds
def test_a_model_without_a_file(github: GitHub, folder: Path) -> None:
    (folder / "models/residual_cnn.onnx").rename(folder / "models/my model.onnx")
    given = {"model": "models/my *.onnx", "pins": "batch=1\n", "options": "--jobs=1\n--fresh"}
    done = github.run(**given, recipe="@static-fp32", target="ort-1.24", out="my results")
    assert done.code == 0, done.steps[-1].out
    (job,) = json.loads((folder / "my results/fleet.json").read_text())["jobs"]
    assert (job["target"], job["pins"], job["recipe"]) == ("ort-1.24", {"batch": 1}, "@static-fp32")
    assert (folder / "my results" / job["output"]).is_file()
    for wrong, said in (
        ({"model": "m.onnx", "file": "dmlprep.toml"}, "pass one"),
        ({"pins": "batch=1"}, "needs a model"),
    ):
        refused = github.run(**wrong)
        assert (refused.code, said in "".join(step.out for step in refused.steps)) == (2, True)


@pytest.mark.builds
def test_options_are_no_words_of_a_shell(github: GitHub, folder: Path) -> None:
    done = github.run(options="  --only=wrong type \n\n--jobs\n1\n")
    assert (done.code, done.outputs["counts"]) == (1, '{"failed":1}')


_NOWHERE = "http://127.0.0.1:9/"  # the port of nobody
_HOSTILE = ("$(touch pwned)", '"; touch pwned; "', "`touch pwned`", "a\nb=1\n::error::forged")
_SLOW = [pytest.param(text, marks=pytest.mark.slow) for text in _HOSTILE[:3]]


@pytest.mark.parametrize("text", [*_SLOW, *_HOSTILE[3:]])
@pytest.mark.parametrize(
    "names",
    [
        ("file", "shard", "options", "runtime", "cache", "sarif"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (("out",), ("model", "recipe", "feeds"), ("pins",))),
    ],
)
def test_no_input_is_run(github: GitHub, folder: Path, names: tuple[str, ...], text: str) -> None:
    given = dict.fromkeys(names, text) | ({"model": "m.onnx"} if names == ("pins",) else {})
    (folder / "dmlprep.toml").write_text("models = 1")  # nothing is to be prepared
    done = github.run(**given)
    assert done.code == 2
    assert not list(folder.rglob("pwned"))
    assert "\n::error::forged" not in "".join(step.out for step in done.steps)
    assert "b" not in done.outputs
    assert "::error::forged" not in done.summary


@pytest.mark.parametrize("text", _SLOW[:2])
def test_no_input_of_the_runtime_is_run(github: GitHub, folder: Path, text: str) -> None:
    done = github.run(runtime="true", releases=text, mirror=f"{_NOWHERE}{text}")
    assert done.code not in (0, 70)
    assert not list(folder.rglob("pwned"))


def test_scripts_hold_no_expressions() -> None:
    scripts = [step["run"] for step in load(ACTION)["runs"]["steps"] if "run" in step]
    assert len(scripts) == 4
    assert [text for text in scripts if "${{" in text] == []


@pytest.mark.slow
def test_a_runtime_that_cannot_be_had_ends_the_job(github: GitHub) -> None:
    done = github.run(runtime="true", releases="no-release", mirror=_NOWHERE)
    assert done.code not in (0, 70)
    assert done.names[-3:] == ["The runtime of earlier runs", "Install the runtime", "Keep the jobs"]
    assert "error: " in done.step("Install the runtime").out


def test_inputs_of_both_systems_are_the_same() -> None:
    inputs = set(load(ACTION)["inputs"])
    parameters = {row["name"] for row in load(TEMPLATE)["parameters"]}
    assert parameters - {"source", "folder"} == {name.replace("-v", "V") for name in inputs}


@pytest.mark.builds
def test_the_template_for_azure(azure: Azure, folder: Path, tmp_path: Path) -> None:
    done = azure.run(source="a/checkout", sarif=True, options="--jobs=1")
    assert done.code == 1
    assert done.names == [
        "Python",
        "Install dmlprep",
        "The jobs of earlier runs",
        "dmlprep fleet",
        "The jobs as tests",
        "Findings",
        "Verdict",
    ]
    assert (tmp_path / "bin/pip.txt").read_text().split()[-1] == "a/checkout"
    issue = "##vso[task.logissue type=error;sourcepath=models/wrong type.onnx]dmlprep wrong type: failed: "
    assert done.step("dmlprep fleet").out.count(issue) == 1
    assert done.summary.startswith("### 2 jobs: 1 failed, 1 review\n")
    assert done.step("Findings").given["PathtoPublish"] == str(folder / "build/models/fleet.sarif")
    assert Path(done.step("The jobs as tests").given["testResultsFiles"]).is_file()
    assert done.step("The jobs of earlier runs").given["path"] == str(folder / "build/models")
    again = azure.run(source="a/checkout", cache=False, pythonVersion="")
    assert again.names == ["Install dmlprep", "dmlprep fleet", "The jobs as tests", "Verdict"]
    (folder / "dmlprep.toml").write_text("models = 1")
    wrong = azure.run(source="a/checkout", sarif=True)
    assert (wrong.code, wrong.names[-1], wrong.outputs["exitCode"]) == (2, "Verdict", "2")
    assert "Findings" not in wrong.names


@pytest.mark.dml
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is for Linux")
def test_a_runtime_that_is_there_is_used(github: GitHub) -> None:
    done = github.run(runtime="true", options="--only=residual_cnn")
    assert done.code == 0
    assert "Keep the runtime" in done.names
    assert Path(done.step("Keep the runtime").given["path"], "manifest.json").is_file()
