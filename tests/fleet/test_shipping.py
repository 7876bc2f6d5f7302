"""Jobs on workers that see none of the fleet's folders: what goes there, and what comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.errors import InputError, UsageError
from dmlprep.fleet import Ended, Task, jobs_of, read_fleet, shipping
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.keys import Keys
from dmlprep.fleet.run import arguments_of
from dmlprep.fleet.shipping import Parcel, chunks, pack, run_parcel, unpack

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch,4] x) => (float[batch,8] y) { y = MatMul (x, w) }"""

FLEET = """
[defaults]
device = "cpu"
[models."in/m.onnx"]
recipe = "recipe.toml"
pins = { batch = 1 }
feeds = ["feeds/a.npz"]
metric = "measure.py:error"
metric_bound = 1.0
"""

MEASURE = "import numpy as np\ndef error(first, second):\n    return float(np.abs(first['y'] - second['y']).max())\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fleet of one job that reads a model, its data, a recipe, feeds and a measure."""
    here = tmp_path / "here"
    (here / "in/w").mkdir(parents=True)
    (here / "feeds").mkdir()
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save_model(model, here / "in/m.onnx", save_as_external_data=True, location="w/m.data", size_threshold=0)
    (here / "recipe.toml").write_text(dmlprep.recipe_text("@static-fp32"))
    (here / "measure.py").write_text(MEASURE)
    np.savez(here / "feeds/a.npz", x=np.ones((1, 4), np.float32))
    (here / "fleet.toml").write_text(FLEET)
    return here


def _task(folder: Path) -> Task:
    fleet = read_fleet(folder / "fleet.toml")
    (job,) = [replace(one, model=one.model.absolute()) for one in jobs_of(fleet)]
    facts = Keys(Digests()).facts(job)
    return Task(job.name, arguments_of(job, folder / "out" / job.name, folder / "record.json"), 0, job, facts)


def _bodies(parcel: Parcel) -> dict[str, list[bytes]]:
    return {name: list(chunks(parcel, name)) for name in parcel.files}


def test_a_parcel_has_every_file_that_the_job_reads(folder: Path) -> None:
    parcel = pack(_task(folder))
    assert set(parcel.files) == {"in/m.onnx", "in/w/m.data", "recipe.toml", "feeds/a.npz", "measure.py"}
    assert parcel.task.job is not None
    assert str(folder) not in str(parcel.task.job)


def test_it_runs_where_the_folders_are_not_and_speaks_of_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "CHUNK", 50)  # several pieces
    parcel = pack(_task(folder))
    bodies = _bodies(parcel)
    assert len(bodies["in/w/m.data"]) == 3
    facts = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}

    def run(task: Task) -> Ended:
        assert task.job is not None
        assert str(folder) not in " ".join(task.arguments)
        facts.append(Keys(Digests()).facts(task.job))
        command = [sys.executable, "-m", "dmlprep", *task.arguments]
        done = subprocess.run(command, cwd=room, env=environment, check=False)
        return Ended(task.name, done.returncode, f"see {task.job.model}")

    room = tmp_path / "room"
    room.mkdir()
    folder.rename(tmp_path / "away")
    ended, made = run_parcel(parcel, bodies, run, room)
    (tmp_path / "away").rename(folder)
    assert (ended.exit_code, ended.error) == (0, f"see {folder / 'in/m.onnx'}")
    assert facts == [parcel.task.facts]
    assert list(room.iterdir()) == []
    unpack(parcel, made)
    record = dmlprep.read_record(folder / "record.json")
    assert record.input == str(folder / "in/m.onnx")
    assert set(record.facts.digests) >= {str(folder / "in/m.onnx"), str(folder / "in/w/m.data")}
    for name in ("run.json", "report.html"):
        written = (Path(parcel.folder) / name).read_text(encoding="utf-8").replace("\\\\", "\\")
        assert str(room) not in written
        assert str(folder / "in/m.onnx") in written
    onnx.checker.check_model(str(Path(parcel.folder) / "model.onnx"))


def test_what_an_earlier_run_left_goes(folder: Path) -> None:
    parcel = pack(_task(folder))
    out = Path(parcel.folder)
    out.mkdir(parents=True)
    (out / "model.onnx.data").write_bytes(b"old")
    unpack(parcel, {"model.onnx": [b"new"]})
    assert [path.name for path in out.iterdir()] == ["model.onnx"]


def test_a_file_that_changes_meanwhile(folder: Path) -> None:
    parcel = pack(_task(folder))
    (folder / "in/w/m.data").write_bytes(bytes(128))
    with pytest.raises(InputError, match="changed while it was shipped"):
        _bodies(parcel)


def test_what_is_too_large_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MOST", 100)
    with pytest.raises(UsageError, match="is not shipped"):
        pack(_task(folder))


def test_a_model_that_is_none_goes_alone(folder: Path) -> None:
    (folder / "in/m.onnx").write_bytes(b"none")
    assert "in/m.onnx" in pack(_task(folder)).files


def test_without_a_cluster_nothing_is_shipped(folder: Path) -> None:
    with pytest.raises(UsageError, match="--ship"):
        dmlprep.prepare_fleet(folder / "fleet.toml", out=folder / "out", ship=True)


@pytest.fixture
def cluster() -> Iterator[str]:
    pytest.importorskip("distributed")
    if sys.platform == "win32":
        pytest.skip("clusters are tried on Linux")
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made:
        yield made.scheduler_address


def test_the_same_results_as_beside_us(folder: Path, cluster: str) -> None:
    (folder / "in/none.onnx").write_bytes(b"none")
    text = FLEET + '[models."in/none.onnx"]\n'
    (folder / "fleet.toml").write_text(text)
    here = dmlprep.prepare_fleet(folder / "fleet.toml", out=folder / "out")
    there = dmlprep.prepare_fleet(folder / "fleet.toml", out=folder / "there", scheduler=cluster, ship=True)
    assert [(one.name, one.exit_code, one.key) for one in there.jobs] == [
        (one.name, one.exit_code, one.key) for one in here.jobs
    ]
    assert there.counts() == {"wrong-input": 1, "good": 1}
    for job in here.jobs:
        ours, theirs = folder / "out" / job.name, folder / "there" / job.name
        assert sorted(path.name for path in ours.iterdir()) == sorted(path.name for path in theirs.iterdir())
        for name in ("model.onnx", "model.onnx.data"):
            assert not (ours / name).exists() or (ours / name).read_bytes() == (theirs / name).read_bytes()
        reads = [json.loads((place / "job.json").read_text()).get("reads") for place in (ours, theirs)]
        assert reads[0] == reads[1]
    again = dmlprep.prepare_fleet(folder / "fleet.toml", out=folder / "there")
    assert all(one.kept for one in again.jobs)
