"""The data of releases: whole, ordered, each number with its source."""

from __future__ import annotations

import pytest

from dmlprep.core.errors import UsageError
from dmlprep.directml.targets import find_target, latest_target, target_names
from dmlprep.directml.targets.diff import compare_targets
from dmlprep.directml.targets.queries import QUERIES
from dmlprep.directml.targets.target import Kind

KINDS: tuple[Kind, ...] = ("onnxruntime", "windowsml", "windows")
EVERY = [find_target(name) for kind in KINDS for name in target_names(kind)]


def test_names_are_in_the_order_of_releases() -> None:
    names = target_names()
    assert names == [f"ort-1.{minor}" for minor in range(15, 31)]
    assert [find_target(n).release for n in names] == sorted(find_target(n).release for n in names)


def test_latest_is_the_newest_release_with_directml() -> None:
    assert find_target() is find_target(latest_target())
    assert latest_target() == target_names()[-1]


@pytest.mark.parametrize("name", target_names("windowsml"))
def test_windows_ml_has_the_kernels_of_the_release_that_it_carries(name: str) -> None:
    target, carried = find_target(name), find_target(find_target(name).carries)
    assert target.name == name
    assert target.release == carried.release
    assert target.tables is carried.tables
    assert target.package.startswith(f"windowsml {name.removeprefix('windowsml-')}.")
    assert target.title.endswith(tuple("0123456789"))


def test_each_target_says_where_it_comes_from_and_who_fixes_it() -> None:
    wrong = []
    for target in EVERY:
        if "Windows" not in target.windows:
            wrong.append(f"{target.name}: windows")
        if "fix" not in target.served or not any("served" in source for source in target.sources):
            wrong.append(f"{target.name}: served, or its source")
    assert wrong == []


def test_each_release_has_its_numbers_and_their_sources() -> None:
    names = [name for kind in KINDS for name in target_names(kind)]
    assert [target.name for target in EVERY] == names
    wrong = []
    for target in EVERY:
        if not target.title or not 7 <= target.dml_opset <= target.max_opset or target.max_ir < 3:
            wrong.append(f"{target.name}: title or numbers")
        wrong += [f"{target.name}: {source}" for source in target.sources if ":" not in source]
        for number in ("max_opset", "max_ir"):
            if not any(number in source for source in target.sources):
                wrong.append(f"{target.name}: no source of {number}")
    assert wrong == []


def test_each_kernel_row_is_well_formed() -> None:
    wrong = []
    for name in target_names():
        tables = find_target(name).tables
        if min(sum(map(len, table.values())) for table in (tables.dml, tables.cpu)) <= 350:
            wrong.append(f"{name}: too few kernels")
        for op, since, kernel in ((op, s, kernel) for op, rows in tables.dml.items() for s, kernel in rows.items()):
            named = kernel.since == since and (not kernel.query or kernel.query in QUERIES)
            if not named or not kernel.types or not all(kernel.types.values()) or not kernel.const <= kernel.cpu_in:
                wrong.append(f"{name}: {op}-{since}")
    assert wrong == []


def test_limits_only_grow() -> None:
    rows = [(t.max_opset, t.max_ir, t.dml_opset) for t in map(find_target, target_names())]
    assert rows == sorted(rows)


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown target"):
        find_target("ort-9.9")


@pytest.mark.parametrize("name", target_names("windows"))
def test_windows_in_the_box_knows_no_kernels(name: str) -> None:
    target = find_target(name)
    assert target.opset_only
    with pytest.raises(UsageError, match="no known kernels"):
        _ = target.tables


@pytest.mark.parametrize(
    ("op", "release", "versions"),
    [
        ("Conv", "ort-1.24", [1, 11]),
        ("GridSample", "ort-1.24", [16]),
        ("Pad", "ort-1.20", [2, 11, 13, 18, 19]),
        ("Pad", "ort-1.21", [2, 11, 13, 18, 19, 21]),
        ("NonMaxSuppression", "ort-1.24", []),
        ("com.microsoft::Gelu", "ort-1.24", [1]),
    ],
)
def test_known_kernels(op: str, release: str, versions: list[int]) -> None:
    assert sorted(find_target(release).tables.dml.get(op, {})) == versions


def test_the_table_has_not_changed_since_march_2025() -> None:
    for newer in target_names()[target_names().index("ort-1.22") :]:
        changes = compare_targets(find_target("ort-1.21"), find_target(newer))
        assert not changes["kernels added"]
        assert not changes["kernels removed"]
        assert not changes["kernels changed"]


def test_the_releases_after_the_last_of_onnxruntime_directml() -> None:
    changes = compare_targets(find_target("ort-1.24"), find_target("ort-1.30"))
    assert "max_opset 25 -> 26" in changes["versions"]
    assert "package onnxruntime-directml -> onnxruntime-windowsml" in changes["versions"]
    assert {"DeformConv-19", "CumProd-26"} <= set(changes["CPU kernels added"])
    assert not changes["CPU kernels removed"]


def test_the_options_that_a_release_has() -> None:
    assert {"device_id", "disable_metacommands", "ep.dml.disable_graph_fusion"} <= set(find_target("ort-1.30").options)


def test_diff_names_what_was_added() -> None:
    changes = compare_targets(find_target("ort-1.18"), find_target("ort-1.19"))
    assert set(changes["kernels added"]) >= {"Resize-18", "Resize-19", "Pad-19", "Col2Im-18"}
    assert "dml_opset 17 -> 20" in changes["versions"]
