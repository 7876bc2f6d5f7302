"""The table of quirks agrees with what ONNX's node tests did on DirectML, release by release."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import Quirk, find_quirks, quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

DATA: dict[str, Any] = json.loads(Path(__file__).with_name("conformance.json").read_text())
FAULTS: dict[str, dict[str, list[Any]]] = DATA["faults"]
PAGES = Path(__file__).resolve().parents[3] / "docs" / "codes"


def minor(release: str) -> tuple[int, int]:
    first, second = release.split(".")[:2]
    return int(first), int(second)


def of_release(name: str, release: str) -> Quirk:
    (found,) = [q for q in quirks() if q.id == name and q.concerns(minor(release))]
    return found


def agrees(quirk: Quirk, outcome: str) -> bool:
    """An empty output is a wrong number to the suite; a refusal may come when the session is made, or runs."""
    same = {"empty output": "wrong numbers", "run fails": "create fails"}
    return same.get(quirk.outcome, quirk.outcome) == same.get(outcome, outcome)


def test_the_newest_and_older_releases_were_run_whole() -> None:
    assert "1.24.4" in DATA["releases"]
    assert len(DATA["releases"]) >= 3
    for head in DATA["releases"].values():
        assert head["right"] > 1400
        assert head["faults"] == sum(
            head["device"] == DATA["releases"][r]["device"] for f in FAULTS.values() for r in f
        )


def test_every_fault_is_a_quirk_of_its_release_or_says_why_not() -> None:
    wrong = []
    for case, rows in FAULTS.items():
        for release, (outcome, _, name) in rows.items():
            quirk = of_release(name, release) if name else None
            if quirk is None:
                fits = bool(DATA["unexplained"].get(case))
            else:
                fits = agrees(quirk, outcome) and release in quirk.measured_on
            if not fits:
                wrong.append(f"{case} on {release}: {outcome}, {name or 'no quirk, and no reason why'}")
    assert wrong == []


def test_a_figure_stands_with_every_wrong_result() -> None:
    for rows in FAULTS.values():
        for outcome, figure, _ in rows.values():
            assert (outcome == "wrong numbers") == (figure is not None)


def test_a_quirk_is_claimed_only_where_it_may_be() -> None:
    wrong = []
    for quirk in quirks():
        seen = {minor(release) for release in quirk.measured_on}
        wrong += [f"{quirk.id}-{quirk.first}: measured on {r}" for r in sorted(seen) if not quirk.concerns(r)]
        # With a newest release known, the one before it and the one after it were tried.
        if quirk.last is not None and minor(quirk.last) not in seen:
            wrong.append(f"{quirk.id}-{quirk.first}: its last release was not measured")
    assert wrong == []


@pytest.mark.slow
def test_the_quirks_are_found_in_the_very_cases() -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite itself divides by zero and overflows
        models = {c.name: c.model for c in collect_testcases(None)}
    for case, rows in FAULTS.items():
        name, _, opset = case.partition("@")
        copy = onnx.ModelProto()
        copy.CopyFrom(models[name])
        for entry in copy.opset_import:
            if opset and entry.domain in ("", "ai.onnx"):
                entry.version = int(opset)
        for release, (_, _, quirk) in rows.items():
            target = find_target("ort-" + ".".join(release.split(".")[:2]))
            hits = find_quirks(read_facts(Model(ir.from_proto(copy)), target.tables), target)
            assert not quirk or quirk in {hit.quirk.id for hit in hits}, f"{case} on {release}"
