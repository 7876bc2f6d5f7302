"""Outputs through a frame: what the app wants to know, as numpy computes it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.parity.feeds.framed import outside
from dmlprep.passes.framing import ResultOptions, resolve, write_frame
from tests.passes.framing.graphs import handing_on, run

_CLASSES = (2, 7)
_MAP = (1, 4, 6, 5)
_IMAGE = (1, 3, 6, 5)

_TABLES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    (_CLASSES, {"activation": "softmax"}),
    (_CLASSES, {"activation": "softmax", "take": "topk", "top": 3, "index_type": "int32"}),
    (_CLASSES, {"activation": "sigmoid", "take": "topk"}),
    (_CLASSES, {"take": "argmax"}),
    (_MAP, {"activation": "softmax", "axis": 1}),
    (_MAP, {"take": "argmax", "axis": 1, "index_type": "uint8"}),
    (_MAP, {"activation": "softmax", "take": "topk", "axis": 1, "top": 2}),
    (_IMAGE, {"take": "picture", "mean": 0.5, "deviation": 0.5, "colour": "bgr"}),
    (_IMAGE, {"take": "picture", "scale": 255, "mean": [103.9, 116.8, 123.7], "deviation": 60, "model_colour": "bgr"}),
    ((1, 6, 5, 3), {"take": "picture", "layout": "nchw"}),
    ((1, 1, 6, 5), {"take": "picture"}),
    ((1, 1, 6, 5), {"take": "picture", "colour": "gray"}),
]


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("shape", "table"), _TABLES)
def test_an_output_is_what_numpy_makes_of_it(
    shape: tuple[int, ...], table: dict[str, Any], opset: int, kind: str
) -> None:
    model = handing_on(shape, kind, opset)
    frame = resolve(model.ir, {}, {"y": msgspec.convert(table, ResultOptions)})
    write_frame(model, frame)
    given = np.random.default_rng(1).standard_normal(shape).astype("float32" if kind == "float" else kind)
    found = run(model, {"x": given})
    expected = outside(frame, {"y": given})
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        if array.dtype.kind == "f":
            assert np.max(np.abs(found[name] - array)) < 1e-6
        else:
            assert np.array_equal(found[name], array)


def test_softmax_by_hand() -> None:
    model = handing_on((1, 3))
    write_frame(model, resolve(model.ir, {}, {"y": ResultOptions(activation="softmax", take="topk", top=2)}))
    found = run(model, {"x": np.log(np.array([[1, 6, 3]], np.float32))})
    assert np.allclose(found["y_values"], [[0.6, 0.3]])
    assert found["y_indices"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"take": "topk", "top": 8}, "top is 8, but the axis has 7 numbers"),
        ({"axis": 2}, "axis 2 is not one of 2 dimensions"),
        ({"take": "picture"}, "a picture has four"),
    ],
)
def test_what_cannot_be_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelRefused, match=says):
        resolve(handing_on(_CLASSES).ir, {}, {"y": msgspec.convert(table, ResultOptions)})


def test_indices_that_a_byte_does_not_hold_are_refused() -> None:
    with pytest.raises(ModelRefused, match="uint8 is too small for indices of 300"):
        resolve(handing_on((1, 300)).ir, {}, {"y": ResultOptions(take="argmax", index_type="uint8")})
    with pytest.raises(ModelRefused, match="no output 'z'"):
        resolve(handing_on((1, 300)).ir, {}, {"z": ResultOptions()})
