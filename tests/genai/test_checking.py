"""``genai check``: a good folder has no fault, and each of many broken ones is named in one line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import dmlprep
from dmlprep.cli.genai import check as command
from dmlprep.core.errors import InputError
from dmlprep.genai import open_folder
from dmlprep.genai.config import GenaiConfig, read_config
from dmlprep.genai.models import state_names
from dmlprep.genai.names import Interface, name_findings
from dmlprep.genai.providers import dml_provider
from tests.genai.folders import config, decoder, write_folder

Edit = Callable[[dict[str, Any]], None]


def _at(settings: dict[str, Any], place: str, value: Any) -> None:
    *above, last = place.split(".")
    for key in above:
        settings = settings[key]
    settings[last] = value


def _faults(folder: Path, **options: Any) -> list[tuple[str, str, str]]:
    record = dmlprep.genai_check(folder, **options)
    return [(one.code, one.severity, one.message) for one in record.findings if one.severity != "note"]


def test_a_missing_name_is_of_the_config_or_the_default() -> None:
    def messages(outputs: dict[str, str]) -> list[str]:
        settings = config()
        settings["model"]["decoder"]["outputs"] = outputs
        model = Interface(("input_ids",), ("scores",))
        return [one.message for one in name_findings(GenaiConfig(Path(), settings, ()), "decoder", "m.onnx", model)]

    place = "model.decoder.outputs.logits"
    assert f'm.onnx has no output "logits", which {place} means by default' in messages({})
    assert f'm.onnx has no output "odds", which {place} names' in messages({"logits": "odds"})


def test_empty_session_options_do_not_mean_those_of_the_decoder(tmp_path: Path) -> None:
    settings = config()
    settings["model"] |= {"vision": {"session_options": {}}, "speech": {}}
    read = open_folder(write_folder(tmp_path / "folder", settings)).config
    assert dml_provider(read, "vision") is None
    assert dml_provider(read, "speech") == dml_provider(read, "decoder") is not None


def test_the_options_of_the_decoder_s_cache_are_of_no_other_model(tmp_path: Path) -> None:
    settings = config()
    settings["model"]["vision"] = {"filename": "vision.onnx"}
    folder = write_folder(tmp_path / "folder", settings)
    onnx.save(decoder(), folder / "vision.onnx")
    findings = [one for one in dmlprep.genai_check(folder).findings if one.code == "DP649"]
    assert {(one.facts["file"], one.severity) for one in findings} == {
        ("model.onnx", "note"),
        ("vision.onnx", "warning"),
    }


def test_a_file_that_two_sections_name_counts_once(tmp_path: Path) -> None:
    settings = config()
    folder = write_folder(tmp_path / "folder", settings)
    size = open_folder(folder).file_bytes()
    settings["model"]["vision"] = {"filename": "model.onnx"}
    (folder / "genai_config.json").write_text(json.dumps(settings))
    assert open_folder(folder).file_bytes() == size


def test_a_good_folder_has_no_fault(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "good")
    record = dmlprep.genai_check(folder)
    assert _faults(folder) == []
    assert record.exit_code == 0
    assert record.facts.needs is not None
    assert record.facts.needs.max_length == 128


DECODER = "model.decoder"
SESSION = f"{DECODER}.session_options"

CASES: list[tuple[str, str, Any, dict[str, Any], str, str]] = [
    # name, place, value, the model, code, what the line says
    ("misspelt", f"{DECODER}.head_sise", 8, {}, "DP841", "model.decoder.head_sise is unknown"),
    ("mislaid", "model.max_length", 8, {}, "DP841", "model.max_length is unknown"),
    ("text for a number", f"{DECODER}.head_size", "8", {}, "DP842", 'needs a whole number, but has "8"'),
    ("a fraction", f"{DECODER}.head_size", 8.5, {}, "DP842", "needs a whole number, but has 8.5"),
    ("too large", f"{DECODER}.head_size", 1e30, {}, "DP842", "exceeds 32 bits"),
    ("head size", f"{DECODER}.head_size", 16, {}, "DP851", "head_size is 16, but the attention of model.onnx has 8"),
    ("heads", f"{DECODER}.num_key_value_heads", 4, {}, "DP851", "num_key_value_heads is 4"),
    (
        "layers",
        f"{DECODER}.num_hidden_layers",
        3,
        {},
        "DP850",
        "num_hidden_layers is 3, but model.onnx has a cache for 2",
    ),
    ("more layers", f"{DECODER}.num_hidden_layers", 2, {"layers": 3}, "DP850", "has a cache for 3 layers"),
    ("vocabulary", "model.vocab_size", 65, {}, "DP852", "vocab_size is 65, but logits of model.onnx has 64"),
    ("pattern", f"{DECODER}.inputs.past_key_names", "past.key", {}, "DP849", "has no %d"),
    ("name", f"{DECODER}.outputs.logits", "logit", {}, "DP848", 'model.onnx has no output "logit"'),
    ("mask", f"{DECODER}.inputs.attention_mask", "atention_mask", {}, "DP848", 'input "attention_mask" of model.onnx'),
    ("length", "search.max_length", 129, {}, "DP853", "max_length is 129, beyond model.context_length 128"),
    ("mem pattern", f"{SESSION}.enable_mem_pattern", True, {}, "DP857", "DirectML-ExecutionProvider.html"),
    ("parallel", f"{SESSION}.execution_mode", "ORT_PARALLEL", {}, "DP857", "parallel"),
    ("opset", "model.type", "llama", {"opset": 23}, "DP861", "DirectML in model.onnx"),
    ("control flow", "model.type", "llama", {"control_flow": True}, "DP861", "control flow"),
    ("rotated parts", "model.type", "llama", {"split": True}, "DP659", "graph capture is on here"),
    ("no sharing", "search.past_present_share_buffer", False, {}, "DP859", "(DP649)"),
    ("beams", "search.num_beams", 2, {}, "DP860", "num_beams is 2"),
    ("chunks", "search.chunk_size", 16, {}, "DP860", "chunk_size is 16"),
    ("slides", f"{DECODER}.sliding_window", {"window_size": 16}, {}, "DP860", "slide_inputs is true"),
    ("drafts", "model.draft", {"filename": "model.onnx"}, {}, "DP860", "model.draft drafts tokens"),
    ("n-grams", "speculative", {"ngram_size": 4}, {}, "DP860", "speculative.ngram_size drafts tokens"),
    ("end", "model.eos_token_id", [0, 64], {}, "DP852", "eos_token_id is 64"),
    ("outside", f"{DECODER}.filename", "../model.onnx", {}, "DP845", "is outside the folder"),
    ("no file", f"{DECODER}.filename", "modell.onnx", {}, "DP846", "which does not exist"),
]


@pytest.mark.parametrize(
    ("place", "value", "model", "code", "says"), [row[1:] for row in CASES], ids=[r[0] for r in CASES]
)
def test_a_broken_folder_is_named_in_one_line(
    tmp_path: Path, place: str, value: Any, model: dict[str, Any], code: str, says: str
) -> None:
    settings = config()
    _at(settings, place, value)
    folder = write_folder(tmp_path / "broken", settings, **model)
    lines = [text for found, severity, text in _faults(folder) if found == code and severity == "error"]
    assert any(says in text and "\n" not in text for text in lines), _faults(folder)
    result = CliRunner().invoke(command, [str(folder)], standalone_mode=False)
    assert result.return_value == 1
    assert f"error {code}" in result.output


@pytest.mark.parametrize(
    ("place", "value", "code", "says"),
    [
        (f"{SESSION}.provider_options", [], "DP866", "names no provider"),
        (f"{SESSION}.provider_options", [{"cuda": {}}], "DP866", "requests cuda"),
        ("engine", {"dynamic_batching": {}}, "DP860", "engine is for og.Engine"),
        ("model.mtp", {"main_hidden_states": "hidden_states"}, "DP860", "model.mtp is for og.Engine"),
    ],
)
def test_what_keeps_a_folder_from_directml_is_a_warning(
    tmp_path: Path, place: str, value: Any, code: str, says: str
) -> None:
    settings = config()
    _at(settings, place, value)
    folder = write_folder(tmp_path / "folder", settings)
    assert [
        text for found, severity, text in _faults(folder) if (found, severity) == (code, "warning") and says in text
    ]
    result = CliRunner().invoke(command, [str(folder)], standalone_mode=False)
    assert result.return_value == 0
    assert "no problems" not in result.output


def test_a_decoder_without_its_last_layer_names_the_option_of_the_builder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.output[0].name = model.graph.node[-1].output[0] = "hidden_states"
    onnx.save(model, folder / "model.onnx")
    found = dmlprep.genai_check(folder).findings
    assert any(one.code == "DP848" and "exclude_lm_head" in (one.remedy or "") for one in found), found


FILTER = {"hardware_vendor_id": 4319}


@pytest.mark.parametrize(
    ("options", "code", "severity", "says"),
    [
        ([{"dml": {"device_filtering_options": FILTER}}], "DP856", "error", "4319 is not a known vendor"),
        ([{"dml": {}, "device_filtering_options": {}}], "DP856", "error", "is next to dml"),
        ([{"dml": {"device_id": "0"}}], "DP855", "warning", "has no effect"),
        ([{"dml": {"device_indx": "0"}}], "DP855", "warning", "not an option of DirectML"),
        ([{"dml": {"enable_graph_capture": "yes"}}], "DP855", "error", '"0" or "1"'),
        ([{"dml": {"device_id": 0}}], "DP842", "error", "needs a string in quotes"),
        ([{"dml": {}}, {"cuda": {}}], "DP858", "error", "requests both"),
    ],
)
def test_provider_options(tmp_path: Path, options: Any, code: str, severity: str, says: str) -> None:
    settings = config()
    settings["model"]["decoder"]["session_options"]["provider_options"] = options
    found = _faults(write_folder(tmp_path / "folder", settings))
    assert any((code, severity) == one[:2] and says in one[2] for one in found), found


def test_rotated_parts_of_a_split_are_right_without_graph_capture(tmp_path: Path) -> None:
    settings = config()
    settings["model"]["decoder"]["session_options"]["provider_options"] = [{"dml": {"enable_graph_capture": "0"}}]
    folder = write_folder(tmp_path / "folder", settings, split=True)
    assert _faults(folder) == []
    assert "DP659" in {one.code for one in dmlprep.genai_check(folder).findings}


def test_a_table_of_positions_that_ends_before_the_context(tmp_path: Path) -> None:
    settings = config()
    settings["model"]["context_length"] = 256
    found = _faults(write_folder(tmp_path / "folder", settings))
    assert any(code == "DP853" and severity == "warning" and "ends at 128" in text for code, severity, text in found)


def test_a_whole_number_may_be_written_with_a_point(tmp_path: Path) -> None:
    settings = config()
    settings["model"]["decoder"]["head_size"] = 8.0
    assert _faults(write_folder(tmp_path / "folder", settings)) == []


def test_missing_data_and_tokenizer(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "model.onnx.data").unlink()
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    found = _faults(folder)
    assert any(code == "DP846" and "model.onnx" in text for code, _, text in found), found
    assert any(code == "DP847" and "not JSON" in text for code, _, text in found), found


def test_the_tokenizer_class_of_transformers_5_is_a_note(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}', encoding="utf-8")
    found = [one for one in dmlprep.genai_check(folder).findings if one.code == "DP847"]
    assert [one.severity for one in found] == ["note"]
    assert "0.12.2 refuses it" in found[0].message
    assert _faults(folder) == []


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"model": ' + b"[" * 100_000, "nested more than"),
        (b'{"a": NaN}', "not a JSON number"),
        (b"\xff\xff\x00", "the text"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, raw: bytes, says: str) -> None:
    (tmp_path / "genai_config.json").write_bytes(raw)
    with pytest.raises(InputError, match=says) as caught:
        dmlprep.genai_check(tmp_path)
    assert caught.value.code == "DP840"


def test_text_that_genai_reads_otherwise(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    text = json.dumps({**config(), "caf\u00e9": 1}).replace('"type": "llama"', '"type": "llama", "type": "llama"')
    (folder / "genai_config.json").write_bytes(b"\xef\xbb\xbf" + text.encode() + b" x")
    codes = [code for code, _, _ in _faults(folder)]
    remedies = {one.message: one.remedy for one in dmlprep.genai_check(folder).findings if one.code == "DP843"}
    assert len(set(remedies.values())) == 3  # each fault has its own remedy
    assert codes.count("DP843") == 3  # the mark, an escape, what stands behind the end
    assert "DP844" in codes


def test_memory_against_vram(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    needs = dmlprep.genai_check(folder, vram="1GB").facts.needs
    assert needs is not None
    assert needs.longest_fit == 128  # no more than the context
    assert (needs.batch_fit or 0) > 1
    assert any(code == "DP862" for code, _, _ in _faults(folder, vram="200kB"))


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_forms(tmp_path: Path, form: str) -> None:
    folder = write_folder(tmp_path / "folder", None, opset=23)
    result = CliRunner().invoke(command, [str(folder), "--format", form], standalone_mode=False)
    assert result.return_value == 1
    assert "DP861" in result.output
    if form in ("json", "sarif"):
        json.loads(result.output)


@pytest.mark.parametrize("key", ["model.decoder.filename", "model.tokenizer_dir", "model.vision.config_filename"])
@pytest.mark.parametrize("name", ["a" * 300, "d/" * 3000 + "x", "\ud800"], ids=["long", "deep", "half"])
def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path, key: str, name: str) -> None:
    settings = config()
    settings["model"]["vision"] = {}
    _at(settings, key, name)
    folder = write_folder(tmp_path / "folder", settings)
    assert {"DP846", "DP847"} & {code for code, _, _ in _faults(folder)}


def test_many_stages_are_refused(tmp_path: Path) -> None:
    settings = config()
    settings["model"]["decoder"]["pipeline"] = [{f"s{n}": {"filename": "model.onnx"}} for n in range(3000)]
    folder = write_folder(tmp_path / "folder", settings)
    with pytest.raises(InputError, match="3000 stages"):
        dmlprep.genai_check(folder)


@pytest.mark.parametrize(("own", "on_dml"), [({}, True), ({"session_options": {}}, False)], ids=["none", "empty"])
def test_empty_session_options_of_a_section_replace_those_of_the_decoder(
    tmp_path: Path, own: dict[str, Any], on_dml: bool
) -> None:
    settings = config()
    settings["model"]["embedding"] = {"filename": "embedding.onnx", **own}
    folder = write_folder(tmp_path / "folder", settings)
    assert (dml_provider(read_config(folder), "embedding") is not None) == on_dml


def test_of_many_names_the_first_ones_are_told() -> None:
    settings = config()
    settings["model"]["decoder"]["inputs"] |= {f"k{n}": f"past_{n}_%d" for n in range(3000)}
    model = Interface(tuple(f"x{n}" for n in range(3000)), ("logits",))
    found = list(name_findings(GenaiConfig(Path(), settings, ()), "decoder", "model.onnx", model))
    assert len(found) == 201
    assert "more than 200 names" in found[-1].message


@pytest.mark.parametrize("raw", ['"' + '\\"' * 100_000, '{"a": "' + '\\"' * 100_000], ids=["outside", "inside"])
def test_a_string_without_an_end_is_refused_soon(tmp_path: Path, raw: str) -> None:
    (tmp_path / "genai_config.json").write_text(raw, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(InputError, match="not JSON"):
        dmlprep.genai_check(tmp_path)
    assert time.process_time() - began < 5  # it was minutes: 0.1 s


def test_white_space_that_json_does_not_have(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    text = (folder / "genai_config.json").read_text(encoding="utf-8")
    (folder / "genai_config.json").write_text("\f" + text, encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        dmlprep.genai_check(folder)


def test_a_name_of_several_layers_holds_no_state() -> None:
    settings = config()
    settings["model"]["decoder"]["inputs"]["past_key_names"] = "%d" * 24
    patterns = state_names(GenaiConfig(Path(), settings, ()))
    assert not any(one.fullmatch("1" * 40 + "x") for one in patterns)  # it took for ever
    assert any(one.fullmatch("past_key_values.7.value") for one in patterns)
