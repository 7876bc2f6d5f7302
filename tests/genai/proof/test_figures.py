"""Figures of logits against those of a reference that is written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.genai.proof.bounds import NOISE_SPAN
from dmlprep.genai.proof.figures import Differences, Losses, noise_of

ROWS, VOCABULARY = 7, 40


def softmax(row: np.ndarray) -> np.ndarray:
    powers = [np.exp(value - max(row)) for value in row]
    return np.array(powers) / sum(powers)


@pytest.fixture
def sides() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    original = rng.standard_normal((ROWS, VOCABULARY)) * 3
    return original, original + rng.standard_normal((ROWS, VOCABULARY)) * 0.4 + 2.0


def test_figures(sides: tuple[np.ndarray, np.ndarray]) -> None:
    original, candidate = sides
    differences = Differences()
    differences.add(original[:3], candidate[:3])
    differences.add(original[3:], candidate[3:])
    found = differences.figures()
    assert found is not None
    apart = [list(c - o - np.mean(c - o)) for o, c in zip(original, candidate, strict=True)]
    divergences, informations, top5, noises, decided = [], [], [], [], []
    for one, other, row in zip(original, candidate, apart, strict=True):
        p, q = softmax(one), softmax(other)
        divergences.append(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True)))
        informations.append(sum(a * np.log(a * VOCABULARY) for a in p))
        top5.append(len(set(np.argsort(one)[-5:]) & set(np.argsort(other)[-5:])) / 5)
        first, second = sorted(one)[-1], sorted(one)[-2]
        likely = sorted(set(np.argsort(one)[-20:]) | set(np.argsort(other)[-20:]))
        among = np.array(row)[likely]
        noises.append(max(np.sqrt(np.mean(np.square(row))), 1.4826 * np.median(abs(among - np.median(among)))))
        decided.append(first - second > NOISE_SPAN * noises[-1])
    equal = [np.argmax(a) == np.argmax(b) for a, b in zip(original, candidate, strict=True)]
    assert found.positions == ROWS
    assert found.max_difference == pytest.approx(np.abs(apart).max())
    assert found.mean_difference == pytest.approx(np.abs(apart).mean())
    assert found.kl == pytest.approx(np.mean(divergences))
    assert found.worst_kl == pytest.approx(np.max(divergences))
    assert found.information == pytest.approx(np.mean(informations))
    assert found.top1 == pytest.approx(np.mean(equal))
    assert found.top5 == pytest.approx(np.mean(top5))
    assert found.noise == pytest.approx(np.sqrt(np.mean(np.square(noises))))
    assert found.decided == sum(decided)
    assert 0 < found.decided < ROWS
    assert found.top1_decided == pytest.approx(np.mean(np.array(equal)[decided]))


def test_the_noise_is_that_of_likely_tokens_where_they_have_more() -> None:
    rng = np.random.default_rng(2)
    original = np.concatenate([rng.uniform(8, 12, 30), rng.standard_normal(5000) * 0.3])
    errors = np.concatenate([rng.standard_normal(30) * 0.3, rng.standard_normal(5000) * 0.01])
    assert 0.15 < noise_of(original, original + errors) < 0.5  # and not the 0.025 of all


def test_one_wrong_token_is_no_noise() -> None:
    rng = np.random.default_rng(3)
    original = np.concatenate([[16.0], rng.uniform(8, 12, 30), rng.standard_normal(5000) * 0.3])
    candidate = original + rng.standard_normal(5031) * 0.01
    candidate[0] = 9.0  # the favourite is lost
    differences = Differences()
    differences.add(original[None], candidate[None])
    found = differences.figures()
    assert found is not None
    assert (found.decided, found.top1_decided) == (1, 0.0)


def test_what_is_added_to_all_logits_changes_nothing(sides: tuple[np.ndarray, np.ndarray]) -> None:
    original, _ = sides
    differences = Differences()
    differences.add(original, original + 5)
    found = differences.figures()
    assert found is not None
    assert found.kl < 1e-12
    assert found.max_difference < 1e-12
    assert found.top1 == 1


def test_rows_that_are_not_finite_are_counted_apart(sides: tuple[np.ndarray, np.ndarray]) -> None:
    original, candidate = (side.copy() for side in sides)
    candidate[2, 5] = np.nan
    original[4, 0] = np.inf
    differences = Differences()
    differences.add(original, candidate)
    found = differences.figures()
    assert found is not None
    assert (differences.broken, differences.broken_original, found.positions) == (1, 1, ROWS - 2)
    assert differences.positions == ROWS


def test_perplexity(sides: tuple[np.ndarray, np.ndarray]) -> None:
    original, candidate = sides
    tokens = [4, 0, 39, 7, 12, 3, 20]
    losses = Losses()
    assert losses.perplexity() is None
    losses.add(tokens, zip(original, candidate, strict=True))
    found = losses.perplexity()
    assert found is not None
    for side, value in ((original, found.original), (candidate, found.prepared)):
        chances = [softmax(row)[token] for row, token in zip(side, tokens, strict=True)]
        assert value == pytest.approx(np.exp(-np.mean(np.log(chances))))
    assert found.tokens == ROWS
    assert found.ratio == pytest.approx(found.prepared / found.original)
