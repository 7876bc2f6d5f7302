"""JSON of users, caches and other programs: bounded, of the right kind, or an error of one class."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.core.errors import RecipeError
from dmlprep.core.files import Unfit, cached_json, parse_json
from dmlprep.core.files.bounded_read import MAX_DEPTH
from dmlprep.core.text.documents import canonical, to_compact
from dmlprep.pipeline.recipe import apply_settings, load_recipe, read_settings
from tests.system import WINDOWS


class Entry(msgspec.Struct):
    name: str
    more: dict[str, Any] = {}


DEEP = {
    "lists": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "open": "[" * 100_000,
    "unknown field": '{"name": "a", "other": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "33 levels": '{"name": "a", "more": {"a": ' + "[" * 31 + "]" * 31 + "}}",
}
WRONG = {
    "empty": b"",
    "no UTF-8": b'{"name": "\xff"}',
    "half a character": rb'{"name": "\ud800"}',
    "kind": b'{"name": 1}',
    "top": b"[]",
    "text": b"name",
    "zero byte": rb'{"name": "\u0000"}',
    "number": b'{"name": "a", "more": {"a": 1' + b"0" * 5000 + b"}}",
    "infinity": b'{"name": "a", "more": {"a": Infinity}}',
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("lenient", [False, True])
def test_too_deep(text: str, lenient: bool, tmp_path: Path) -> None:
    with pytest.raises(Unfit):
        parse_json(text, Entry, lenient=lenient)
    (tmp_path / "a.json").write_text(text)
    assert cached_json(tmp_path / "a.json", Entry) is None


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_not_what_it_should_be(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(Unfit) as caught:
        parse_json(data, Entry)
    assert caught.value.fix
    (tmp_path / "a.json").write_bytes(data)
    assert cached_json(tmp_path / "a.json", Entry) is None


def test_a_cache_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    assert cached_json(tmp_path / "a.json", Entry) is None
    assert cached_json(tmp_path, Entry) is None
    (tmp_path / "a.json").write_text('{"name": "a"}')
    assert cached_json(tmp_path / "a.json", Entry) == Entry("a")
    assert cached_json(tmp_path / "a.json", Entry, limit=4) is None


def test_what_python_writes_is_read_where_it_may_be() -> None:
    text = json.dumps({"a": math.inf, "b": 10**30, "c": "\udcff"})
    assert parse_json(text, dict[str, Any], lenient=True) == {"a": math.inf, "b": 1e30, "c": "\udcff"}


def test_the_deepest_document_that_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(text, list[Any]) == json.loads(text)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=40)
    | st.text('[]{}":,1e-.ntf\\u0d8\ud800 ', max_size=40).map(lambda t: t.encode("utf-8", "replace"))
)
def test_anything_is_read_or_unfit(data: bytes) -> None:
    for lenient in (False, True):
        try:
            parse_json(data, dict[str, Any], lenient=lenient)
        except Unfit:
            continue


def test_bytes_that_are_not_utf_8_are_written(tmp_path: Path) -> None:
    one, other = ("a\udcff", "a\udcfe")  # as Python reads a\xff and a\xfe
    assert parse_json(to_compact({one: [one]}), dict[str, Any]) == {r"a\xff": [r"a\xff"]}
    assert canonical([one]) != canonical([other])
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})


@pytest.mark.skipif(WINDOWS, reason="names are UTF-16 on Windows")
@pytest.mark.parametrize("setting", ["doc={0}", 'doc="{0}"', "parity.metric={0}"])
def test_a_setting_that_is_not_utf_8(setting: str) -> None:
    with pytest.raises(RecipeError, match="not valid UTF-8"):
        apply_settings(load_recipe("@check-only"), read_settings([setting.format(os.fsdecode(b"a\xff"))]))
