"""Mutated configs: the check says what it finds, or that it cannot read them; it never crashes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dmlprep
from dmlprep.core.errors import InputError
from dmlprep.genai.schema import schema
from tests.genai.folders import config, write_folder

WORDS = sorted({key for table in schema().objects.values() for key in table} | {"dml", "%d", "..", ""})
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(WORDS),
)
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from(WORDS), LEAVES, max_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("genai") / "folder")


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in rows:
        found += _places(inner, (*path, key))
    return found


PLACES = _places(config())


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_a_mutated_config_never_crashes(folder: Path, edits: list[tuple[tuple[Any, ...], Any]]) -> None:
    made = copy.deepcopy(config())
    for place, value in edits:
        at: Any = made
        try:
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier edit took it away
    (folder / "genai_config.json").write_text(json.dumps(made), encoding="utf-8")
    try:
        record = dmlprep.genai_check(folder, vram="1GB")
    except InputError:
        return  # in one sentence
    assert record.exit_code in (0, 1)
    assert all("\n" not in one.message for one in record.findings)
