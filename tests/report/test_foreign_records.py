"""Records from outside: what a view reads is of its type, or the file is refused in one line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dmlprep.core.errors import InputError
from dmlprep.record import RunRecord, StepRecord
from dmlprep.report.html import render_html
from dmlprep.report.sarif import to_object
from dmlprep.report.text import render_text


def _record(**changes: Any) -> dict[str, Any]:
    record = RunRecord(command="prepare", input="m.onnx", steps=[StepRecord("pin", "changed", 0.5, 10, 8, 100, 100)])
    return json.loads(record.to_json()) | changes


def _read(tmp_path: Path, text: str) -> RunRecord:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    return RunRecord.read(path)


def _deep(depth: int) -> str:
    return json.dumps(_record(facts={"a": 0})).replace('"a": 0', '"a": ' + "[" * depth + "]" * depth)


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_facts_that_are_nested_too_deep(depth: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="deep") as caught:
        _read(tmp_path, _deep(depth))
    assert caught.value.fix


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"placement_before": [1]}, "placement_before"),
        ({"placement_before": {}}, "nodes"),
        ({"placement_after": {"nodes": "many", "crossings": 0}}, "nodes"),
        ({"files": {"a": 1}}, "files"),
        ({"bench": {"device": "cpu"}}, "models"),
        ({"bench": {"device": "cpu", "models": [{"name": "a", "path": "a", "times": 1}]}}, "times"),
        ({"n": 1 << 70}, "64 bits"),
    ],
)
def test_facts_of_another_type(facts: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"not a run record.*{words}"):
        _read(tmp_path, json.dumps(_record(facts=facts)))


@pytest.mark.parametrize("facts", [{"trials": [3]}, {"islands": "none"}, {"blocks": [{"block": 1}]}, {"casts": []}])
def test_facts_of_a_step_of_another_type(facts: dict[str, Any], tmp_path: Path) -> None:
    record = _record()
    record["steps"][0]["facts"] = facts
    with pytest.raises(InputError, match="not a run record"):
        _read(tmp_path, json.dumps(record))


def test_facts_that_lack_what_is_not_needed_and_names_in_brackets(tmp_path: Path) -> None:
    record = _record(facts={"placement_before": {"nodes": 3, "crossings": 0}, "placement_after": None, "own": [1, "a"]})
    for name in ("[/]", "[bold]x", "[link=x]", "{{ 7 }}"):
        record["steps"][0]["step"] = name
        read = _read(tmp_path, json.dumps(record))
        assert name in render_text(read)
        assert "of 3" in render_html(read)
        assert to_object([read])


def test_a_record_that_is_no_document(tmp_path: Path) -> None:
    for text in ("", "[]", "null", '{"format": 1}', '{"a": ' * 1000):
        with pytest.raises(InputError, match="not a run record"):
            _read(tmp_path, text)


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes and no /dev among files")
def test_a_record_that_has_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="this is a"):
            RunRecord.read(path)
