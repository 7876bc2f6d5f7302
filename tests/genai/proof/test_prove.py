"""A prepared folder against its original, on small decoders of which one function is written in two ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.core.errors import InputError, UsageError
from dmlprep.record import Check
from dmlprep.record.generation import GenaiProof
from tests.genai.proof.decoders import VOCABULARY, Weights, folder, grouped, plain

PROMPT = [3, 17, 40, 9, 61]


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights.made()


@pytest.fixture(scope="module")
def original(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("original") / "it", grouped(weights), shared=True)


def compared(original: Path, prepared: Path, **more: Any) -> GenaiProof:
    return dmlprep.genai_compare(original, prepared, **{"prompts": [PROMPT], "steps": 4, "genai": False, **more})


def outcomes(proof: GenaiProof) -> dict[str, str]:
    return {str(verdict.check): verdict.outcome for verdict in proof.verdicts}


def test_half_precision_passes_and_says_how_far_it_is(original: Path, weights: Weights, tmp_path: Path) -> None:
    proof = compared(original, folder(tmp_path / "half", grouped(weights, "float16"), shared=True))
    assert outcomes(proof) == dict.fromkeys(("prompt on cpu", "steps on cpu", "greedy text on cpu"), "passed")
    assert (proof.outcome, proof.exit_code, proof.inputs, proof.prompts) == ("passed", 0, "given", [5])
    prompt, steps, greedy = proof.checks
    assert prompt.logits is not None
    assert steps.logits is not None
    assert greedy.greedy is not None
    assert (prompt.logits.positions, steps.logits.positions) == (5, 4)
    assert 0 < prompt.logits.kl < 1e-4
    assert prompt.logits.information > 0.5
    assert greedy.greedy.equal == 5
    assert steps.cache is not None
    assert steps.cache < 0.1
    assert "fp16" in prompt.verdict.tolerance


def test_a_cache_that_grows_against_one_that_is_shared(original: Path, weights: Weights, tmp_path: Path) -> None:
    """Two graphs, two kinds of cache, one function: FP32's own bounds hold."""
    proof = compared(folder(tmp_path / "plain", plain(weights), shared=False), original)
    assert proof.outcome == "passed"
    assert "fp32" in proof.verdicts[0].tolerance


def test_prompts_are_made_where_none_is_given(original: Path) -> None:
    proof = compared(original, original, prompts=[])
    assert (proof.outcome, proof.inputs, proof.prompts) == ("passed", "seeded", [12])


def test_another_layer_fails(original: Path, weights: Weights, tmp_path: Path) -> None:
    proof = compared(original, folder(tmp_path / "broken", grouped(weights.changed("o1"), "float16"), shared=True))
    assert proof.outcome == "failed"
    assert proof.exit_code == 1
    assert {found.code for verdict in proof.verdicts for found in verdict.findings} >= {"DP880"}
    assert "KL divergence" in proof.reason


def test_what_is_not_finite_fails(original: Path, weights: Weights, tmp_path: Path) -> None:
    wild = {**weights.values, "head": weights.values["head"] * np.float32(30000)}
    with np.errstate(over="ignore"):
        prepared = folder(tmp_path / "wild", grouped(Weights(wild), "float16"), shared=True)
    proof = compared(original, prepared)
    assert proof.outcome == "failed"
    assert "NaN or infinite" in proof.reason
    assert {found.code for found in proof.verdicts[0].findings} == {"DP702"}


def test_an_original_that_is_not_finite_proves_nothing(original: Path, weights: Weights, tmp_path: Path) -> None:
    wild = {**weights.values, "head": weights.values["head"] * np.float32(np.nan)}
    proof = compared(folder(tmp_path / "wild", grouped(Weights(wild)), shared=True), original)
    assert proof.outcome == "not-proven"
    assert proof.exit_code == 3


def test_flat_logits_prove_nothing(weights: Weights, tmp_path: Path) -> None:
    flat = {**weights.values, "head": np.zeros_like(weights.values["head"])}
    path = folder(tmp_path / "flat", grouped(Weights(flat)), shared=True)
    proof = compared(path, path)
    assert proof.outcome == "not-proven"
    assert "equally likely" in proof.reason


