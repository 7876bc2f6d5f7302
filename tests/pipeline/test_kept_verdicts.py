"""A kept verdict counts only as it was written, by its own user, on equal files, for a while."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dmlprep.pipeline.verdict_cache import DAYS, MOST, KeptVerdicts, verdict_folder
from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunRecord, Verdict
from dmlprep.report.html import render_html
from dmlprep.report.text import show_verdicts

KEY, OTHER = "a" * 64, "b" * 64
NOW = datetime(2026, 11, 22, 14, 3, 12, tzinfo=UTC)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")


def verdict(outcome: Any = "passed", provider: Any = "dml") -> Verdict:
    output = OutputMetrics("y", True, max_abs=1e-7, max_rel=1e-7)
    reason = "" if outcome == "passed" else "why"
    device = DeviceInfo("dml on linux: lavapipe", ["DirectML 1.15.4"])
    return Verdict(Check("parity", provider), outcome, reason, device, "fp32-dml", 2, 12.5, [output])


class Measured:
    """Counts how often something is measured."""

    def __init__(self, outcome: str = "passed", provider: str = "dml") -> None:
        self.times = 0
        self.gives = verdict(outcome, provider)

    def __call__(self) -> Verdict:
        self.times += 1
        return self.gives


def kept(folder: Path, *, fresh: bool = False, now: datetime = NOW) -> KeptVerdicts:
    return KeptVerdicts(folder, fresh=fresh, now=lambda: now)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds one verdict."""
    kept(tmp_path / "verdicts").verdict(KEY, Measured())
    return tmp_path / "verdicts"


def asked(folder: Path, key: str = KEY, **how: Any) -> tuple[Verdict, int]:
    """What is given now, and how often it was measured for that."""
    measured = Measured()
    return kept(folder, **how).verdict(key, measured), measured.times


def test_it_is_not_measured_twice_and_says_when_it_was(folder: Path) -> None:
    found, times = asked(folder, now=NOW + timedelta(days=3))
    assert times == 0
    assert found.measured == "2026-11-22T14:03:12Z"
    assert [f.code for f in found.findings] == ["DP714"]
    assert "2026-11-22 14:03 UTC" in found.findings[0].message
    assert found.seconds == 0
    same = msgspec.structs.replace(found, measured="", findings=[], seconds=12.5)
    assert same == verdict()


def test_what_ran_now_says_nothing_of_the_kind(tmp_path: Path) -> None:
    found, times = asked(tmp_path / "verdicts")
    assert (found, times) == (verdict(), 1)
    assert b"measured" not in msgspec.json.encode(found)


def test_fresh_measures_and_what_it_found_is_kept(folder: Path) -> None:
    later = NOW + timedelta(days=9)
    found, times = asked(folder, fresh=True, now=later)
    assert (found.measured, times) == ("", 1)
    assert asked(folder, now=later)[0].measured == "2026-12-01T14:03:12Z"


@pytest.mark.parametrize("outcome", ["failed", "not-proven", "not-run"])
def test_only_what_passed_is_kept(outcome: str, tmp_path: Path) -> None:
    measured = Measured(outcome)
    for _ in range(2):
        assert kept(tmp_path / "verdicts").verdict(KEY, measured).outcome == outcome
    assert measured.times == 2


def test_other_files_are_measured(folder: Path) -> None:
    assert asked(folder, OTHER)[1] == 1


def test_without_a_key_or_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    assert asked(tmp_path / "verdicts", "")[1] == 1
    assert not (tmp_path / "verdicts").exists()
    assert KeptVerdicts(None).verdict(KEY, Measured()).measured == ""


