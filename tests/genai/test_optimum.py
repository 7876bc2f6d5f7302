"""A folder of transformers.js: what its page tells a reader to type prepares it, and the result is the same decoder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

import dmlprep
from dmlprep.cli.main import cli
from dmlprep.core.errors import InputError
from dmlprep.record import RunRecord
from tests.genai.optimum import HEADS, SIZE, WIDTH, write_folder

PAGE = Path(__file__).parents[2] / "docs" / "transformers-js.md"
Array = np.ndarray[Any, Any]


def _commands() -> list[list[str]]:
    lines = re.findall(r"^\$ (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line) for line in lines if line.startswith("dmlprep ")]


def _feed(tokens: list[int], past: Mapping[str, Array] | None) -> dict[str, Array]:
    empty = np.zeros((1, HEADS, 0, SIZE), np.float32)
    names = [f"0.{kind}.{part}" for kind in ("decoder", "encoder") for part in ("key", "value")]
    caches = {f"past_key_values.{name}": past[f"present.{name}"] if past else empty for name in names}
    states = np.random.default_rng(1).standard_normal((1, 5, WIDTH)).astype(np.float32)
    flag = np.array([past is not None])
    mask = np.ones((1, caches["past_key_values.0.decoder.key"].shape[2] + len(tokens)), np.int64)
    ids = {"input_ids": np.array([tokens]), "attention_mask": mask}
    return {**ids, "encoder_hidden_states": states, "use_cache_branch": flag, **caches}


def _logits(path: Path) -> list[Array]:
    """The logits after a prompt, and after each of two more tokens with the cache, as transformers.js feeds them."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    first = dict(zip(names, session.run(None, _feed([3, 4, 5], None)), strict=True))
    past, logits = first, [first["logits"][0, -1]]
    for token in (6, 7):
        step = dict(zip(names, session.run(None, _feed([token], past)), strict=True))
        logits.append(step["logits"][0, -1])
        past = {**step, **{name: first[name] for name in names if ".encoder." in name}}
    return logits


@pytest.mark.parametrize("device", ["cpu", pytest.param("dml", marks=pytest.mark.dml)])
def test_the_commands_of_the_page(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "whisper")
    monkeypatch.chdir(tmp_path)
    commands = _commands()
    assert len(commands) == 3
    for words in commands:
        words[words.index("--device") + 1] = device
        assert CliRunner().invoke(cli, words[1:], standalone_mode=False).return_value == 0
        result = Path(words[words.index("-o") + 1])
        record = RunRecord.from_json(result.with_suffix(".run.json").read_bytes())
        assert device in {one.check.provider for one in record.verdicts if one.outcome == "passed"}
    made, given = (_logits(Path(name, "onnx", file)) for name, file in (
        ("whisper-dml", "decoder_model_merged_fp16.onnx"), ("whisper", "decoder_model_merged.onnx")
    ))  # fmt: skip
    for one, other in zip(made, given, strict=True):
        assert np.abs(one - other).max() < 0.02 * np.abs(other).max()
    assert np.abs(given[1] - given[2]).max() > 1


@pytest.mark.parametrize(
    "command", [dmlprep.genai_check, lambda path: dmlprep.genai_prepare(path, out=path.with_name("out"))]
)
def test_the_error_names_the_command_and_the_page(command: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "whisper")
    with pytest.raises(InputError) as caught:
        command(folder)
    assert caught.value.code == "DP840"
    assert f"dmlprep prepare {folder / 'onnx' / 'decoder_model_merged.onnx'}" in caught.value.fix
    assert PAGE.name in caught.value.fix
    shutil.copyfile(folder / "config.json", folder / "model.safetensors")  # then genai's builder has weights to read
    with pytest.raises(InputError, match=r"genai_config\.json"):
        dmlprep.genai_check(folder)