def test_a_prepared_folder_that_does_not_load_fails(original: Path, weights: Weights, tmp_path: Path) -> None:
    model = grouped(weights)
    model.graph.node[-1].op_type = "NoSuchOperator"
    model.graph.node[-1].domain = "com.microsoft"
    proof = compared(original, folder(tmp_path / "odd", model, shared=True))
    assert outcomes(proof) == {"decoder on cpu": "failed"}
    assert "does not run" in proof.reason


def test_an_original_that_does_not_load_is_not_run(original: Path, weights: Weights, tmp_path: Path) -> None:
    model = grouped(weights)
    model.graph.node[-1].op_type = "NoSuchOperator"
    model.graph.node[-1].domain = "com.microsoft"
    proof = compared(folder(tmp_path / "odd", model, shared=True), original)
    assert (proof.outcome, proof.exit_code) == ("not-run", 3)
    assert "cannot be compared" in proof.reason


def test_a_decoder_of_an_opset_that_is_too_new_here_is_not_run(
    original: Path, weights: Weights, tmp_path: Path
) -> None:
    model, beyond = grouped(weights), onnx.defs.onnx_opset_version() + 1
    next(one for one in model.opset_import if not one.domain).version = beyond
    proof = compared(original, folder(tmp_path / "new", model, shared=True))
    assert (proof.outcome, proof.exit_code) == ("not-run", 3)
    assert f"the candidate is of opset {beyond}: install a newer one" in proof.reason


def test_another_vocabulary_fails(original: Path, weights: Weights, tmp_path: Path) -> None:
    few = {**weights.values, "head": weights.values["head"][:, :50]}
    proof = compared(original, folder(tmp_path / "few", grouped(Weights(few)), shared=True))
    assert proof.outcome == "failed"
    assert "50 tokens" in proof.reason


