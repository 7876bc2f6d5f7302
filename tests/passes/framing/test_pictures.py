"""Pictures through a frame: byte for byte what Pillow makes of them, and what the reference pipeline says."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from PIL import Image

from dmlprep.core.errors import ModelRefused
from dmlprep.parity.feeds.framed import prepared
from dmlprep.passes.framing import resolve
from dmlprep.passes.framing.options import Mode, PictureOptions
from tests.passes.framing.graphs import handing_on, seen

_MODES: tuple[Mode, ...] = get_args(Mode)
_SIZES = ((97, 61), (40, 33), (20, 24), (60, 50), (30, 61))
"""Shrunk by odd factors, by 4/3 (where middles of pixels meet edges), enlarged, halved, one side alone."""


@pytest.mark.parametrize("mode", [m for m in _MODES if m.startswith("pillow")])
@pytest.mark.parametrize("size", _SIZES)
def test_bytes_are_those_of_pillow(mode: Mode, size: tuple[int, int]) -> None:
    _, given, found = seen({"size": size, "resize": mode, "scale": 255}, (1, 3, 30, 25))
    picture = Image.fromarray(given[0]).resize((25, 30), Image.Resampling[mode.split("-")[1].upper()])
    assert np.array_equal(found[0], np.moveaxis(np.asarray(picture), -1, 0))


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_every_mode_is_as_its_reference(mode: Mode, size: tuple[int, int], kind: str) -> None:
    if mode == "opencv-area" and size == (20, 24):
        pytest.skip("it enlarges")
    picture, given, found = seen({"size": size, "resize": mode, "type": kind, "scale": 255}, (1, 3, 30, 25))
    apart = float(np.max(np.abs(found - prepared(picture, given))))
    assert apart == 0 if kind == "uint8" else apart < 255 * 5e-7


_OPENCV = {
    "linear": [[54, 189, 110, 180], [169, 58, 204, 93], [81, 152, 73, 101]],
    "cubic": [[41, 205, 96, 190], [179, 43, 219, 83], [72, 166, 57, 108]],
    "area": [[63, 176, 136, 176], [152, 118, 144, 110], [86, 126, 86, 111]],
}
"""What cv2.resize 5.0.0 makes of ``arange(35) * 83 % 256``, 5 x 7 pixels, 3 x 4 pixels large."""


@pytest.mark.parametrize("name", _OPENCV)
def test_opencv_differs_by_one_level_at_most(name: str) -> None:
    given = (np.arange(35) * 83 % 256).astype(np.uint8).reshape(1, 5, 7, 1)
    table = {"size": [5, 7], "colour": "gray", "resize": f"opencv-{name}", "scale": 255, "model_layout": "nchw"}
    _, _, found = seen(table, (1, 1, 3, 4), given=given)
    assert np.max(np.abs(found[0, 0] - _OPENCV[name])) <= 1


_TABLES: dict[str, dict[str, Any]] = {
    "letterbox": {"fit": "letterbox", "fill": 114},
    "corner": {"fit": "letterbox", "place": "corner", "resize": "opencv-linear"},
    "crop": {"fit": "crop"},
    "shorter side": {"fit": "crop", "resized": 40},
    "height and width": {"fit": "crop", "resized": [50, 41], "odd": "even"},
    "alpha": {"colour": "bgra"},
    "gray": {"colour": "gray"},
    "channels first": {"layout": "nchw", "colour": "bgr"},
    "fp16": {"type": "float16"},
    "float of 255": {"type": "float32", "white": 255.0},
}


@pytest.mark.parametrize("name", _TABLES)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [((2, 3, 30, 25), "float"), ((2, 30, 25, 3), "uint8"), ((1, 1, 30, 25), "float16"), ((1, 30, 25, 1), "float")],
)
def test_every_fit_colour_and_layout_is_as_its_reference(name: str, shape: tuple[int, ...], kind: str) -> None:
    table = {"size": [48, 64], **_TABLES[name]}
    if kind != "uint8":
        table |= {"mean": 0.4, "deviation": 0.25}
    picture, given, found = seen(table, shape, kind)
    expected = prepared(picture, given)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape == shape
    # Floats at halves may be rounded either way.
    bound = {"float": 2e-6, "uint8": 0 if picture.bytes else 1, "float16": 4e-3}[kind]
    assert np.max(np.abs(found.astype(np.float64) - expected)) <= bound


@pytest.mark.parametrize(
    ("model", "resized", "offset"),
    [((25, 30), (25, 33), (0, -1)), ((30, 25), (30, 40), (0, -7)), ((20, 30), (22, 30), (-1, 0))],
)
def test_a_crop_covers_the_models_picture(
    model: tuple[int, int], resized: tuple[int, int], offset: tuple[int, int]
) -> None:
    picture, _, _ = seen({"size": [48, 64], "fit": "crop"}, (1, 3, *model))
    assert (picture.resized, picture.offset) == (resized, offset)


def test_gray_is_pillows() -> None:
    _, given, found = seen({"colour": "bgr", "scale": 255}, (1, 1, 64, 64))
    assert np.array_equal(found[0, 0], np.asarray(Image.fromarray(given[0, ..., ::-1]).convert("L")))


def test_the_whole_is_what_torchvision_writes_by_hand() -> None:
    """Resize of the shorter side, the middle, mean and deviation, with Pillow and numpy alone."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    table = {
        "size": [61, 83],
        "fit": "crop",
        "resized": 36,
        "odd": "even",
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
    }
    _, given, found = seen(table, (1, 3, 32, 32))
    small = Image.fromarray(given[0]).resize((48, 36), Image.Resampling.BILINEAR)  # int(36 * 83 / 61)
    middle = np.asarray(small.crop((8, 2, 40, 34))) / 255
    assert np.max(np.abs(found[0] - np.moveaxis((middle - mean) / deviation, -1, 0))) < 1e-6


@pytest.mark.parametrize(
    ("shape", "table"),
    [
        ((32, 3, 30, 40), {"size": [16384, 480]}),
        ((1, 3, 30, 40), {"size": [16384, 16384]}),
        ((64, 3, 8, 8), {"fit": "crop", "resized": 2000}),
    ],
)
def test_pictures_that_no_machine_holds_are_refused(shape: tuple[int, ...], table: dict[str, Any]) -> None:
    with pytest.raises(ModelRefused, match=r"numbers: .* pixels"):
        resolve(handing_on(shape).ir, {"x": msgspec.convert(table, PictureOptions)})


def test_a_picture_of_8k_is_none_of_those() -> None:
    options = PictureOptions(size=(4320, 7680))
    assert resolve(handing_on((1, 3, 224, 224)).ir, {"x": options}).pictures[0].size == (4320, 7680)
