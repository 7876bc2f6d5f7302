"""The target's FP16 faults: rows that say why, since when, and where from."""

from __future__ import annotations

import json

from click.testing import CliRunner

from dmlprep.cli.explain import command
from dmlprep.directml.targets import find_target, target_names
from dmlprep.directml.targets.precision import precision_faults
from dmlprep.directml.targets.target import Target


def test_every_row_says_why_and_where_from() -> None:
    rows = precision_faults()
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert len(row.why) > 20
        assert row.sources
        assert bool(row.measured_on) == (row.confidence in ("measured", "environment"))
        assert all(limit > 0 for limit in row.limits.values())


def test_faults_of_every_release() -> None:
    found = {name: {row.id for row in precision_faults(find_target(name))} for name in target_names()}
    assert [name for name, rows in found.items() if not {"normalisation", "running-sum", "exponential"} <= rows] == []


def test_a_fault_ends_with_its_last_release() -> None:
    row = precision_faults()[0]
    changed = type(row)(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "first": "1.17", "last": "1.20"})
    assert [changed.concerns((1, minor)) for minor in (16, 17, 20, 21)] == [False, True, True, False]


def test_nothing_known_means_every_fault() -> None:
    target = Target("winml", "", "", 12, 7, 0, opset_only=True)
    assert precision_faults(target) == precision_faults()


def test_target_show_lists_them() -> None:
    done = CliRunner().invoke(command, ["ort-1.24", "--op", "LayerNormalization", "--format", "json"])
    faults = json.loads(done.stdout)["fp16_faults"]
    assert [f["id"] for f in faults] == ["normalisation"]
    assert faults[0]["limits"]["standard_deviation"] < 256
    text = CliRunner().invoke(command, ["ort-1.24", "--op", "CumSum"]).stdout
    assert "running-sum (usual; lost digits; measured)" in text
