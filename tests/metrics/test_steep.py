"""Steep outputs: what rounding does to them passes, a wrong model does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.metrics import Comparison, OutputGroup, faint_maps, find_tolerance, output_error, output_groups

Array = np.ndarray[Any, Any]

FP16 = find_tolerance("fp16-cpu")
SIZE = 96
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float32)


def blobs(channels: int = 1, seed: int = 0, steep: float = 12.0) -> Array:
    """Distances to a few boxes, times how steep their edges are: logits of a mask [1, channels, SIZE, SIZE]."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    found = np.full((channels, SIZE, SIZE), -1e9)
    for channel in range(channels):
        for _ in range(4):
            (top, left), (height, width) = rng.integers(4, 50, 2), rng.integers(20, 40, 2)
            inside = np.minimum.reduce(
                [rows - top + 0.3, top + height - rows + 0.2, columns - left + 0.4, left + width - columns + 0.1]
            )
            found[channel] = np.maximum(found[channel], inside)
    return np.asarray(np.clip(found * steep, -40, 40)[None], dtype=np.float64)


def judged(kind: Any, reference: Array, candidate: Array) -> bool:
    comparison = Comparison([OutputGroup(("y",), kind)], FP16)
    comparison.add({"y": reference.astype(np.float32)}, {"y": candidate.astype(np.float32)})
    return all(m.passed for m in comparison.results())


def noisy(logits: Array, size: float, seed: int = 1) -> Array:
    """What FP16 makes of logits: each off by a share of itself, and by a little."""
    rng = np.random.default_rng(seed)
    return logits * (1 + size * rng.standard_normal(logits.shape)) + 0.06 * rng.standard_normal(logits.shape)


@pytest.mark.parametrize("seed", range(4))
def test_a_mask_with_edges_half_a_pixel_steep_passes_and_not_element_by_element(seed: int) -> None:
    logits = blobs(seed=seed, steep=8.0)
    reference, candidate = sigmoid(logits), sigmoid(noisy(logits, 0.01))
    assert np.count_nonzero(np.abs(reference - candidate) > FP16.max_rel) > 5
    assert not judged("elements", reference, candidate)
    assert judged("map", reference, candidate)


WRONG: dict[str, Callable[[Array], Array]] = {
    "scaled": lambda p: p * 0.9,
    "scaled logits": lambda p: sigmoid(np.log(np.maximum(p, 1e-9) / np.maximum(1 - p, 1e-9)) * 0.5 - 2.0),
    "shifted by one row": lambda p: np.roll(p, 1, axis=-2),
    "shifted by two columns": lambda p: np.roll(p, 2, axis=-1),
    "mirrored": lambda p: p[..., ::-1],
    "transposed": lambda p: np.swapaxes(p, -1, -2),
    "channels permuted": lambda p: p[:, ::-1],
    "inverted": lambda p: 1 - p,
    "zero": lambda p: 0 * p,
    "constant": lambda p: np.full_like(p, p.mean()),
    "a region made up": lambda p: np.where(_square(p.shape, 3), 1.0, p),
    "background raised": lambda p: p * 0.97 + 0.03,
    "eroded": lambda p: np.minimum.reduce([np.roll(p, s, axis=a) for a in (-1, -2) for s in (-1, 0, 1)]),
    "not finite": lambda p: np.where(_square(p.shape, 1), np.nan, p),
}


def _square(shape: tuple[int, ...], size: int) -> Array:
    inside = np.zeros(shape, dtype=bool)
    inside[..., :1, :size, :size] = True
    return inside


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("channels", [2, 3])
def test_a_wrong_map_fails(name: str, channels: int) -> None:
    reference = sigmoid(blobs(channels, seed=5))
    assert not judged("map", reference, WRONG[name](reference))


