"""What is done again and what is not, what a job leaves, and what becomes of one that fails or is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmlprep.core.errors import OutputError, UsageError
from dmlprep.fleet import FleetObserver
from dmlprep.portable.locks import held
from dmlprep.record.fleet import JobRecord
from tests.fleet.conftest import TEXT, Fleet
from tests.system import WINDOWS, not_on_windows


def _outcomes(rows: list[JobRecord]) -> dict[str, str]:
    return {row.name: f"{row.outcome}{' kept' if row.reused else ''}" for row in rows}


def test_a_second_run_does_nothing(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.model("b", "refused")
    first = fleet.run().record
    assert _outcomes(first.jobs) == {"a/small": "good", "a/large": "good", "b/small": "failed", "b/large": "failed"}
    assert first.exit_code == 1
    assert (fleet.out / "a/small/model.onnx").read_text() == "made of good"
    assert not (fleet.out / "b/small/model.onnx").exists()
    assert (fleet.out / "b/small/run.json").is_file()  # what dmlprep report shows
    second = fleet.run().record
    assert fleet.engine.ran == []
    assert set(_outcomes(second.jobs).values()) == {"good kept", "failed kept"}
    assert second.exit_code == 1
    assert second.jobs[2].error == "step pin refused [DP201]"
    assert [row.seconds for row in second.jobs] == [row.seconds for row in first.jobs]


def test_fresh_runs_all_of_it(fleet: Fleet) -> None:
    fleet.model("a", "refused")
    fleet.run()
    assert _outcomes(fleet.run(fresh=True).record.jobs) == {"a/small": "failed", "a/large": "failed"}
    assert len(fleet.engine.ran) == 2


def _model(fleet: Fleet) -> None:
    fleet.model("a", "good and different")


def _data(fleet: Fleet) -> None:
    (fleet.folder / "m/w.bin").write_bytes(b"other")


def _result(fleet: Fleet) -> None:
    (fleet.out / "a/small/model.onnx").write_text("somebody's")


def _gone(fleet: Fleet) -> None:
    (fleet.out / "a/small/report.html").unlink()


def _recipe(fleet: Fleet) -> None:
    fleet.write(TEXT.replace('device = "cpu"', 'device = "cpu"\nsettings = ["parity.seeds=3"]'))


def _pins(fleet: Fleet) -> None:
    fleet.write(TEXT.replace("batch = 1", "batch = 1, height = 4"))


def _vram(fleet: Fleet) -> None:
    fleet.write(TEXT.replace('device = "cpu"', 'device = "cpu"\nvram = "4GB"'))


def _target(fleet: Fleet) -> None:
    fleet.write(TEXT.replace('device = "cpu"', 'device = "cpu"\ntarget = "ort-1.24"'))


def _feeds(fleet: Fleet) -> None:
    (fleet.folder / "f.npz").write_bytes(b"other")


def _state(fleet: Fleet) -> None:
    (fleet.out / "a/small/job.json").write_bytes(b"{")


def _no_path(fleet: Fleet) -> None:
    state = fleet.out / "a/small/job.json"
    state.write_text(state.read_text().replace("m/w.bin", "m/\\u0000"))


def _no_result(fleet: Fleet) -> None:
    state = fleet.out / "a/small/job.json"
    state.write_text(state.read_text().replace("model.onnx", "../../up"))


@pytest.mark.parametrize(
    "change", [_model, _data, _result, _gone, _recipe, _pins, _target, _vram, _feeds, _state, _no_path, _no_result]
)
def test_what_has_changed_is_done_again(fleet: Fleet, change) -> None:
    (fleet.folder / "f.npz").write_bytes(b"feeds")
    fleet.write(TEXT.replace('device = "cpu"', 'device = "cpu"\nfeeds = ["f.npz"]'))
    fleet.model("a", "good data=w.bin")
    (fleet.folder / "m/w.bin").write_bytes(b"data")
    fleet.run()
    assert fleet.run().record.counts() == {"good": 2}
    assert fleet.engine.ran == []
    change(fleet)
    assert _outcomes(fleet.run().record.jobs)["a/small"] == "good"
    assert "a/small" in fleet.engine.ran
    assert (fleet.out / "a/small/model.onnx").read_text().startswith("made of good")
    assert fleet.run().record.jobs[0].reused


def test_dmlprep_s_own_code_is_part_of_the_key(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.model("a")
    fleet.run()
    monkeypatch.setattr("dmlprep.fleet.keys.code_digest", lambda: "of another version")
    assert not fleet.run().record.jobs[0].reused


def test_a_folder_that_is_moved_holds_what_was_done(fleet: Fleet, tmp_path: Path) -> None:
    fleet.model("a", "good data=w.bin")
    (fleet.folder / "m/w.bin").write_bytes(b"data")
    fleet.run()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("m", "build", "dmlprep.toml"):
        (tmp_path / name).rename(moved / name)
    os.chdir(moved)
    other = Fleet(moved)
    assert all(row.reused for row in other.run().record.jobs)
    assert other.engine.ran == []


def test_a_job_that_fails_leaves_nothing_of_an_older_result(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.run()
    fleet.model("a", "refused")
    fleet.run()
    assert sorted(path.name for path in (fleet.out / "a/small").iterdir()) == ["job.json", "report.html", "run.json"]
    fleet.model("a", "missing")
    assert fleet.run().record.exit_code == 2
    assert [path.name for path in (fleet.out / "a/small").iterdir()] == ["job.json"]


def test_a_file_that_is_no_model_is_looked_at_once_and_a_missing_one_again(fleet: Fleet) -> None:
    fleet.model("a", "broken")
    fleet.model("b", "missing")
    fleet.run()
    found = fleet.run()
    assert _outcomes(found.record.jobs) == {
        "a/small": "wrong-input kept",
        "a/large": "wrong-input kept",
        "b/small": "wrong-input",
        "b/large": "wrong-input",
    }
    assert "the file is truncated [DP001]" in found.record.jobs[0].error
    assert [record.findings[0].code for record in found.findings] == ["DP001", "DP001", "DP705", "DP705"]


def test_stopped_in_the_middle_it_goes_on(fleet: Fleet) -> None:
    for name in "abc":
        fleet.model(name)
    with pytest.raises(KeyboardInterrupt):
        fleet.run(stop_at="b/small")
    assert fleet.engine.closed
    assert not (fleet.out / "b").exists()
    assert not (fleet.out / "c").exists()
    assert fleet.run().record.counts() == {"good": 6}
    assert fleet.engine.ran == ["b/small", "b/large", "c/small", "c/large"]


def test_stopped_while_it_is_done_again_the_old_result_counts(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.run()
    with pytest.raises(KeyboardInterrupt):
        fleet.run(stop_at="a/small", fresh=True)
    assert all(row.reused for row in fleet.run().record.jobs)


def test_killed_in_the_middle_a_begun_job_is_done_again(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.run()
    # As a kill leaves it: said to be begun, with a result of which nobody said that it is one.
    (fleet.out / "a/small/job.json").write_text('{"key": "k"}')
    assert _outcomes(fleet.run().record.jobs) == {"a/small": "good", "a/large": "good kept"}


@pytest.mark.parametrize("words", ["good says nothing", "good makes nothing"])
def test_nothing_is_good_without_a_record_and_a_result(fleet: Fleet, words: str) -> None:
    fleet.model("a", words)
    for _ in range(2):
        found = fleet.run().record
        assert _outcomes(found.jobs) == {"a/small": "internal-error", "a/large": "internal-error"}
        assert found.exit_code == 70


def test_files_of_nobody_are_not_replaced(fleet: Fleet) -> None:
    fleet.model("a")
    mine = fleet.out / "a/small/model.onnx"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    found = fleet.run().record
    assert _outcomes(found.jobs) == {"a/small": "wrong-input", "a/large": "good"}
    assert "is not of a fleet" in found.jobs[0].error
    assert mine.read_text() == "mine"
    assert fleet.run(force=True).record.exit_code == 0


def test_no_result_replaces_a_model(fleet: Fleet) -> None:
    fleet.model("x")
    fleet.model("x/small/model")
    fleet.write(TEXT.replace('"m/*.onnx"', '"m/**/*.onnx"'))
    fleet.out = fleet.folder / "m"
    with pytest.raises(OutputError, match="would overwrite this model"):
        fleet.run(force=True)


def test_results_below_a_pattern_are_no_models(fleet: Fleet) -> None:
    fleet.write(TEXT.replace('"m/*.onnx"', '"**/*.onnx"'))
    fleet.model("a")
    for _ in range(2):
        assert [row.name for row in fleet.run().record.jobs] == ["m/a/small", "m/a/large"]


def test_a_job_that_another_run_has_is_left_to_it(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.run()
    (lock,) = (folder for folder in (fleet.out / ".dmlprep-fleet/locks").iterdir() if _is_of(fleet, folder))
    with held(lock):
        found = fleet.run(fresh=True).record
    assert _outcomes(found.jobs) == {"a/small": "wrong-input", "a/large": "good"}
    assert "another run" in found.jobs[0].error


def _is_of(fleet: Fleet, lock: Path) -> bool:
    import hashlib

    return lock.name == hashlib.sha256(b"a/small").hexdigest()[:16]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('recipe = "@vision-pf16"', "did you mean '@vision-fp16'"),
        ('target = "ort-1.99"', "ort-1"),
        ('settings = ["parity.sedes=3"]', "did you mean 'seeds'"),
        ("require_dml = true", "remove one of the two"),
    ],
)
def test_what_is_wrong_with_all_is_told_before_anything_runs(fleet: Fleet, line: str, said: str) -> None:
    fleet.model("a")
    fleet.write(TEXT.replace('device = "cpu"', f'device = "cpu"\n{line}'))
    with pytest.raises(UsageError) as caught:
        fleet.run()
    assert said in str(caught.value)
    assert not fleet.out.exists()


def test_who_watches_hears_of_each_job(fleet: Fleet) -> None:
    heard: list[tuple[str, ...]] = []

    class Observer(FleetObserver):
        def began(self, total: int) -> None:
            heard.append(("began", str(total)))

        def job_started(self, name: str) -> None:
            heard.append(("started", name))

        def job_progress(self, name: str, text: str) -> None:
            heard.append((name, text))

        def job_ended(self, row: JobRecord) -> None:
            heard.append(("ended", row.name))

    fleet.write(TEXT.replace(", large = { batch = 2 }", ""))
    fleet.model("a")
    fleet.run(observer=Observer())
    assert heard == [
        ("began", "1"),
        ("started", "a/small"),
        ("a/small", "pin: changed"),
        ("a/small", "save: 0 MB"),
        ("ended", "a/small"),
    ]


@not_on_windows("links need a right there")
def test_feeds_that_break_during_a_job_do_not_end_the_fleet(fleet: Fleet) -> None:
    feeds = fleet.folder / "feeds"
    feeds.mkdir()

    class Observer(FleetObserver):
        def job_started(self, name: str) -> None:
            if name == "a/small":
                (feeds / "out.npz").symlink_to(fleet.folder / "dmlprep.toml")

    fleet.write(TEXT.replace('device = "cpu"', 'device = "cpu"\nfeeds = ["feeds"]'))
    fleet.model("a")
    assert fleet.run(observer=Observer()).record.counts() == {"good": 2}


@pytest.mark.skipif(WINDOWS, reason="names are UTF-16 on Windows")
def test_a_model_whose_name_is_not_utf_8(fleet: Fleet) -> None:
    fleet.model(os.fsdecode(b"a\xff"))
    assert [row.outcome for row in fleet.run().record.jobs] == ["good", "good"]
    again = fleet.run().record
    assert [row.outcome for row in again.jobs] == ["good", "good"]
    assert "\\xff" in again.to_json().decode()


@pytest.mark.parametrize("name", ["a/small/job.json", ".dmlprep-fleet/digests.json", "a/small/run.json", "fleet.json"])
def test_a_cache_that_is_nested_without_end_is_not_there(fleet: Fleet, name: str) -> None:
    fleet.model("a")
    fleet.run()
    assert (fleet.out / name).parent.is_dir()
    (fleet.out / name).write_text("[" * 100_000)
    assert [row.outcome for row in fleet.run().record.jobs] == ["good", "good"]
