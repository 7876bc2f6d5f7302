"""Boxes through a frame: the same as the loop over boxes gives, whatever overlaps what."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.parity.feeds.framed import outside
from dmlprep.passes.framing import DetectOptions, Frame, PictureOptions, resolve, write_frame
from tests.passes.framing.graphs import run

Array = np.ndarray[Any, Any]

_PICTURE = {"size": [90, 120], "fit": "letterbox"}


def _model(shapes: dict[str, tuple[int, ...]], opset: int = 17) -> Model:
    """A detector that hands on what it is fed, beside a picture of 64 x 64 that it does not look at."""
    given = ", ".join(f"float[{','.join(map(str, s))}] {n}_in" for n, s in shapes.items())
    made = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in shapes.items())
    body = " ".join(f"{n} = Identity ({n}_in)" for n in shapes)
    batch = next(iter(shapes.values()))[0]
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{batch}, 3, 64, 64] x, {given})'
    return Model(ir.from_proto(onnx.parser.parse_model(f"{head} => ({made}) {{ {body} }}")))


def _both(
    outputs: dict[str, Array], table: dict[str, Any], picture: dict[str, Any] | None = None, opset: int = 17
) -> tuple[Frame, dict[str, Array], dict[str, Array]]:
    """The frame, what it gives, and what the loop gives."""
    model = _model({name: array.shape for name, array in outputs.items()}, opset)
    options = msgspec.convert(picture or _PICTURE, PictureOptions)
    frame = resolve(model.ir, {"x": options}, {}, msgspec.convert(table, DetectOptions))
    write_frame(model, frame)
    shape = frame.pictures[0].shape
    feeds = {"x": np.zeros(shape, np.uint8), **{f"{name}_in": array for name, array in outputs.items()}}
    return frame, run(model, feeds), outside(frame, outputs)


def _crowd(batch: int, count: int, classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Boxes around few places, so that many overlap, and scores that differ."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(10, 54, (batch, 6, 2))[:, rng.integers(0, 6, count)] + rng.normal(0, 3, (batch, count, 2))
    size = rng.uniform(8, 24, (batch, count, 2))
    boxes = np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)
    scores = rng.permuted(np.linspace(0.01, 0.99, count * classes)).reshape(1, count, classes)
    return boxes, np.repeat(scores, batch, 0).astype(np.float32)


def _same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert list(found) == list(expected) == [f"detected_{n}" for n in ("boxes", "scores", "classes", "count")]
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert np.max(np.abs(found[name].astype(np.float64) - array), initial=0) < 1e-4, name


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_is_thinned_as_by_the_loop(seed: int, per_class: bool, opset: int) -> None:
    boxes, scores = _crowd(2, 80, 3, seed)
    table = {"boxes": "boxes", "scores": "scores", "per_class": per_class, "overlap": 0.3, "count": 70}
    _, found, expected = _both({"boxes": boxes, "scores": scores}, table, opset=opset)
    _same(found, expected)
    assert 3 < expected["detected_count"][0] < 70
    assert expected["detected_classes"][0, -1] == -1


def test_a_box_comes_back_when_what_hid_it_is_gone() -> None:
    """Three in a row: the first hides the second, which therefore does not hide the third."""
    boxes = np.array([[[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]]], np.float32)
    scores = np.array([[[0.9], [0.8], [0.7]]], np.float32)
    table = {"boxes": "boxes", "scores": "scores", "overlap": 0.3, "count": 3}
    _, found, expected = _both({"boxes": boxes, "scores": scores}, table, {"size": [64, 64]})
    _same(found, expected)
    assert found["detected_boxes"][0].tolist() == [[0, 0, 10, 10], [8, 0, 18, 10], [0, 0, 0, 0]]
    assert found["detected_scores"][0].tolist() == pytest.approx([0.9, 0.7, 0])
    assert found["detected_count"].tolist() == [2]


def test_a_chain_longer_than_the_rounds_loses_no_box() -> None:
    boxes = np.array([[[4.0 * n, 0, 4.0 * n + 10, 10] for n in range(12)]], np.float32)
    scores = np.linspace(0.9, 0.4, 12, dtype=np.float32).reshape(1, 12, 1)
    table = {"boxes": "boxes", "scores": "scores", "overlap": 0.3}
    whole = _both({"boxes": boxes, "scores": scores}, table, {"size": [64, 64]})
    _same(whole[1], whole[2])
    _, short, loop = _both({"boxes": boxes, "scores": scores}, {**table, "rounds": 4}, {"size": [64, 64]})
    kept = {tuple(row) for row in short["detected_boxes"][0].tolist()}
    assert {tuple(row) for row in loop["detected_boxes"][0].tolist()} < kept


_FORMS: dict[str, dict[str, Any]] = {
    "columns": {"raw": "raw", "corners": "cxcywh"},
    "rows with objectness": {"raw": "raw", "raw_rows": True, "objectness": True, "activation": "sigmoid"},
    "soft-max with a background": {"raw": "raw", "raw_rows": True, "activation": "softmax", "background": "last"},
    "shares": {"raw": "raw", "unit": "share", "corners": "xywh", "background": "first"},
    "no suppression": {"raw": "raw", "suppress": False, "candidates": 9},
}


@pytest.mark.parametrize("name", _FORMS)
@pytest.mark.parametrize("picture", [_PICTURE, {"size": [90, 120], "fit": "crop"}, {"size": [32, 48]}])
def test_every_form_of_raw_boxes(name: str, picture: dict[str, Any]) -> None:
    table = {"score": 0.1, "count": 20, **_FORMS[name]}
    boxes, scores = _crowd(1, 50, 5)
    if table.get("activation"):
        scores = np.log(scores / (1 - scores)).astype(np.float32)
    if table.get("corners") in ("cxcywh", "xywh"):
        size = boxes[..., 2:] - boxes[..., :2]
        first = boxes[..., :2] + size / 2 if table["corners"] == "cxcywh" else boxes[..., :2]
        boxes = np.concatenate([first, size], -1)
    raw = np.concatenate([boxes / (64 if table.get("unit") else 1), scores], -1)
    raw = raw if table.get("raw_rows") else np.ascontiguousarray(np.swapaxes(raw, 1, 2))
    _, found, expected = _both({"raw": raw.astype(np.float32)}, table, picture)
    _same(found, expected)
    assert expected["detected_count"][0] > 1


def test_a_box_lies_where_it_is_in_the_apps_picture() -> None:
    """Letterboxed from 90 x 120 to 48 x 64: what the model sees begins 8 rows below its edge."""
    boxes, scores = np.array([[[16, 20, 32, 44]]], np.float32), np.array([[[0.9]]], np.float32)
    _, found, _ = _both({"boxes": boxes, "scores": scores}, {"boxes": "boxes", "scores": "scores"})
    assert np.allclose(found["detected_boxes"][0, 0], [30, 22.5, 60, 67.5])


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"boxes": "boxes"}, "needs either"),
        ({"boxes": "scores", "scores": "boxes"}, "not \\[N, boxes, 4\\]"),
        ({"raw": "boxes"}, "leaves no numbers for the scores"),
        ({"boxes": "boxes", "scores": "scores", "picture": "y"}, "is not clear"),
        ({"boxes": "boxes", "scores": "scores", "objectness": True}, "works only with 'raw'"),
    ],
)
def test_what_cannot_be_is_refused(table: dict[str, Any], says: str) -> None:
    model = _model({"boxes": (1, 5, 4), "scores": (1, 5, 3)})
    with pytest.raises(ModelRefused, match=says):
        resolve(model.ir, {"x": PictureOptions()}, {}, msgspec.convert({"raw_rows": True, **table}, DetectOptions))
