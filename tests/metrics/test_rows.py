"""Outputs that are sets of boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmlprep.graph.model import Model
from dmlprep.metrics import Comparison, OutputGroup, find_tolerance, output_groups
from tests.fixtures_index import fixture
from tests.parity.models import opened

NAMES = ("boxes", "labels")
FP16 = find_tolerance("fp16-cpu")


def boxes(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {"boxes": (rng.random((count, 4)) * 100).astype(np.float32), "labels": rng.integers(0, 5, count)}


def compared(candidate: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> list[bool]:
    comparison = Comparison([OutputGroup(NAMES, "rows")], FP16)
    comparison.add(reference, candidate)
    return [m.passed for m in comparison.results()]


def test_another_order_is_the_same_set() -> None:
    reference = boxes(30)
    order = np.random.default_rng(0).permutation(30)
    assert compared({n: a[order] for n, a in reference.items()}, reference) == [True, True]


def test_ranked_rows_may_come_in_another_order() -> None:
    ranked = OutputGroup(NAMES, "ranked", 30)
    reference = {n: a[None] for n, a in boxes(30).items()}
    order = np.random.default_rng(0).permutation(30)
    turned = {n: a[:, order] for n, a in reference.items()}
    for one, passed in ((OutputGroup(NAMES), False), (ranked, True)):
        comparison = Comparison([one], FP16)
        comparison.add(reference, turned)
        assert [m.passed for m in comparison.results()] == [passed, passed]
    comparison = Comparison([ranked], FP16)
    comparison.add(reference, turned | {"labels": reference["labels"]})
    assert not any(m.passed for m in comparison.results())


def test_equal_infinite_elements_match() -> None:
    reference = boxes(30)
    reference["boxes"][:, 0] = np.tile([np.inf, -np.inf, np.nan], 10)
    assert compared({n: a[::-1].copy() for n, a in reference.items()}, reference) == [True, True]
    other = {n: a.copy() for n, a in reference.items()}
    other["boxes"][:, 0] *= -1
    assert compared(other, reference) == [False, False]


def test_one_box_more_in_thirty_is_within_fp16() -> None:
    reference = boxes(30)
    more = {"boxes": np.concatenate([reference["boxes"], [[1, 2, 3, 4]]]), "labels": np.append(reference["labels"], 1)}
    assert compared(more, reference) == [True, True]


def test_boxes_elsewhere_fail() -> None:
    reference = boxes(30)
    assert compared({"boxes": reference["boxes"] + 20, "labels": reference["labels"]}, reference) == [False, False]


def test_errors_are_those_of_the_rows_that_were_found_again() -> None:
    reference = boxes(30)
    moved = {"boxes": reference["boxes"][::-1] + np.float32(0.5), "labels": reference["labels"][::-1]}
    more = {"boxes": np.concatenate([[[1, 2, 3, 4]], moved["boxes"]]), "labels": np.append(1, moved["labels"])}
    comparison = Comparison([OutputGroup(NAMES, "rows")], FP16)
    comparison.add(reference, more)
    found = {m.output: m for m in comparison.results()}
    assert found["boxes"].max_rel == pytest.approx(0.5 / reference["boxes"].max(), rel=1e-4)
    assert found["labels"].max_rel == 0.0
    assert found["boxes"].note == "as a set: 30 of 30 rows match, among 31"


@pytest.mark.parametrize(("tied", "says"), [(25, True), (15, False)])
def test_tied_scores_are_named(tied: int, says: bool) -> None:
    rng = np.random.default_rng(4)
    scores = np.concatenate([np.ones(tied), rng.random(30 - tied)]).astype(np.float32)
    reference = {**boxes(30), "scores": scores}
    comparison = Comparison([OutputGroup((*NAMES, "scores"), "rows")], FP16)
    comparison.add(reference, {**reference, "boxes": reference["boxes"] + np.float32(20)})
    notes = {m.note for m in comparison.results()}
    assert len(notes) == 1
    assert ("; 25 of them tie at 1 in scores" in notes.pop()) == says


def test_labels_must_stay_with_their_boxes() -> None:
    reference = boxes(30)
    rolled = {"boxes": reference["boxes"], "labels": np.roll(reference["labels"], 1)}
    assert compared(rolled, reference) == [False, False]


def test_a_box_found_twice_counts_once() -> None:
    reference = boxes(10)
    doubled = {n: np.repeat(a[:1], 10, axis=0) for n, a in reference.items()}
    assert compared(doubled, reference) == [False, False]


def test_no_boxes_in_either() -> None:
    assert compared(boxes(0), boxes(0)) == [True, True]
    assert compared(boxes(0), boxes(5)) == [False, False]


def test_the_detector_fixture_is_one_group() -> None:
    groups = output_groups(Model.open(fixture("detector_nms").path))
    assert groups == [OutputGroup(("boxes", "scores", "labels"), "rows")]


@pytest.mark.parametrize("name", ["residual_cnn", "decoder_cache", "if_branches"])
def test_other_outputs_are_compared_element_by_element(name: str) -> None:
    groups = output_groups(Model.open(fixture(name).path))
    alone = [OutputGroup(group.names[:1], "logits" if group.names[0] == "logits" else "elements") for group in groups]
    assert groups == alone


def test_a_batch_behind_a_nonzero_is_no_set(tmp_path: Path) -> None:
    model = opened(
        """g (float[batch, 4] x) => (float[batch, 4] y, int64[r, n] where) {
            where = NonZero(x)
            count = Shape(where)
            sum = ReduceSum(count)
            extra = Cast<to = 1>(sum)
            y = Add(x, extra)
        }""",
        tmp_path,
    )
    assert output_groups(model) == [OutputGroup(("y",)), OutputGroup(("where",), "rows")]