def edited(path: Path, target: Path, change: Any) -> Path:
    """The folder with another config."""
    target.mkdir()
    (target / "model.onnx").write_bytes((path / "model.onnx").read_bytes())
    config = json.loads((path / "genai_config.json").read_text(encoding="utf-8"))
    change(config)
    (target / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


def test_sizes_of_strangers_do_not_allocate(original: Path, tmp_path: Path) -> None:
    def large(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["head_size"] = 1 << 30
        config["model"]["decoder"]["num_key_value_heads"] = 1 << 20

    # The session's own sizes count; the config's stand in for those that the model leaves open.
    proof = compared(original, edited(original, tmp_path / "large", large))
    assert proof.outcome == "passed"

    def wide(config: dict[str, Any]) -> None:
        config["model"]["vocab_size"] = 1 << 30

    with pytest.raises(UsageError, match="fit into"):
        compared(edited(original, tmp_path / "wide", wide), original)


def test_other_kinds_of_folders_are_not_run(original: Path, tmp_path: Path) -> None:
    def vision(config: dict[str, Any]) -> None:
        config["model"]["vision"] = {"filename": "vision.onnx"}

    proof = compared(original, edited(original, tmp_path / "vision", vision))
    assert proof.outcome == "not-run"
    assert "vision" in proof.reason

    def renamed(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["inputs"]["past_key_names"] = "nothing.%d"
        config["model"]["decoder"]["inputs"]["past_value_names"] = "nothing.%d"

    proof = compared(original, edited(original, tmp_path / "renamed", renamed))
    assert proof.outcome == "not-run"
    assert "nothing.%d" in proof.reason


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"prompts": [[1, VOCABULARY]]}, "beyond the vocabulary"),
        ({"prompts": [[]]}, "0 tokens"),
        ({"steps": 0}, "steps"),
        ({"steps": 62}, "at most 64 tokens"),
        ({"tolerance": "fp8"}, "unknown tolerance"),
        ({"text_tokens": 1}, "tokens of text"),
    ],
)
def test_requests_that_cannot_be(original: Path, more: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        compared(original, original, **more)


WORDS = {f"w{i}": i for i in range(VOCABULARY)}


@pytest.fixture(scope="module")
def spoken(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The original with a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    target = edited(original, tmp_path_factory.mktemp("spoken") / "it", lambda config: None)
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(target / "tokenizer.json"))
    return target


def test_perplexity_on_a_text_of_the_user(spoken: Path, weights: Weights, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    words = np.random.default_rng(5).integers(0, VOCABULARY, 200)
    text.write_text(" ".join(f"w{word}" for word in words), encoding="utf-8")
    half = folder(tmp_path / "half", grouped(weights, "float16"), shared=True)
    (half / "tokenizer.json").write_bytes((spoken / "tokenizer.json").read_bytes())
    proof = compared(spoken, half, prompts=["w3 w17 w40"], text=text, text_tokens=150)
    assert proof.outcome == "passed"
    assert proof.prompts == [3]
    check = next(one for one in proof.checks if one.verdict.check == Check("text", "cpu"))
    assert check.perplexity is not None
    assert check.logits is not None
    # 64 tokens fit into the context: windows of 64, 64 and 22, of each the first token is given.
    assert (check.perplexity.tokens, check.logits.positions) == (147, 147)
    assert abs(check.perplexity.ratio - 1) < 1e-2
    greedy = next(one.greedy for one in proof.checks if one.greedy is not None)
    assert greedy.original_text.startswith("w")
    assert greedy.original_text == greedy.prepared_text


def test_texts_that_cannot_be_read(spoken: Path, original: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        compared(original, original, prompts=["a text"])
    with pytest.raises(InputError):
        compared(spoken, spoken, text=tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="no text"):
        compared(spoken, spoken, text=tmp_path / "empty.txt")


@pytest.mark.dml
def test_a_shared_cache_on_directml(original: Path, weights: Weights, tmp_path: Path) -> None:
    proof = compared(original, folder(tmp_path / "half", grouped(weights, "float16"), shared=True), device="dml")
    assert (proof.outcome, proof.reason) == ("passed", "")
    found = outcomes(proof)
    assert found["prompt on dml"] == found["steps on dml"] == found["same weights on dml"] == "passed"
    assert not any(verdict.decides for verdict in proof.verdicts if verdict.check.provider == "cpu")


@pytest.mark.dml
def test_a_cache_that_is_not_read_is_named_on_directml(original: Path, weights: Weights, tmp_path: Path) -> None:
    """GroupQueryAttention of DirectML reads the memory of the present (DP649)."""
    half = grouped(weights, "float16")
    proof = compared(original, folder(tmp_path / "half", half, shared=False), device="dml", steps=2)
    found = outcomes(proof)
    assert "decoder on dml" not in found, proof.reason
    assert (found["prompt on dml"], found["steps on dml"], found["steps on cpu"]) == ("passed", "failed", "passed")
    assert "DP884" in {one.code for verdict in proof.verdicts for one in verdict.findings}
    assert proof.exit_code == 1


@pytest.mark.dml
def test_a_cache_that_grows_on_directml(weights: Weights, tmp_path: Path) -> None:
    path = folder(tmp_path / "plain", plain(weights), shared=False)
    proof = compared(path, path, device="dml", steps=2)
    assert (proof.outcome, proof.reason) == ("passed", "")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('"session_options": {"custom_ops_library": "evil.so"}', "custom_ops_library"),
        ('"session_options": {"enable_profiling": "/tmp/times"}', "enable_profiling"),
        ('"session_options": {"custom_ops_library": "evil.so"}, "session_options": {}', "twice"),
    ],
)
def test_no_library_or_file_of_a_config_reaches_onnxruntime_genai(
    text: str, named: str, original: Path, weights: Weights, tmp_path: Path
) -> None:
    prepared = folder(tmp_path / "it", grouped(weights), shared=True)
    config = json.loads((prepared / "genai_config.json").read_text(encoding="utf-8"))
    config["model"]["decoder"].pop("session_options", None)
    plain = json.dumps(config)
    (prepared / "genai_config.json").write_text(
        plain.replace('"decoder": {', f'"decoder": {{{text}, ', 1), encoding="utf-8"
    )
    proof = compared(original, prepared, genai=True)
    (verdict,) = (one for one in proof.verdicts if one.check.measure == "onnxruntime-genai")
    assert verdict.outcome == "not-run"
    assert named in verdict.reason
