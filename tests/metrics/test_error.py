"""The error that a search goes by is measured as the proof measures it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmlprep.metrics import OutputGroup, find_tolerance, measure, output_error
from dmlprep.metrics.error import ranked_error

Y = [OutputGroup(("y",))]
FP16 = find_tolerance("fp16-emulation")


def test_an_error_beside_one_large_value_shows_in_the_angle() -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal(1000).astype(np.float32)
    want[0] = 200.0
    off = want + 0.3 * rng.standard_normal(1000).astype(np.float32)
    cosine = float(want @ off / np.linalg.norm(want) / np.linalg.norm(off))
    assert np.abs(want - off).max() / 200 < 0.01
    assert cosine < 0.999
    assert output_error(Y, {"y": want}, {"y": off}) > 0.02
    assert output_error(Y, {"y": want}, {"y": want}) == 0.0


def test_masks_among_outputs_scale_nothing() -> None:
    want = np.array([1.0, 2.0, -3.4e38], np.float32)
    got = np.array([1.0, 1.0, -np.inf], np.float32)
    assert output_error(Y, {"y": want}, {"y": got}) >= 0.5


@pytest.mark.parametrize("scale", [0.0, 1e-8, 1.0, 1e6])
def test_search_and_proof_divide_by_the_same(scale: float) -> None:
    want = np.linspace(-1, 1, 50, dtype=np.float32) * np.float32(scale)
    got = want + np.float32(scale * 0.015 + 1e-9)
    assert output_error(Y, {"y": want}, {"y": got}) == measure("y", want, got, FP16).max_rel


def test_what_the_proof_refuses_for_its_angle_is_an_error_above_its_bound() -> None:
    rng = np.random.default_rng(1)
    want = np.append(rng.standard_normal(1000), 200.0)
    for noise in (0.2, 0.4, 0.6, 0.8):
        got = want + np.append(noise * rng.standard_normal(1000), 0.0)
        proof = measure("y", want, got, FP16)
        assert (output_error(Y, {"y": want}, {"y": got}) > FP16.max_rel) == (not proof.passed)


def test_integers_are_left_out_but_for_images() -> None:
    want, got = np.arange(200, dtype=np.uint8), np.arange(200, dtype=np.uint8) + np.uint8(20)
    assert output_error(Y, {"y": want}, {"y": got}) == 0.0
    image = [OutputGroup(("y",), integer_images=("y",))]
    assert output_error(image, {"y": want}, {"y": got}) == pytest.approx(20 / 199)


def test_another_shape_or_what_is_not_finite_is_an_infinite_error() -> None:
    want = np.ones(4, np.float32)
    assert output_error(Y, {"y": want}, {"y": want[:3]}) == math.inf
    assert output_error(Y, {"y": want}, {"y": want * np.float32(np.nan)}) == math.inf


def _ranking(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random((2, 20)).astype(np.float32), axis=1)[:, ::-1]
    return {"s": scores, "b": rng.random((2, 20, 4)).astype(np.float32) * 100, "c": rng.integers(0, 9, (2, 20))}


RANKED = OutputGroup(("s", "b", "c"), "ranked", 20)


def test_rows_in_another_order_are_no_error() -> None:
    want = _ranking()
    order = np.random.default_rng(1).permutation(20)
    got = {name: array[:, order] for name, array in want.items()}
    got["b"] = got["b"] + np.float32(0.1)
    assert 0 < ranked_error(want, got, RANKED) < 0.002


def test_rows_of_another_batch_or_label_are_an_error() -> None:
    want = _ranking()
    assert ranked_error(want, {name: array[::-1] for name, array in want.items()}, RANKED) > 0.1
    assert ranked_error(want, want | {"c": want["c"] + 100}, RANKED) == np.inf
    assert ranked_error(want, want | {"b": want["b"] * np.float32(np.nan)}, RANKED) == np.inf


def test_a_tenth_of_the_rows_may_be_others() -> None:
    want = _ranking()
    few, many = want["b"].copy(), want["b"].copy()
    few[:, -2:] += 1000  # 4 of 40
    many[:, -2:] += 1000
    many[0, -3] += 1000
    assert ranked_error(want, want | {"b": few}, RANKED) == 0.0
    assert ranked_error(want, want | {"b": many}, RANKED) > 1


def test_no_rows_have_no_error_that_could_be_small() -> None:
    nothing = {name: array[:0] for name, array in _ranking().items()}
    assert ranked_error(nothing, nothing, RANKED) == math.inf
