"""Folders of several models against their originals: each model by itself, and the decoder on what the others give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import dmlprep
from dmlprep.genai import open_folder
from dmlprep.genai.proof.made_inputs import made_feeds
from dmlprep.graph.model import Model
from dmlprep.record.generation import GenaiProof
from tests.genai.proof.decoders import Weights, plain
from tests.genai.proof.ensembles import (
    FRAMES,
    PICTURE,
    embedding,
    encoder,
    heard,
    listener,
    seen,
    translator,
    viewer,
    vision,
)

DECODER = ("prompt on cpu", "steps on cpu", "greedy text on cpu")
TYPES = "types between the models"
FOLDERS: dict[str, tuple[Callable[..., Path], Callable[[], Weights], tuple[str, ...]]] = {
    "listener": (listener, heard, ("encoder on cpu",)),
    "viewer": (viewer, seen, ("vision on cpu", "embedding on cpu")),
    "translator": (translator, heard, ("encoder on cpu",)),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("originals")
    return {name: write(top / name, weights()) for name, (write, weights, _) in FOLDERS.items()}


def compared(original: Path, prepared: Path, **more: Any) -> GenaiProof:
    return dmlprep.genai_compare(original, prepared, **{"steps": 4, "genai": False, **more})


def outcomes(proof: GenaiProof) -> dict[str, str]:
    return {str(verdict.check): verdict.outcome for verdict in proof.verdicts}


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    file = folder / "genai_config.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    change(document["model"])
    file.write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", FOLDERS)
def test_half_precision_passes_in_every_model(kind: str, originals: dict[str, Path], tmp_path: Path) -> None:
    write, weights, parts = FOLDERS[kind]
    proof = compared(originals[kind], write(tmp_path / "half", weights(), "float16"))
    assert outcomes(proof) == dict.fromkeys((*DECODER, TYPES, *parts), "passed"), proof.reason
    assert (proof.outcome, proof.exit_code) == ("passed", 0)
    made = [verdict for verdict in proof.verdicts if str(verdict.check) in parts]
    assert all(verdict.on_made_inputs and verdict.decides and "fp16" in verdict.tolerance for verdict in made)


@pytest.mark.parametrize(
    ("kind", "weight", "failing"),
    [
        ("listener", "mix", "encoder on cpu"),
        ("listener", "cross_q1", "steps on cpu"),
        ("listener", "cross_o0", "prompt on cpu"),
        ("viewer", "patches", "vision on cpu"),
        ("viewer", "embed", "embedding on cpu"),
        ("translator", "cross_q0", "prompt on cpu"),
        ("translator", "cross_o0", "steps on cpu"),
    ],
)
def test_another_weight_in_any_model_fails(
    kind: str, weight: str, failing: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    write, weights, _ = FOLDERS[kind]
    proof = compared(originals[kind], write(tmp_path / "broken", weights().changed(weight), "float16"))
    assert (proof.outcome, proof.exit_code) == ("failed", 1)
    assert outcomes(proof)[failing] == "failed"


def test_embeddings_that_leave_out_pictures_fail(originals: dict[str, Path], tmp_path: Path) -> None:
    """It is right on every text, so that only tokens that stand for pictures can tell."""
    prepared = viewer(tmp_path / "blind", seen(), embedding=embedding(seen(), heeds=False))
    found = outcomes(compared(originals["viewer"], prepared))
    assert {name for name, outcome in found.items() if outcome == "failed"} == {"embedding on cpu"}


def test_pictures_that_no_made_tokens_reach_are_not_run(tmp_path: Path) -> None:
    path = viewer(tmp_path / "blind", seen(), embedding=embedding(seen(), heeds=False))
    proof = compared(path, path)
    assert (proof.outcome, proof.exit_code) == ("not-run", 3)
    assert "image_features change the original" in proof.reason
    assert [name for name, outcome in outcomes(proof).items() if outcome != "passed"] == ["embedding on cpu"]


def test_the_token_of_a_picture_is_read_from_the_graph_too(tmp_path: Path) -> None:
    path = edit(viewer(tmp_path / "it", seen()), lambda model: model.pop("image_token_id"))
    assert compared(path, path).outcome == "passed"


def test_a_decoder_without_its_embeddings_is_not_run(tmp_path: Path) -> None:
    path = edit(viewer(tmp_path / "it", seen()), lambda model: model.pop("embedding"))
    proof = compared(path, path)
    assert outcomes(proof) == {"decoder on cpu": "not-run", "vision on cpu": "passed"}
    assert proof.exit_code == 3
    assert "needs embeddings" in proof.reason


def test_stages_of_a_decoder_are_compared_and_their_logits_are_not_run(tmp_path: Path) -> None:
    def staged(model: dict[str, Any]) -> None:
        decoder = model["decoder"]
        stage = {"filename": "vision.onnx", "inputs": ["pixel_values"], "outputs": ["image_features"]}
        other = {"filename": "decoder.onnx", "inputs": list(decoder["inputs"].values()), "outputs": ["logits"]}
        model["decoder"] = {**decoder, "pipeline": [{"first": stage, "second": other}]}
        del model["vision"], model["embedding"]

    path = edit(viewer(tmp_path / "it", seen()), staged)
    proof = compared(path, path)
    stages = dict.fromkeys(("decoder.pipeline.first on cpu", "decoder.pipeline.second on cpu"), "passed")
    assert outcomes(proof) == {"decoder on cpu": "not-run", **stages}
    assert proof.exit_code == 3
    assert "pipeline of stages" in proof.reason


def test_a_model_that_one_folder_alone_has_is_not_run(originals: dict[str, Path], tmp_path: Path) -> None:
    other = edit(viewer(tmp_path / "it", seen()), lambda model: model.pop("vision"))
    for pair in ((originals["viewer"], other), (other, originals["viewer"])):
        proof = compared(*pair)
        assert (proof.outcome, proof.exit_code) == ("not-run", 3)
        assert "has a model for vision" in proof.reason


def test_a_model_that_is_named_elsewhere_is_not_run(originals: dict[str, Path], tmp_path: Path) -> None:
    def more(model: dict[str, Any]) -> None:
        model["audio_output"] = {"depthformer": {"filename": "depthformer.onnx"}}

    proof = compared(originals["translator"], edit(translator(tmp_path / "it", heard()), more))
    assert proof.outcome == "passed"  # it is the original's models that count
    proof = compared(tmp_path / "it", tmp_path / "it")
    assert (proof.outcome, proof.exit_code) == ("not-run", 3)
    assert "model.audio_output.depthformer.filename names depthformer.onnx" in proof.reason


def test_an_original_encoder_that_does_not_run_is_not_run(tmp_path: Path) -> None:
    wrong = encoder(heard())
    wrong.graph.node[-1].op_type, wrong.graph.node[-1].domain = "NoSuchOperator", "com.microsoft"
    path = listener(tmp_path / "odd", heard(), encoder=wrong)
    proof = compared(path, path)
    assert outcomes(proof) == {"decoder on cpu": "not-run", TYPES: "passed", "encoder on cpu": "not-run"}
    assert "encoder.onnx does not load" in proof.reason


def test_models_that_no_longer_fit_one_another_fail(originals: dict[str, Path], tmp_path: Path) -> None:
    """Each passes by itself; onnxruntime-genai would hand FP32 to an input of FP16."""
    weights = heard()
    own = Weights({name: array for name, array in weights.values.items() if name[:7] not in ("cross_k", "cross_v")})
    half = plain(Weights({n: a for n, a in own.values.items() if n not in ("listen", "mix")}), "float16", frames=FRAMES)
    proof = compared(originals["listener"], listener(tmp_path / "mixed", weights, decoder=half))
    assert {name for name, outcome in outcomes(proof).items() if outcome == "failed"} == {TYPES}
    assert "present_key_cross_0 of encoder" in proof.reason


def test_a_prepared_model_with_other_inputs_fails(originals: dict[str, Path], tmp_path: Path) -> None:
    other = vision(seen())
    other.graph.input[0].name = other.graph.node[0].input[0] = "pictures"
    proof = compared(originals["viewer"], viewer(tmp_path / "other", seen(), vision=other))
    assert outcomes(proof)["vision on cpu"] == "failed"
    assert "does not accept the original's inputs" in proof.reason


def test_positions_of_three_kinds(tmp_path: Path) -> None:
    """As Qwen's vision models take them."""
    weights = Weights({name: array for name, array in seen().values.items() if name not in ("patches", "project")})
    decoder = plain(weights, embeds=True, kinds=3)
    path = viewer(tmp_path / "it", seen(), decoder=decoder)
    assert compared(path, path).outcome == "passed"