@pytest.mark.parametrize("seed", range(3))
def test_a_small_region_that_is_lost_among_large_ones_fails(seed: int) -> None:
    reference = sigmoid(blobs(8, seed=seed))
    with_one, corner = reference.copy(), (0, 0, slice(0, 4), slice(0, 4))
    with_one[corner] = 1.0
    missing = with_one.copy()
    missing[corner] = 0.0
    assert not judged("map", with_one, missing)


def rows(seed: int = 0, count: int = 40, classes: int = 300, sharp: float = 12.0) -> Array:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((1, count, classes))
    logits[0, np.arange(count), rng.integers(0, classes, count)] += sharp * rng.uniform(0.5, 1.5, count)
    return np.asarray(logits)


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), dtype=np.float32)


def test_rows_with_one_that_is_near_a_tie_pass() -> None:
    logits = rows()
    logits[0, 7, 3] = logits[0, 7].max() - 0.3
    moved = logits.copy()
    moved[0, 7, 3] -= 0.2
    assert not judged("elements", softmax(logits), softmax(moved))
    assert judged("classes", softmax(logits), softmax(moved))


@pytest.mark.parametrize("kind", ["classes", "logits"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x[..., ::-1],
        lambda x: np.roll(x, 1, axis=1),
        lambda x: 0 * x,
        lambda x: -x,
        lambda x: x + 6 * np.random.default_rng(3).standard_normal(x.shape),
        lambda x: np.where(np.arange(x.shape[1])[:, None] == 4, x[..., ::-1], x),
        lambda x: x * 0.3,
    ],
    ids=["classes reversed", "rows moved", "zero", "negated", "perturbed", "one row reversed", "flat"],
)
def test_wrong_rows_fail(kind: str, wrong: Callable[[Array], Array]) -> None:
    makes = softmax if kind == "classes" else np.asarray
    assert not judged(kind, makes(rows()), makes(wrong(rows())))


def test_rows_that_no_longer_sum_to_one_fail() -> None:
    assert not judged("classes", softmax(rows()), softmax(rows()) * 0.95)


def test_classes_of_each_pixel_are_maps() -> None:
    logits = np.concatenate([blobs(2, seed=2, steep=4.0), np.zeros((1, 1, SIZE, SIZE))], axis=1)
    reference = softmax(np.moveaxis(logits, 1, -1))
    candidate = softmax(np.moveaxis(noisy(logits, 0.01), 1, -1))
    assert not judged("elements", reference, candidate)
    assert judged("classes", reference, candidate)
    assert not judged("classes", reference, np.roll(reference, 1, axis=1))


def test_logits_that_are_off_where_nothing_is_chosen_pass() -> None:
    logits = rows(sharp=20)
    moved = logits.copy()
    moved[0, 3, 5] -= 0.1 * np.abs(logits).max()
    assert not judged("elements", logits, moved)
    assert judged("logits", logits, moved)


@pytest.mark.parametrize("bound", ["fp32-cpu", "rel:0.02", "exact"])
def test_other_tolerances_do_not_pass_what_fp16_may_do(bound: str) -> None:
    logits = blobs(seed=1)
    comparison = Comparison([OutputGroup(("y",), "map")], find_tolerance(bound))
    comparison.add({"y": sigmoid(logits)}, {"y": sigmoid(logits + 0.15 * (np.abs(logits) < 6))})
    assert not comparison.results()[0].passed


def test_the_search_and_the_proof_agree() -> None:
    logits = blobs(seed=3, steep=8.0)
    groups = [OutputGroup(("y",), "map")]
    for size in (0.05, 0.3, 1.0, 3.0):
        want, got = {"y": sigmoid(logits)}, {"y": sigmoid(logits + size * (np.abs(logits) < 6))}
        comparison = Comparison(groups, find_tolerance("fp16-emulation"))
        comparison.add(want, got)
        assert comparison.results()[0].passed == (output_error(groups, want, got) <= 0.02)


