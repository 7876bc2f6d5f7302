"""The engine for onnxruntime-genai: with the package where it is installed, and with one that is made up."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dmlprep.core.errors import CheckNotRun
from dmlprep.runtime import SessionFailure
from dmlprep.runtime.tools import genai_process
from dmlprep.runtime.tools import onnxruntime_genai as engine
from tests.genai.proof.decoders import Weights, folder, grouped, logits_of

PROMPT = [3, 17, 40, 9, 61]


def test_it_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "installed_versions", lambda names: {})
    assert "dmlprep[genai]" in engine.missing("cpu")
    with pytest.raises(CheckNotRun, match="not installed"):
        engine.generate(tmp_path, "cpu", PROMPT, 4)


def test_packages_without_directml_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    monkeypatch.setattr(engine, "installed_versions", lambda names: {"onnxruntime-genai": "0.18.0"})
    assert engine.missing("cpu") == ""
    assert "onnxruntime-genai has no DirectML" in engine.missing("dml")
    monkeypatch.setattr(engine, "installed_versions", lambda names: {"onnxruntime-genai-winml": "0.18.0"})
    assert engine.missing("dml") == ""


class _Made(ModuleType):
    """The part of onnxruntime-genai that is called, which counts up from the last token."""

    __version__ = "0.0"

    def __init__(self) -> None:
        super().__init__("onnxruntime_genai")
        self.called: list[Any] = []
        made = self

        class Config:
            def __init__(self, folder: str) -> None:
                made.called.append(folder)

            def clear_providers(self) -> None:
                made.called.append("clear")

            def append_provider(self, name: str) -> None:
                made.called.append(name)

        class Params:
            def __init__(self, model: object) -> None:
                self.options: dict[str, Any] = {}

            def set_search_options(self, **options: Any) -> None:
                made.called.append(options)
                self.options = options

        class Generator:
            def __init__(self, model: object, params: Params) -> None:
                self.tokens: list[int] = []
                self.most = params.options["max_length"]

            def append_tokens(self, tokens: list[int]) -> None:
                self.tokens += tokens

            def is_done(self) -> bool:
                return len(self.tokens) >= self.most

            def generate_next_token(self) -> None:
                self.tokens.append(self.tokens[-1] + 1)

            def get_sequence(self, index: int) -> list[int]:
                return self.tokens

        self.Config, self.GeneratorParams, self.Generator = Config, Params, Generator
        self.Model = lambda config: SimpleNamespace()


def test_what_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _Made()
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", made)
    assert genai_process.generate("somewhere", "dml", 3, [7, 8]) == [["version", "0.0"], ["tokens", "9", "10", "11"]]
    assert made.called[:3] == ["somewhere", "clear", "dml"]
    options = made.called[3]
    assert (options["do_sample"], options["num_beams"]) == (False, 1)
    # An end of the text does not end it.
    assert options["min_length"] == options["max_length"] == 5


needed = pytest.mark.skipif(find_spec("onnxruntime_genai") is None, reason="onnxruntime-genai is not installed")


@needed
def test_it_writes_what_the_logits_say(tmp_path: Path) -> None:
    weights = Weights.made()
    path = folder(tmp_path / "it", grouped(weights), shared=True)
    tokens, version = engine.generate(path, "cpu", PROMPT, 8)
    expected = list(PROMPT)
    for _ in range(8):
        expected.append(int(logits_of(weights, expected)[-1].argmax()))
    assert tokens == expected[len(PROMPT) :]
    assert version


@needed
def test_a_folder_that_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(SessionFailure, match=r"genai_config\.json"):
        engine.generate(tmp_path, "cpu", PROMPT, 8)
