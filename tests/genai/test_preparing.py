"""``genai prepare``: a folder for DirectML out of one for the CPU, all of it or nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from dmlprep import api
from dmlprep.core.errors import InputError, ModelRefused, OutputError
from dmlprep.core.files import FileSet
from dmlprep.directml.targets import find_target
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.models import refuse_forms
from dmlprep.genai.output import copy_files
from dmlprep.genai.preparing import GenaiRequest, prepare_genai
from dmlprep.graph.model import Model
from dmlprep.pipeline.observer import Observer
from dmlprep.record import RunRecord, StepRecord
from dmlprep.record.generation import GenaiProof
from tests.changed import flip, rewrite
from tests.genai.decoders import CONTEXT, WIDTH, decoder, folder
from tests.genai.proof.ensembles import heard, listener, seen, viewer
from tests.system import needs_links


def prepared(source: Path, out: Path, **more: Any) -> RunRecord:
    return api.genai_prepare(source, out=out, **{"proof": False, **more})


def state(path: Path) -> dict[str, str]:
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def config(path: Path) -> Any:
    return json.loads((path / "genai_config.json").read_text(encoding="utf-8"))


def edit(path: Path, *way: str, value: Any) -> None:
    document = config(path)
    at = document
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    (path / "genai_config.json").write_text(json.dumps(document, indent=4), encoding="utf-8")


def types(path: Path) -> dict[str, int]:
    graph = onnx.load(path, load_external_data=False).graph
    return {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}


def test_a_folder_for_the_cpu_becomes_one_for_directml(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    before = state(source)
    record = prepared(source, tmp_path / "out")
    assert (record.exit_code, record.error) == (0, None)
    assert state(source) == before
    after = state(tmp_path / "out")
    kept = ("tokenizer.json", "chat_template.jinja", "LICENSE", "original/params.json")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert set(after) == {*before, "run.json"}
    half = {name: kind for name, kind in types(tmp_path / "out" / "model.onnx").items() if kind == TensorProto.FLOAT16}
    assert len(half) == 9  # two caches of two layers, before and after, and the logits
    operators = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert operators.count("RotaryEmbedding") == 4
    dml = config(tmp_path / "out")["model"]["decoder"]["session_options"]["provider_options"]
    assert dml == [{"dml": {"enable_graph_capture": "1"}}]


def test_the_memory_of_the_device_is_compared_with_weights_and_cache(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    assert prepared(source, tmp_path / "fits", vram="1GB").exit_code == 0
    large = prepared(source, tmp_path / "large", vram="100kB")
    assert large.error is not None
    assert (large.exit_code, large.error.code, (tmp_path / "large").exists()) == (1, "DP862", False)


def test_a_folder_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    assert prepared(Path("in"), Path("out"), fallback="cpu").exit_code == 0
    names = {name for name in state(tmp_path / "in") if not name.startswith("run.json")}
    assert set(state(tmp_path / "out" / "dml")) == set(state(tmp_path / "out" / "cpu")) == names


def test_the_record_says_what_was_read_and_written(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    made = prepared(source, tmp_path / "out")
    record = RunRecord.read(tmp_path / "out")
    assert record.command == "genai prepare"
    written = {name: sha for name, sha in state(tmp_path / "out").items() if name != "run.json"}
    assert record.facts.genai is not None
    assert record.facts.genai.written == written
    assert record.output_sha256 == written["model.onnx"]
    assert record.facts.digests == {str(source / name): sha for name, sha in state(source).items()}
    by_config = prepared(source / "genai_config.json", tmp_path / "again")
    assert by_config.facts.digests == record.facts.digests
    assert record.facts.genai.models["model.onnx"].sections == ["decoder"]
    assert [step.step for step in record.steps] == ["opset", "fix-quirks", "fp16", "fuse"]
    assert [verdict.outcome for verdict in made.verdicts] == ["passed", "not-run"]


def test_with_a_fall_back_there_are_two_folders(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    edit(source, "model", "decoder", "session_options", "provider_options", value=[{"cuda": {}}])
    record = prepared(source, tmp_path / "out", fallback="cpu")
    assert record.exit_code == 0
    before, cpu, dml = state(source), state(tmp_path / "out" / "cpu"), state(tmp_path / "out" / "dml")
    assert {n: s for n, s in cpu.items() if n != "genai_config.json"} == {
        n: s for n, s in before.items() if n != "genai_config.json"
    }
    assert config(tmp_path / "out" / "cpu")["model"]["decoder"]["session_options"]["provider_options"] == []
    assert set(dml) == set(before)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"cpu", "dml", "run.json"}


@pytest.mark.parametrize("name", ["onnx/text.onnx", "onnx/text.bin"])
def test_a_model_keeps_its_folder_and_its_name(name: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "in", data=False)
    (source / "onnx").mkdir()
    (source / "model.onnx").rename(source / name)
    edit(source, "model", "decoder", "filename", value=name)
    assert prepared(source, tmp_path / "out").exit_code == 0
    assert types(tmp_path / "out" / name)["logits"] == TensorProto.FLOAT16


def test_what_goes_between_models_keeps_its_type(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[batch, 8] pixel_values) => (float[batch, 4] image_features)'
        "<float[8, 4] w = {0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7}>"
        "{ image_features = MatMul(pixel_values, w) }"
    )
    onnx.save(onnx.parser.parse_model(text), source / "vision.onnx")
    vision = {
        "filename": "vision.onnx",
        "inputs": {"pixel_values": "pixel_values"},
        "outputs": {"image_features": "image_features"},
    }
    edit(source, "model", "vision", value=vision)
    record = prepared(source, tmp_path / "out")
    assert record.exit_code == 0, record.error
    assert set(types(tmp_path / "out" / "vision.onnx").values()) == {TensorProto.FLOAT}
    assert {step.model for step in record.steps} == {"model.onnx", "vision.onnx"}


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"softcap": 50.0}, "capped at 50"),
        ({"local_window_size": 8}, "a window of 8 tokens, but texts of up to 32 tokens are longer"),
        ({"smooth_softmax": 1}, "smooth"),
    ],
)
def test_attention_that_directml_computes_otherwise_is_refused(
    attributes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    source = folder(tmp_path / "in", decoder(**attributes))
    record = prepared(source, tmp_path / "out")
    assert record.exit_code == 1
    assert "DP878" in str(record.error)
    assert says in str(record.error)
    assert not (tmp_path / "out").exists()


def test_attention_of_an_encoder_decoder_is_refused_where_no_step_mends_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1,3,8] q, float[1,3,8] k, float[1,3,8] v, float[1,2,3,3] m) => (float[1,3,8] y)
    { y = com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v, , , m) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "own.onnx")
    model = Model.open(tmp_path / "own.onnx")
    refuse_forms(model, find_target(), CONTEXT, mended=False)
    with pytest.raises(ModelRefused, match=r"later tokens.*DP661"):
        refuse_forms(model, find_target(), CONTEXT, mended=True)


def test_a_window_as_long_as_any_text_is_none(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", decoder(local_window_size=CONTEXT))
    assert prepared(source, tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(("form", "captures"), [({"short": 4}, "0"), ({"norms": True}, "1")], ids=str)
def test_a_choice_of_tables_and_a_norm_are_prepared_and_proved(
    form: dict[str, Any], captures: str, tmp_path: Path
) -> None:
    """An If between rotary tables keeps graph capture off. A node that norms is written out for the CPU."""
    record = prepared(folder(tmp_path / "in", decoder(**form)), tmp_path / "out", proof=True)
    assert (record.exit_code, record.error) == (0, None)
    (provider,) = config(tmp_path / "out")["model"]["decoder"]["session_options"]["provider_options"]
    assert provider["dml"]["enable_graph_capture"] == captures
    nodes = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False).graph.node
    assert sum(node.op_type == "RotaryEmbedding" for node in nodes) == 4


def test_inputs_for_adapters_stay_as_adapters_fill_them(tmp_path: Path) -> None:
    """Low-rank weights of zeros, which an adapter of onnxruntime-genai replaces by name."""
    model = decoder()
    sizes = {"lora_A": [WIDTH, 4], "lora_B": [4, WIDTH]}
    for name, shape in sizes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}_0", f"{name}_1"])
        )
    at = next(number for number, node in enumerate(model.graph.node) if node.output[0] == "hidden_0")
    model.graph.node[at].output[0] = "embedded"
    for number, (op, inputs, output) in enumerate(
        [
            ("MatMul", ["embedded", "lora_A"], "low"),
            ("MatMul", ["low", "lora_B"], "more"),
            ("Add", ["embedded", "more"], "hidden_0"),
        ]
    ):
        model.graph.node.insert(at + 1 + number, onnx.helper.make_node(op, inputs, [output], f"lora/{output}"))
    assert prepared(folder(tmp_path / "in", model), tmp_path / "out").exit_code == 0
    graph = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False).graph
    inputs = {value.name: value.type.tensor_type.elem_type for value in graph.input if value.name in sizes}
    assert inputs == dict.fromkeys(sizes, TensorProto.FLOAT)
    assert sizes.keys() <= {tensor.name for tensor in graph.initializer}


def test_a_rotation_that_cannot_be_rewritten_is_refused_with_its_reason(tmp_path: Path) -> None:
    model = decoder(packed=False)
    for tensor in [one for one in model.graph.initializer if one.name in ("cos", "sin")]:
        model.graph.initializer.remove(tensor)
        value = onnx.helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, ["rows", "half"])
        model.graph.input.append(value)
    record = prepared(folder(tmp_path / "in", model), tmp_path / "out")
    assert record.exit_code == 1
    assert record.error is not None
    assert "the sizes of its cosines (cos_cache) are unknown" in str(record.error)


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="no file that opens and cannot be read")
def test_an_error_of_reading_names_the_source(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/proc/self/mem: cannot be read: Input/output error"):
        copy_files([Path("/proc/self/mem")], Path("/proc/self"), tmp_path / "out")


def test_several_beams_are_of_the_decoder_alone(tmp_path: Path) -> None:
    source = viewer(tmp_path / "in", seen())
    onnx.save(decoder(), source / "vision.onnx")
    edit(source, "search", "num_beams", value=4)
    record = prepared(source, tmp_path / "out")
    assert record.exit_code == 0, record.error


def test_several_beams_are_refused(tmp_path: Path) -> None:
    record = prepared(folder(tmp_path / "in", num_beams=4), tmp_path / "out")
    assert record.exit_code == 1
    assert "num_beams is 4" in str(record.error)


@pytest.mark.parametrize(
    ("table", "key", "value", "refused"),
    [
        ("decoder", "sliding_window", {"window_size": 8}, "slide_inputs"),
        ("decoder", "sliding_window", {"slide_inputs": False}, ""),
        ("", "speculative", {"ngram_size": 3}, "ngram_size"),
    ],
)
def test_several_tokens_behind_a_cache_are_refused(
    tmp_path: Path, table: str, key: str, value: Any, refused: str
) -> None:
    source = folder(tmp_path / "in")
    document = json.loads((source / "genai_config.json").read_text(encoding="utf-8"))
    (document["model"][table] if table else document)[key] = value
    (source / "genai_config.json").write_text(json.dumps(document), encoding="utf-8")
    record = prepared(source, tmp_path / "out")
    assert record.exit_code == int(bool(refused))
    assert refused in str(record.error)


def test_force_replaces_what_an_earlier_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    source, out = folder(tmp_path / "in"), tmp_path / "out"
    assert prepared(source, out, fallback="cpu").exit_code == 0
    (out / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="contains"):
        prepared(source, out)
    assert prepared(source, out, force=True).exit_code == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"mine.txt", "run.json", *(path.name for path in source.iterdir())}


def test_a_refused_folder_leaves_the_earlier_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert prepared(folder(tmp_path / "in"), out).exit_code == 0
    before = state(out)
    assert prepared(folder(tmp_path / "capped", decoder(softcap=5.0)), out, force=True).exit_code == 1
    assert state(out) == before


class _Stepped(Observer):
    """Something that happens after the first step."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.done = act, False

    def step_finished(self, record: StepRecord) -> None:
        if not self.done:
            self.done = True
            self.act()


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json"])
def test_a_folder_that_is_changed_while_it_is_prepared(name: str, late: bool, fallback: bool, tmp_path: Path) -> None:
    source, out = folder(tmp_path / "in"), tmp_path / "out"
    wrong = {"genai_config.json": (b"llama", b"LLAMA"), "tokenizer.json": (b"1.0", b"1.1")}

    def change() -> None:
        if name in wrong:
            rewrite(source / name, (source / name).read_bytes().replace(*wrong[name]))
        else:
            flip(source / name)

    def prover(given: GenaiFolder, made: GenaiFolder) -> GenaiProof:
        if late:
            change()
        return GenaiProof("", "", "cpu", [], 0, "seeded", [])

    observer = Observer() if late else _Stepped(change)
    request = GenaiRequest(source, out, fallback=fallback, prover=prover, observer=observer)
    if name == "tokenizer.json" and not late:  # nobody has read it yet: what it is now goes into the result
        assert prepare_genai(request).exit_code == 0
        assert json.loads((out / ("dml" if fallback else "") / name).read_bytes())["version"] == "1.1"
        return
    with pytest.raises(InputError) as refused:
        prepare_genai(request)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(source / name)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("out", [".", "below", ".."])