def _feed(folder: Path, name: str, section: str) -> dict[str, list[int]]:
    feeds = made_feeds(open_folder(folder), section, Model.open(folder / name))
    return {key: list(array.shape) for key, array in feeds[0].items()}


def test_pictures_have_the_sizes_of_the_processor(originals: dict[str, Path]) -> None:
    folder = originals["viewer"]
    assert _feed(folder, "vision.onnx", "vision") == {"pixel_values": [1, 3, PICTURE, 2 * PICTURE]}


def _graph(folder: Path, text: str) -> Path:
    head = '<ir_version: 8, opset_import: ["": 17]> g '
    onnx.save(onnx.parser.parse_model(head + text), folder / "own.onnx")
    return folder


def test_sound_has_the_sizes_of_the_processor(tmp_path: Path) -> None:
    folder = _graph(
        listener(tmp_path / "it", heard()),
        "(float[batch, num_mels, num_frames] audio_features) => (float[batch, num_mels, num_frames] y)"
        " { y = Tanh(audio_features) }",
    )
    steps = [{"operation": {"type": "LogMelSpectrum", "attrs": {"chunk_size": 3, "hop_length": 160, "n_mel": 80}}}]
    (folder / "audio_processor_config.json").write_text(json.dumps({"feature_extraction": {"sequence": steps}}))
    assert _feed(folder, "own.onnx", "encoder") == {"audio_features": [1, 80, 300]}


