"""A JSON text is edited where it stands: all else is as it was written."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlprep.genai.json_text import JsonText

TEXT = """{
    "model": {
        "eos_token_id": [1,  2],
        "decoder": {
            "session_options": {
                "log_id": "genai",
                "provider_options": []
            },
            "scale": 1.0e-05
        }
    },
    "search": { "top_p": 1.00, "max_length": 512 }
}
"""


def test_a_value_is_replaced_and_nothing_else() -> None:
    text = JsonText(TEXT)
    assert text.set(["search", "max_length"], 256)
    assert text.text == TEXT.replace("512", "256")


def test_what_is_so_already_changes_nothing() -> None:
    text = JsonText(TEXT)
    assert not text.set(["search", "max_length"], 512)
    assert not text.set(["model", "decoder", "session_options", "log_id"], "genai")
    assert text.text == TEXT


def test_a_list_of_objects_takes_the_indent_of_the_file() -> None:
    text = JsonText(TEXT)
    text.set(["model", "decoder", "session_options", "provider_options"], [{"dml": {"device_index": "0"}}])
    wanted = """"provider_options": [
                    {
                        "dml": {
                            "device_index": "0"
                        }
                    }
                ]"""
    assert text.text == TEXT.replace('"provider_options": []', wanted)


def test_a_member_is_added_behind_the_last() -> None:
    text = JsonText(TEXT)
    text.set(["search", "past_present_share_buffer"], True)
    assert '{ "top_p": 1.00, "max_length": 512, "past_present_share_buffer": true }' in text.text
    text.set(["model", "decoder", "inputs", "logits"], "logits")
    assert (
        '"scale": 1.0e-05,\n            "inputs": {\n                "logits": "logits"\n            }\n' in text.text
    )
    assert json.loads(text.text)["model"]["decoder"]["inputs"] == {"logits": "logits"}


def test_a_member_is_added_to_an_empty_object() -> None:
    text = JsonText('{\n  "a": {}\n}')
    text.set(["a", "b"], 1)
    assert text.text == '{\n  "a": {\n    "b": 1\n  }\n}'


def test_one_line_stays_one_line() -> None:
    text = JsonText('{"a": {"b": 1}, "c": [{}]}')
    text.set(["a", "d"], {"e": [1, 2]})
    text.set(["c", 0, "f"], 1)
    assert text.text == '{"a": {"b": 1, "d": {"e": [1, 2]}}, "c": [{"f": 1}]}'


def test_windows_lines_and_tabs_stay() -> None:
    text = JsonText('{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n')
    text.set(["a", "c"], {"d": 2})
    assert text.text == '{\r\n\t"a": {\r\n\t\t"b": 1,\r\n\t\t"c": {\r\n\t\t\t"d": 2\r\n\t\t}\r\n\t}\r\n}\r\n'


@pytest.mark.parametrize(
    ("key", "left"),
    [
        ("a", '{"b": 2, "c": 3}'),
        ("b", '{"a": 1, "c": 3}'),
        ("c", '{"a": 1, "b": 2}'),
        ("d", '{"a": 1, "b": 2, "c": 3}'),
    ],
)
def test_a_member_is_removed(key: str, left: str) -> None:
    text = JsonText('{"a": 1, "b": 2, "c": 3}')
    assert text.remove([key]) == (key != "d")
    assert text.text == left


def test_the_only_member_is_removed() -> None:
    text = JsonText(TEXT)
    for key in ("top_p", "max_length"):
        text.remove(["search", key])
    assert json.loads(text.text)["search"] == {}


def test_a_name_that_stands_twice_is_changed_where_it_counts() -> None:
    text = JsonText('{"a": 1, "a": 2}')
    text.set(["a"], 3)
    assert text.text == '{"a": 1, "a": 3}'


def test_true_is_not_one() -> None:
    text = JsonText('{"a": 1}')
    assert text.set(["a"], True)
    assert text.text == '{"a": true}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": 5}', '{"a": {"b": 1}}'),
        ('{"a": "text"}', '{"a": {"b": 1}}'),
        ('{"a": [{"b": 2}]}', '{"a": {"b": 1}}'),
        ("[1]", '{"a": {"b": 1}}'),
    ],
)
def test_what_is_no_object_gives_way_to_one(before: str, after: str) -> None:
    text = JsonText(before)
    assert text.set(["a", "b"], 1)
    assert text.text == after


def test_a_document_of_thousands_of_sections() -> None:
    text = JsonText(json.dumps({"stages": [{"options": {"n": i}} for i in range(5_000)]}, indent=2))
    for i in range(5_000):
        text.set(["stages", i, "options", "n"], -i)
        text.set(["stages", i, "options", "new"], [i])
    wanted = {"stages": [{"options": {"n": -i, "new": [i]}} for i in range(5_000)]}
    assert json.loads(text.text) == wanted


NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
EDITS = st.tuples(st.booleans(), st.lists(NAMES | st.integers(0, 2), min_size=1, max_size=4), TREES)


@given(
    tree=st.dictionaries(NAMES, TREES, max_size=3),
    edits=st.lists(EDITS, max_size=5),
    indent=st.none() | st.integers(0, 3) | st.just("\t"),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_it_holds_what_a_tree_with_the_same_edits_holds(
    tree: dict[str, Any], edits: list[tuple[bool, list[str | int], Any]], indent: Any, newline: str
) -> None:
    text = JsonText(json.dumps(tree, indent=indent).replace("\n", newline))
    wanted = copy.deepcopy(tree)
    for keep, path, value in edits:
        if keep and not any(isinstance(key, int) for key in path):
            text.set(path, value)
            _set(wanted, path, copy.deepcopy(value))
        else:
            assert text.remove(path) == _remove(wanted, path)
        assert text.get([]) == wanted
    assert json.loads(text.text) == wanted


def _set(tree: dict[Any, Any], path: list[str | int], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[path[-1]] = value


def _remove(tree: Any, path: list[str | int]) -> bool:
    for key in path[:-1]:
        if not _has(tree, key):
            return False
        tree = tree[key]
    if not _has(tree, path[-1]):
        return False
    del tree[path[-1]]
    return True


def _has(tree: Any, key: str | int) -> bool:
    if isinstance(key, int):
        return isinstance(tree, list) and key < len(tree)
    return isinstance(tree, dict) and key in tree