def test_the_folder_that_is_given_is_never_written_to(out: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    with pytest.raises(OutputError):
        prepared(source, source / out, force=True)


@pytest.mark.parametrize(
    ("way", "value", "says"),
    [
        (("model", "decoder", "filename"), "other.onnx", "other.onnx, which is missing"),
        (("model", "decoder", "filename"), "../other.onnx", "outside the folder"),
        (("model", "decoder", "filenam"), "x", "filenam"),
    ],
)
def test_a_config_that_genai_does_not_take(way: tuple[str, ...], value: str, says: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    edit(source, *way, value=value)
    with pytest.raises(InputError, match=says):
        prepared(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_adapter_and_no_graph_capture_are_written(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    record = prepared(source, tmp_path / "out", device_index=1, graph_capture=False)
    assert "DP874" in {one.code for one in record.findings}
    (entry,) = config(tmp_path / "out")["model"]["decoder"]["session_options"]["provider_options"]
    assert entry["dml"] == {"enable_graph_capture": "0", "device_index": "1"}


def test_what_a_killed_run_had_moved_aside_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert prepared(folder(tmp_path / "in"), out).exit_code == 0
    before = state(out)
    aside = FileSet(out, "genai_config.json").aside
    aside.mkdir()
    for name in ("genai_config.json", "model.onnx", "original"):
        (out / name).rename(aside / name)
    (aside / "old.json").write_text(json.dumps({"old": ["genai_config.json", "model.onnx", "original"], "new": {}}))
    with pytest.raises(OutputError, match="contains"):
        prepared(tmp_path / "in", out)
    assert state(out) == before


def test_the_result_is_proved_against_what_was_given(tmp_path: Path) -> None:
    record = api.genai_prepare(folder(tmp_path / "in"), out=tmp_path / "out", steps=2)
    checks = {str(verdict.check): verdict.outcome for verdict in record.verdicts if verdict.decides}
    assert record.exit_code == 0, record.error
    assert checks == {"load on cpu": "passed", "prompt on cpu": "passed", "steps on cpu": "passed"}
    assert record.facts.genai is not None
    proof = record.facts.genai.proof
    assert proof is not None
    assert (proof.original, proof.prepared) == (str(tmp_path / "in"), str(tmp_path / "out"))


@pytest.mark.parametrize("kind", ["listener", "viewer"])
def test_a_folder_of_several_models_is_prepared_and_proved(kind: str, tmp_path: Path) -> None:
    source = listener(tmp_path / "in", heard()) if kind == "listener" else viewer(tmp_path / "in", seen())
    record = api.genai_prepare(source, out=tmp_path / "out", steps=2)
    assert (record.exit_code, record.error) == (0, None)
    decided = {str(verdict.check): verdict.outcome for verdict in record.verdicts if verdict.decides}
    parts = {"listener": ("encoder on cpu",), "viewer": ("vision on cpu", "embedding on cpu")}[kind]
    assert set(decided) >= {"prompt on cpu", "steps on cpu", "types between the models", *parts}
    assert set(decided.values()) == {"passed"}
    model = config(tmp_path / "out")["model"]
    # Capture asks for one memory, which nobody says this decoder can have.
    assert model["decoder"]["session_options"]["provider_options"] == [{"dml": {"enable_graph_capture": "0"}}]
    written = [
        part["session_options"] for part in model.values() if isinstance(part, dict) and "session_options" in part
    ]
    assert all("dml" in options["provider_options"][0] for options in written)
    assert len(written) == 2
    assert "DP859" not in {one.code for one in api.genai_check(tmp_path / "out").findings}


@pytest.mark.parametrize("kind", ["decoder", "listener", "viewer"])
def test_each_model_is_opened_once_before_and_once_after_the_steps(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = {"decoder": folder, "listener": lambda path: listener(path, heard()), "viewer": lambda p: viewer(p, seen())}
    source = make[kind](tmp_path / "in")
    read, opened = Model.open, Counter[Path]()

    def counted(path: Path) -> Model:
        opened[path] += 1
        return read(path)

    monkeypatch.setattr(Model, "open", counted)
    assert api.genai_prepare(source, out=tmp_path / "out", steps=2).exit_code == 0
    assert set(opened.values()) == {1}
    assert Counter(path.name for path in opened) == {path.name: 2 for path in source.glob("*.onnx")}


def test_a_folder_whose_proof_cannot_cover_a_model_is_not_written(tmp_path: Path) -> None:
    source = viewer(tmp_path / "in", seen())
    document = config(source)
    del document["model"]["embedding"]
    (source / "genai_config.json").write_text(json.dumps(document), encoding="utf-8")
    record = api.genai_prepare(source, out=tmp_path / "out", steps=2)
    assert record.exit_code == 3
    assert "needs embeddings" in str(record.error)
    assert not (tmp_path / "out").exists()


def test_a_folder_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    for out, more in (("out", {}), ("both", {"fallback": "cpu"})):
        record = prepared(Path("in"), Path(out), **more)
        assert (record.exit_code, record.error) == (0, None)
    assert set(state(tmp_path / "out")) == {*state(tmp_path / "in"), "run.json"}
    before, cpu = state(tmp_path / "in"), state(tmp_path / "both" / "cpu")
    assert {name: cpu[name] for name in before if name != "genai_config.json"} == {
        name: digest for name, digest in before.items() if name != "genai_config.json"
    }


def test_a_model_with_the_name_of_the_record_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", data=False)
    (source / "model.onnx").rename(source / "run.json")
    edit(source, "model", "decoder", "filename", value="run.json")
    with pytest.raises(InputError, match="name of dmlprep"):
        prepared(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_number_of_thousands_of_digits_stays_as_it_is(tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    text = (source / "genai_config.json").read_text(encoding="utf-8")
    (source / "genai_config.json").write_text(text.replace("{", '{"x": ' + "9" * 5000 + ", ", 1), encoding="utf-8")
    assert prepared(source, tmp_path / "out").exit_code == 0
    assert "9" * 5000 in (tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8")


@needs_links
@pytest.mark.parametrize("name", ["vocab.txt", "sub/vocab.txt", "genai_config.json", "model.onnx"])
def test_a_link_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "in", data=False)
    elsewhere = tmp_path / "elsewhere"
    if (source / name).exists():
        (source / name).rename(elsewhere)
    else:
        elsewhere.write_text("secret")
        (source / name).parent.mkdir(exist_ok=True)
    (source / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match="is a link to a place outside the folder") as refused:
        prepared(source, tmp_path / "out")
    assert Path(refused.value.where) == source / name
    assert not (tmp_path / "out").exists()


@needs_links
def test_a_link_to_itself_is_left_out(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", data=False)
    (source / "loop").symlink_to("loop")
    assert api.genai_check(source).exit_code == api.genai_check(folder(tmp_path / "plain", data=False)).exit_code
    assert prepared(source, tmp_path / "out").exit_code == 0
    assert "loop" not in state(tmp_path / "out")


@needs_links
def test_a_snapshot_in_the_cache_of_hugging_face_is_prepared(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    source = folder(repository / "snapshots" / "0123abc", data=False)
    (repository / "blobs").mkdir()
    for file in [path for path in source.rglob("*") if path.is_file()]:
        content = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(content)
        file.symlink_to(os.path.relpath(content, file.parent))
    assert prepared(source, tmp_path / "out").exit_code == 0
    assert set(state(tmp_path / "out")) == {*state(source), "run.json"}


def _record_names(out: Path, name: str, sha: str) -> None:
    record = json.loads((out / "run.json").read_bytes())
    record["facts"]["genai"]["written"][name] = sha
    (out / "run.json").write_text(json.dumps(record), encoding="utf-8")


def test_files_of_the_user_that_a_record_names_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = folder(tmp_path / "in")
    assert prepared(source, out).exit_code == 0
    (out / ".git" / "refs").mkdir(parents=True)
    (out / ".git" / "HEAD").write_text("mine")
    (out / "notes.txt").write_text("mine")
    (out / "old.txt").write_text("old")
    _record_names(out, ".git/HEAD", "0" * 64)
    _record_names(out, "notes.txt", "0" * 64)
    _record_names(out, "../in/model.onnx", "0" * 64)
    _record_names(out, "old.txt", hashlib.sha256(b"old").hexdigest())
    assert prepared(source, out, force=True).exit_code == 0
    assert (out / ".git" / "HEAD").read_text() == (out / "notes.txt").read_text() == "mine"
    assert not (out / "old.txt").exists()


@pytest.mark.parametrize("change", ["more", "other"])
def test_a_folder_of_a_provider_that_the_user_changed_is_not_replaced(change: str, tmp_path: Path) -> None:
    out, source = tmp_path / "out", folder(tmp_path / "in")
    assert prepared(source, out, fallback="cpu").exit_code == 0
    assert prepared(source, out, fallback="cpu", force=True).exit_code == 0
    (out / "dml" / ("notes.txt" if change == "more" else "genai_config.json")).write_text("mine")
    before = state(out)
    with pytest.raises(OutputError, match="it was changed since") as refused:
        prepared(source, out, fallback="cpu", force=True)
    assert Path(refused.value.where) == out / "dml"
    assert prepared(source, out, force=True).exit_code == 0  # makes no folder "dml": it stays, and "cpu" goes
    after = state(out)
    assert {name: after.get(name) for name in before if name.startswith("dml/")} == {
        name: sha for name, sha in before.items() if name.startswith("dml/")
    }
    assert not (out / "cpu").exists()


def test_what_appears_in_the_folder_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"

    class Late(Observer):
        def saving(self, done: int, total: int) -> None:
            (out / "genai_config.json").write_text("mine")

    with pytest.raises(OutputError, match="the file exists"):
        prepared(folder(tmp_path / "in"), out, observer=Late())
    assert [p.name for p in out.iterdir()] == ["genai_config.json"]
    assert (out / "genai_config.json").read_text() == "mine"