def _entry(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        entry = json.loads(path.read_text())
        for name, value in changes.items():
            entry[name] = value(entry[name]) if callable(value) else value
        path.write_text(json.dumps(entry))

    return change


DAMAGE: dict[str, Callable[[Path], None]] = {
    "an error that was larger": _entry(verdict=lambda v: {**v, "outputs": [{**v["outputs"][0], "max_rel": 0.0}]}),
    "another device": _entry(verdict=lambda v: {**v, "device": {"name": "dml on windows: GPU"}}),
    "another date": _entry(measured="2026-11-23T14:03:12Z"),
    "another key": _entry(key=OTHER),
    "another digest": _entry(digest="0" * 64),
    "another format": _entry(format=2),
    "a field more": lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1})),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "large": lambda path: path.write_bytes(path.read_bytes() + b" " * (1 << 20)),
    "of another key": lambda path: os.replace(path, path.with_name(f"{OTHER}.json")),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_file_that_was_damaged_or_changed_is_measured_again(how: str, folder: Path) -> None:
    DAMAGE[how](folder / f"{KEY}.json")
    key = OTHER if how == "of another key" else KEY
    found, times = asked(folder, key)
    assert (found.measured, times) == ("", 1)
    assert asked(folder, key)[0].measured  # and what was measured now is kept


@pytest.mark.parametrize("days", [DAYS + 1, -2])
def test_neither_old_ones_nor_those_of_the_future_count(days: int, folder: Path) -> None:
    assert asked(folder, now=NOW + timedelta(days=days))[1] == 1


def test_only_verdicts_of_directml_are_believed(tmp_path: Path) -> None:
    kept(tmp_path / "v").verdict(KEY, Measured(provider="cpu"))
    assert asked(tmp_path / "v")[1] == 1


@POSIX
def test_a_folder_that_others_can_write_to_is_left_alone(folder: Path) -> None:
    folder.chmod(0o777)
    before = sorted(path.name for path in folder.iterdir())
    assert asked(folder)[1] == 1
    assert asked(folder, OTHER)[1] == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@POSIX
def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    path = folder / f"{KEY}.json"
    os.replace(path, tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert asked(folder)[1] == 1
    (tmp_path / "link").symlink_to(folder)
    assert asked(tmp_path / "link")[1] == 1


@POSIX
def test_a_pipe_in_its_place_holds_nothing_up(folder: Path) -> None:
    path = folder / f"{KEY}.json"
    path.unlink()
    os.mkfifo(path)
    assert asked(folder)[1] == 1


def test_a_folder_that_cannot_be_made_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert asked(tmp_path / "file" / "verdicts")[1] == 1


def test_no_more_are_kept_than_so_many_the_latest_used(folder: Path) -> None:
    for number in range(MOST + 3):
        path = folder / f"{number:064x}.json"
        path.write_text("{}")
        os.utime(path, (NOW.timestamp() - 60 - number,) * 2)
    begun = folder / ".dmlprep-0-1.part"
    begun.write_text("")
    os.utime(begun, ((NOW - timedelta(days=2)).timestamp(),) * 2)
    os.utime(folder / f"{KEY}.json", (NOW.timestamp() - 1,) * 2)
    asked(folder, OTHER)
    names = {path.name for path in folder.iterdir()}
    assert len(names) == MOST
    assert {f"{KEY}.json", f"{OTHER}.json"} < names
    assert f"{0:064x}.json" in names
    assert f"{MOST:064x}.json" not in names


def test_old_ones_go(folder: Path) -> None:
    old = (NOW - timedelta(days=DAYS + 1)).timestamp()
    os.utime(folder / f"{KEY}.json", (old, old))
    asked(folder, OTHER)
    assert not (folder / f"{KEY}.json").exists()


def test_where_they_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", str(tmp_path))
    assert verdict_folder() == tmp_path / "dmlprep" / "verdicts"


def test_every_report_says_that_it_was_kept(folder: Path) -> None:
    from rich.console import Console

    found, _ = asked(folder)
    record = RunRecord(command="prepare", input="m.onnx", verdicts=[found])
    console = Console(record=True, width=200)
    show_verdicts(record.verdicts, console)
    assert "measured 2026-11-22T14:03:12Z, from the cache" in console.export_text()
    assert "measured 2026-11-22T14:03:12Z, from the cache" in render_html(record)
    assert RunRecord.from_json(record.to_json()).verdicts[0].measured == "2026-11-22T14:03:12Z"
    assert "DP714" in {one.code for one in record.all_findings()}
