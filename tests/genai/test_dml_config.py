"""The configuration for DirectML: what it says of sessions and search, and that all else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dmlprep.genai.dml_config import DmlOptions, for_cpu, for_dml

CPU = """{
    "model": {
        "context_length": 512,
        "decoder": {
            "session_options": {
                "log_id": "onnxruntime-genai",
                "provider_options": []
            },
            "filename": "model.onnx"
        },
        "type": "llama"
    },
    "search": {
        "past_present_share_buffer": true,
        "top_p": 1.0
    }
}"""


def written(text: str, options: DmlOptions | None = None, **more: Any) -> tuple[Any, list[str], str]:
    told = {"capture": True, "why_not": "a node is on the CPU", "grouped": True, **more}
    made, found = for_dml(text, options or DmlOptions(), **told)
    return json.loads(made), [one.code for one in found], made


def dml(document: Any) -> Any:
    (entry,) = document["model"]["decoder"]["session_options"]["provider_options"]
    return entry["dml"]


def changed(**fields: Any) -> str:
    document = json.loads(CPU)
    for path, value in fields.items():
        at = document
        *way, last = path.split("__")
        for key in way:
            at = at[key]
        at[last] = value
    return json.dumps(document, indent=4)


def test_a_folder_for_the_cpu_gets_the_provider_and_keeps_its_text() -> None:
    document, codes, text = written(CPU)
    assert dml(document) == {"enable_graph_capture": "1"}
    assert codes == []
    before, after = CPU.splitlines(), text.splitlines()
    assert [line for line in before if line not in after] == ['                "provider_options": []']


def test_the_adapter_is_written_as_a_string() -> None:
    document, codes, _ = written(CPU, DmlOptions(1))
    assert dml(document) == {"enable_graph_capture": "1", "device_index": "1"}
    assert codes == []


def test_what_the_provider_says_already_stays() -> None:
    text = changed(model__decoder__session_options__provider_options=[{"DML": {"luid": "0:7", "x": "y"}}])
    document, codes, _ = written(text)
    (entry,) = document["model"]["decoder"]["session_options"]["provider_options"]
    assert entry == {"DML": {"luid": "0:7", "x": "y", "enable_graph_capture": "1"}}
    assert codes == []


def test_another_provider_goes_and_is_named() -> None:
    text = changed(model__decoder__session_options__provider_options=[{"cuda": {"a": "1"}}, {"dml": {"luid": "0:7"}}])
    document, codes, _ = written(text)
    assert dml(document) == {"luid": "0:7", "enable_graph_capture": "1"}
    assert codes == ["DP875"]


def test_graph_capture_is_on_only_where_it_can_be() -> None:
    document, codes, _ = written(CPU, capture=False)
    assert (dml(document)["enable_graph_capture"], codes) == ("0", ["DP874"])
    document, codes, _ = written(CPU, DmlOptions(graph_capture=False))
    assert (dml(document)["enable_graph_capture"], codes) == ("0", ["DP874"])


def test_the_memory_pattern_and_the_search_are_mended() -> None:
    text = changed(
        model__decoder__session_options__enable_mem_pattern=True,
        search__past_present_share_buffer=False,
        search__chunk_size=64,
    )
    document, codes, _ = written(text)
    assert document["model"]["decoder"]["session_options"]["enable_mem_pattern"] is False
    assert document["search"] == {"past_present_share_buffer": True, "top_p": 1.0}
    assert codes == ["DP875", "DP875", "DP875"]


def test_without_grouped_attention_the_search_stays() -> None:
    text = changed(search__past_present_share_buffer=False, search__chunk_size=64)
    document, _, _ = written(text, grouped=False)
    assert document["search"] == {"past_present_share_buffer": False, "top_p": 1.0, "chunk_size": 64}


def test_every_section_with_a_session_gets_the_provider() -> None:
    vision = {"filename": "vision.onnx", "session_options": {"provider_options": []}}
    stage = [{"prompt": {"filename": "a.onnx", "session_options": {}}}]
    document, _, _ = written(changed(model__vision=vision, model__decoder__pipeline=stage))
    assert document["model"]["vision"]["session_options"]["provider_options"] == [{"dml": {}}]
    inner = document["model"]["decoder"]["pipeline"][0]["prompt"]["session_options"]
    assert inner["provider_options"] == [{"dml": {}}]


def test_a_decoder_without_session_options_gets_them() -> None:
    document = json.loads(CPU)
    del document["model"]["decoder"]["session_options"]
    made, _, _ = written(json.dumps(document, indent=2))
    assert dml(made) == {"enable_graph_capture": "1"}


def test_for_the_cpu_no_provider_is_left() -> None:
    _, _, text = written(CPU, DmlOptions(1))
    assert for_cpu(text) == CPU
    assert for_cpu(CPU) == CPU


def test_a_file_of_the_builder_keeps_its_bytes() -> None:
    document = json.loads(CPU)
    document["search"] |= {"length_penalty": 1e-05, "temperature": 0.1, "max_length": 2**70, "unknown": ["é", {}, []]}
    text = json.dumps(document, indent=4, ensure_ascii=False)
    _, _, made = written(text)
    asked = '"provider_options": [\n                    {\n                        "dml": {\n'
    assert asked in made
    assert for_cpu(made) == text


@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_indent_and_line_ends_stay(indent: Any, newline: str) -> None:
    text = json.dumps(json.loads(CPU), indent=indent).replace("\n", newline) + newline
    _, _, made = written(text)
    assert made != text
    assert for_cpu(made) == text


def test_numbers_stay_as_they_are_written() -> None:
    numbers = f"[1.00, 1E5, -0.0, 1e999, {'9' * 5000}]"
    text = CPU.replace('"type"', f'"x": {numbers},\n        "type"')
    made, _ = for_dml(text, DmlOptions(), capture=True, why_not="", grouped=False)
    for number in numbers.strip("[]").split(", "):
        assert f" {number}" in made


def test_of_duplicate_keys_the_last_counts() -> None:
    _, _, made = written(CPU.replace('"top_p": 1.0', '"top_p": 0.5, "top_p": 1.0'))
    assert made == written(CPU)[2]
