"""GroupQueryAttention behind a cache is found: an error where it is wrong, a warning where that depends on the app."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,TOKENS,16] q, float[1,TOKENS,8] k, float[1,TOKENS,8] v, float[1,1,PAST,8] pk, float[1,1,PAST,8] pv FED)
=> (float[1,TOKENS,16] y, float[1,1,KEYS,8] ok, float[1,1,KEYS,8] ov)
<HELD int32 t = {TOTAL}>
{ y, ok, ov = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, k, v, CACHE, n, t) }"""


def severities(tokens: int | str, past: int, cache: str = "pk, pv", fed: bool = False) -> list[str]:
    total = past + (tokens if isinstance(tokens, int) else 1)
    words = {"TOKENS": tokens, "PAST": past, "TOTAL": total, "KEYS": "keys", "CACHE": cache}
    words |= {"FED": ", int32[1] n" if fed else "", "HELD": "" if fed else f"int32[1] n = {{{total - 1}}},"}
    text = TEXT
    for word, value in words.items():
        text = text.replace(word, str(value))
    target = find_target()
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))), target.tables)
    return [hit.finding().severity for hit in find_quirks(facts, target) if hit.quirk.id == "grouped-cache"]


@pytest.mark.parametrize(
    ("tokens", "past", "fed", "severity"),
    [
        (3, 4, False, ["error"]),
        (1, 4, False, ["warning"]),
        (1, 4, True, ["warning"]),
        ("tokens", 4, True, ["warning"]),
        (3, 0, False, []),
    ],
)
def test_behind_a_cache(tokens: int | str, past: int, fed: bool, severity: list[str]) -> None:
    assert severities(tokens, past, fed=fed) == severity


def test_without_a_cache() -> None:
    assert severities(3, 0, cache=", ") == []
