"""Values that stay with a session from one step to the next, bound as one memory or grown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlprep.runtime import CarriedValue, Session, SessionFailure, SessionOptions, open_cpu, open_dml
from tests.genai.proof.decoders import GROUPS, LAYERS, SIZE, Weights, grouped, logits_of, plain

TOKENS = [3, 17, 40, 9, 61, 28]
Open = Callable[[Path], Session]

ON = [
    pytest.param(open_cpu, id="cpu"),
    pytest.param(open_dml, id="dml", marks=pytest.mark.dml),
]


def kept(tokens: int, dtype: str = "float32") -> list[CarriedValue]:
    return [
        CarriedValue(f"past_key_values.{layer}.{what}", f"present.{layer}.{what}", dtype, (1, GROUPS, tokens, SIZE))
        for layer in range(LAYERS)
        for what in ("key", "value")
    ]


def feeds(session: Session, tokens: list[int], past: int) -> dict[str, np.ndarray]:
    total = past + len(tokens)
    found: dict[str, Any] = {"input_ids": [tokens], "attention_mask": [[1] * total]}
    if any(value.name == "position_ids" for value in session.inputs):
        found["position_ids"] = [list(range(past, total))]
    return {name: np.array(value, np.int64) for name, value in found.items()}


def stepped(session: Session) -> np.ndarray:
    """Three tokens at once, then one by one."""
    rows = [session.step(feeds(session, TOKENS[:3], 0), ["logits"])["logits"][0]]
    for place in range(3, len(TOKENS)):
        rows.append(session.step(feeds(session, TOKENS[place : place + 1], place), ["logits"])["logits"][0])
    return np.concatenate(rows)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights.made(3)


@pytest.mark.parametrize("opened", ON)
def test_a_cache_that_is_one_memory(opened: Open, weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(grouped(weights).SerializeToString())
    with opened(path) as session:
        session.hold(kept(8), shared=True)
        session.step(feeds(session, [5] * 8, 0), ["logits"])  # whatever the memory held is gone
        found = stepped(session)
        again = stepped(session)
    assert np.abs(found - logits_of(weights, TOKENS)).max() < 1e-3
    assert np.array_equal(found, again)


@pytest.mark.parametrize("opened", ON)
def test_a_cache_that_grows(opened: Open, weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(plain(weights).SerializeToString())
    with opened(path) as session:
        session.hold(kept(0), shared=False)
        found = stepped(session)
    assert np.abs(found - logits_of(weights, TOKENS)).max() < 1e-3


@pytest.mark.parametrize("opened", ON)
def test_what_is_refused(opened: Open, weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(grouped(weights).SerializeToString())
    with opened(path) as session, pytest.raises(SessionFailure, match="nothing is held"):
        session.step(feeds(session, [1], 0), ["logits"])


@pytest.mark.parametrize("opened", ON)
def test_a_cache_of_a_wrong_shape_is_refused_and_the_next_one_works(
    opened: Open, weights: Weights, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(grouped(weights).SerializeToString())
    with opened(path) as session:
        wrong = [CarriedValue(one.input, one.output, one.dtype, (1, GROUPS + 1, 8, SIZE)) for one in kept(8)]
        session.hold(wrong, shared=True)
        with pytest.raises(SessionFailure):
            session.step(feeds(session, [1], 0), ["logits"])
        session.hold(kept(8), shared=True)
        assert session.step(feeds(session, [1], 0), ["logits"])["logits"].shape == (1, 1, 96)


def test_a_cache_beyond_the_memory_is_refused(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(grouped(weights).SerializeToString())
    with open_cpu(path, SessionOptions(memory_limit=2 << 30)) as session, pytest.raises(SessionFailure):
        session.hold(kept(1 << 50), shared=True)