def test_patches_fit_their_grid_and_crops_their_picture(tmp_path: Path) -> None:
    folder = _graph(
        viewer(tmp_path / "it", seen()),
        "(float[patches, 12] pixel_values, int64[num_images, 3] image_grid_thw) =>"
        " (float[patches, 12] y, int64[num_images, 3] z)"
        " { y = Tanh(pixel_values)\n z = Identity(image_grid_thw) }",
    )
    feed = made_feeds(open_folder(folder), "vision", Model.open(folder / "own.onnx"))[0]
    assert feed["image_grid_thw"].tolist() == [[1, 4, 4]]
    assert feed["pixel_values"].shape == (16, 12)
    _graph(
        folder,
        "(float[num_images, max_num_crops, 3, height, width] pixel_values, int64[num_images, 2] image_sizes) =>"
        " (float[num_images, max_num_crops, 3, height, width] y, int64[num_images, 2] z)"
        " { y = Tanh(pixel_values)\n z = Identity(image_sizes) }",
    )
    feed = made_feeds(open_folder(folder), "vision", Model.open(folder / "own.onnx"))[0]
    assert feed["pixel_values"].shape == (1, 2, 3, 336, 336)
    assert feed["image_sizes"].tolist() == [[336, 336]]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"height": 1e400, "width": -5}', "\xff", '{"a": {"height": 70000}}'])
def test_a_processor_that_says_nothing_is_no_error(text: str, originals: dict[str, Path], tmp_path: Path) -> None:
    folder = viewer(tmp_path / "it", seen())
    (folder / "processor_config.json").write_bytes(text.encode("latin-1"))
    assert _feed(folder, "vision.onnx", "vision") == {"pixel_values": [1, 3, 64, 64]}


@pytest.mark.dml
@pytest.mark.parametrize("kind", ["listener", "viewer"])
def test_every_model_on_directml(kind: str, originals: dict[str, Path], tmp_path: Path) -> None:
    write, weights, parts = FOLDERS[kind]
    proof = compared(originals[kind], write(tmp_path / "half", weights(), "float16"), device="dml", steps=2)
    assert (proof.outcome, proof.reason) == ("passed", "")
    found = outcomes(proof)
    for part in parts:
        assert found[part] == found[part.replace("cpu", "dml")] == "passed"
        assert [verdict.decides for verdict in proof.verdicts if str(verdict.check) == part] == [False]
    assert found["steps on dml"] == "passed"
