"""Texts of documents: every reader accepts them."""

from __future__ import annotations

import json
import math

from dmlprep.core.text.documents import canonical, to_compact, to_json


def test_json_has_neither_half_characters_nor_zero_bytes() -> None:
    data = {"half": "a\ud800b", "zero": "c\0d", "far": math.inf, "none": math.nan}
    text = to_json(data)
    assert json.loads(text) == {"half": "a\\ud800b", "zero": "c\\x00d", "far": 1.7976931348623157e308, "none": None}
    assert to_json({"half": "a"}) == b'{\n  "half": "a"\n}\n'


def test_a_half_character_is_written_in_a_cache_and_counts_in_a_digest() -> None:
    assert json.loads(to_compact({"name": "a\ud800"})) == {"name": "a\\ud800"}
    assert canonical({"name": "a\ud800"}) != canonical({"name": "a\ud801"})
