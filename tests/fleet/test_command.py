"""``dmlprep fleet`` on real models, from Python and from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dmlprep
from dmlprep.core.errors import UsageError
from dmlprep.record import RunRecord
from tests.fixtures_index import FOLDER, fixture
from tests.in_process import Run

_TEXT = """
out = "build"
device = "cpu"
settings = ["parity.cpu=false"]
[models."models/*.onnx"]
sizes = { one = { batch = 1 } }
[models."models/wrong_type.onnx"]
sizes = {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "wörk space"
    (place / "models").mkdir(parents=True)
    shutil.copy(fixture("residual_cnn").path, place / "models")
    shutil.copy(FOLDER / "broken/wrong_type.onnx", place / "models")
    (place / "dmlprep.toml").write_text(_TEXT, encoding="utf-8")
    monkeypatch.chdir(place)
    return place


def test_a_small_fleet(folder: Path, run: Run) -> None:
    done = run("fleet")
    assert done.code == 1, done.err
    assert "1/2 " in done.err
    assert "2 jobs: 1 failed, 1 review" in done.out
    assert "wrong_type: failed: " in done.out
    record = RunRecord.read(folder / "build/residual_cnn/one/run.json")
    assert (record.exit_code, record.input) == (0, str(Path("models/residual_cnn.onnx")))
    assert record.facts.origin is not None
    assert record.facts.origin.command_line.startswith("dmlprep prepare -o ")
    assert " --target ort-1.30 " in record.facts.origin.command_line  # whatever is installed where the job runs
    index = (folder / "build/index.html").read_text(encoding="utf-8")
    assert 'href="./residual_cnn/one/report.html"' in index
    sarif = json.loads((folder / "build/fleet.sarif").read_text(encoding="utf-8"))
    assert "models/wrong_type.onnx" in {one["location"]["uri"] for one in sarif["runs"][0]["artifacts"]}
    cases = ElementTree.parse(folder / "build/junit.xml").iter("testcase")
    assert {case.get("name"): [child.tag for child in case] for case in cases} == {
        "residual_cnn/one": [],
        "wrong_type": ["failure"],
    }
    again = run("fleet", "-q")
    assert again.code == 1
    assert again.err == ""
    assert "(2 known from before)" in again.out
    assert json.loads((folder / "build/fleet.json").read_text(encoding="utf-8"))["exit_code"] == 1
    only = run("fleet", "--only", "residual_cnn", "--format", "json")
    assert (only.code, [job["outcome"] for job in json.loads(only.out)["jobs"]]) == (0, ["good"])
    lines = run("fleet", "--format", "github").out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("::error file=models/wrong_type.onnx,title=dmlprep wrong_type%3A failed::")


def test_the_matrix_is_shown_and_nothing_is_run(folder: Path, run: Run) -> None:
    done = run("fleet", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "residual_cnn/one @static-fp32 262.4 MB batch=1" in " ".join(done.out.split())
    assert "2 jobs" in done.out
    assert run("fleet", "--dry-run", "-q").out == "2 jobs\n"
    jobs = json.loads(run("fleet", "--dry-run", "--format", "json").out)["jobs"]
    assert [(job["name"], job["pins"]) for job in jobs] == [("residual_cnn/one", {"batch": 1}), ("wrong_type", {})]
    assert not (folder / "build").exists()


def test_parts_have_files_of_their_own(folder: Path, run: Run) -> None:
    shards = [len(dmlprep.plan_fleet(shard=f"{index}/2")) for index in (1, 2)]
    assert sum(shards) == 2
    empty = next(f"{i}/9" for i in range(1, 10) if not dmlprep.plan_fleet(shard=f"{i}/9"))
    done = run("fleet", "--shard", empty, "-q")
    assert (done.code, done.out) == (0, "0 jobs\n")
    name = empty.replace("/", "-of-")
    names = {path.name for path in (folder / "build").iterdir()}
    assert names >= {f"fleet-{name}.json", f"index-{name}.html", f"fleet-{name}.sarif", f"junit-{name}.xml"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.toml",), "none.toml"),
        (("--shard", "9/8"), "3/8"),
        (("--only", "residual_cn"), "did you mean"),
        (("-o", "dmlprep.toml"), "not a folder"),
        (("--jobs", "0"), "--jobs"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run("fleet", *arguments)
    assert done.code == 2
    assert said in done.err


def test_an_error_in_a_recipe_names_the_job(folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_text(f'{_TEXT}recipe = "@check-only"\npins = {{ batch = 1 }}\n')
    done = run("fleet")
    assert done.code == 2
    assert done.err.startswith("error: wrong_type: @check-only: the recipe has no step 'pin'")
    assert not (folder / "build").exists()


def test_files_of_nobody_are_not_replaced(folder: Path, run: Run) -> None:
    (folder / "build").mkdir()
    (folder / "build/index.html").write_text("mine")
    done = run("fleet")
    assert (done.code, "is not of a fleet" in done.err) == (2, True)
    assert (folder / "build/index.html").read_text() == "mine"


def test_the_folder_of_results_without_out(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.dmlprep.models."models/*.onnx"]\npins = { batch = 1 }\ndevice = "cpu"'
    )
    (folder / "dmlprep.toml").unlink()
    record = dmlprep.prepare_fleet(only=["residual_cnn"])
    assert (record.file, record.exit_code) == ("pyproject.toml", 0)
    assert (folder / "build/models/residual_cnn/model.onnx").exists()
    assert (folder / "build/models/index.html").exists()


@pytest.mark.slow
def test_jobs_that_left_the_file(folder: Path, run: Run) -> None:
    run("fleet")
    (folder / "dmlprep.toml").write_text(_TEXT.replace("one = {", "two = {"), encoding="utf-8")
    assert run("fleet", "--prune", "--dry-run", "-q").out == "1 job\n"
    assert run("fleet", "--prune", "--dry-run").out.splitlines()[0] == "residual_cnn/one"
    assert json.loads(run("fleet", "--prune", "--dry-run", "--format", "json").out) == {"gone": ["residual_cnn/one"]}
    assert dmlprep.gone_fleet_jobs() == ["residual_cnn/one"]
    for part in (("--only", "residual_cnn"), ("--shard", "1/2")):
        done = run("fleet", "--prune", *part)
        assert (done.code, "remove --only and --shard" in done.err) == (2, True)
    with pytest.raises(UsageError, match="all jobs"):
        dmlprep.prepare_fleet(prune=True, only=["residual_cnn"])
    assert (folder / "build/residual_cnn/one").is_dir()
    done = run("fleet", "--prune")
    assert done.code == 1
    assert "residual_cnn/one: removed" in done.err
    assert sorted(path.name for path in (folder / "build/residual_cnn").iterdir()) == ["two"]
    assert (folder / "build/wrong_type/job.json").is_file()