@pytest.mark.parametrize(("lost", "allowed"), [(1, True), (2, False)])
def test_a_search_asks_for_no_margin_of_what_is_a_mean(lost: int, allowed: bool) -> None:
    reference = np.full((1, 1, 32, 32), 0.01, dtype=np.float32)
    reference[..., 4:14, 4:15] = 0.9
    reference[..., 4:14, 4] = 0.52
    candidate = reference.copy()
    candidate[..., 4 : 4 + lost, 4] = 0.49  # of 110 elements 1.1 may change sides
    want, got = {"y": reference}, {"y": candidate}
    groups = [OutputGroup(("y",), "map")]
    assert (output_error(groups, want, got, enough=0.015) <= 0.015) == allowed
    assert output_error(groups, want, got, enough=0.0075) > 0.0075
    assert judged("map", reference, candidate) == allowed


def test_a_search_asks_for_a_margin_of_the_largest_difference() -> None:
    reference = np.full((1, 1, 96, 96), 0.01, dtype=np.float32)
    reference[..., 4:60, 4:60] = 0.9
    for off, enough in ((0.17, True), (0.2, False), (0.24, False)):
        candidate = reference.copy()
        candidate[..., 30, 30] -= off * 0.9  # of 0.25
        error = output_error([OutputGroup(("y",), "map")], {"y": reference}, {"y": candidate}, enough=0.015)
        assert (error <= 0.015) == enough
        assert judged("map", reference, candidate)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("y = Sigmoid (x)", "map"),
        ("a = Sigmoid (x)  b = Transpose (a)  y = Identity (b)", "map"),
        ("a = Softmax (x)  y = Flatten (a)", "classes"),
        ("y = LogSoftmax (x)", "logits"),
        ("a = Sigmoid (x)  y = Add (a, x)", "elements"),
        ("y = Relu (x)", "elements"),
        ("a = Identity (x)  y = Relu (a)  z = ArgMax (y)", "logits"),
    ],
)
def test_what_makes_an_output_says_how_it_is_read(text: str, kind: str) -> None:
    model = Model(ir.from_proto(parser.parse_model(f"{_HEAD} g (float[2, 3] x) => (float[n, m] y) {{ {text} }}")))
    assert output_groups(model)[0] == OutputGroup(("y",), kind)  # type: ignore[arg-type]
    assert output_groups(model, {"y": "elements"})[0] == OutputGroup(("y",))


@pytest.mark.parametrize(
    ("reference", "candidate", "passes"), [(0.009, 0.0096, True), (0.98, 0.975, True), (0.3, 0.35, False)]
)
def test_a_lone_probability_is_on_the_scale_of_0_to_1(reference: float, candidate: float, passes: bool) -> None:
    one, other = np.full((1, 1), reference), np.full((1, 1), candidate)
    assert judged("map", one, other) == passes


def test_a_map_of_nothing_counts_in_the_search_on_the_scale_that_proves_it() -> None:
    logits = -9 + 4 * np.exp(-((np.mgrid[:64, :64] - 30) ** 2).sum(0) / 60)
    want, got = {"y": sigmoid(logits)}, {"y": sigmoid(logits + 0.07)}
    groups = [OutputGroup(("y",), "map")]
    assert float(want["y"].max()) < 0.01
    assert output_error(groups, want, got) < FP16.max_rel / 10
    # On no feed is anything to be seen: then only its own scale proves the map.
    assert output_error(groups, want, got, faint=False) > FP16.max_rel
    assert faint_maps(groups, [want]) == {"y"}
    assert faint_maps(groups, [want, {"y": want["y"] * 50}]) == set()


@pytest.mark.parametrize("threshold", [0.002, 0.05])
def test_a_map_that_reaches_the_users_threshold_shows_something(threshold: float) -> None:
    want = np.full((64, 64), 0.001, np.float32)
    want[20:30, 20:30] = 0.01
    bounds = find_tolerance(f"fp16-cpu,threshold={threshold}")
    comparison = Comparison([OutputGroup(("y",), "map")], bounds)
    comparison.add({"y": want}, {"y": np.full_like(want, 0.001)})
    assert [m.passed for m in comparison.results()] == [threshold > 0.01]
