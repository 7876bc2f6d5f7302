"""What a ``preprocessor_config.json`` becomes, and what of it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmlprep import api
from dmlprep.core.errors import RecipeError
from dmlprep.passes.framing.preprocessor import NoTable, as_table

_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_TABLE = {"mean": [0.5] * 3, "deviation": [0.5] * 3, "scale": 1.0}

_KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ViT": (
        {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}, "resample": 2, **_HALF},
        {**_TABLE, "resize": "pillow-bilinear", "fit": "stretch", "model_size": [224, 224]},
    ),
    "ViT of old": (
        {"feature_extractor_type": "ViTFeatureExtractor", "size": 224, "resample": 2, **_HALF},
        {**_TABLE, "resize": "pillow-bilinear", "fit": "stretch", "model_size": [224, 224]},
    ),
    "CLIP": (
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "resample": 3, **_HALF},
        {**_TABLE, "resize": "pillow-bicubic", "fit": "crop", "resized": 224, "model_size": [224, 224]},
    ),
    "DeiT": (
        {
            "image_processor_type": "DeiTImageProcessorFast",
            "size": {"height": 256, "width": 256},
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
            **_HALF,
        },
        {**_TABLE, "resize": "pillow-bicubic", "fit": "crop", "resized": [256, 256], "model_size": [224, 224]},
    ),
    "ConvNext": (
        {
            "image_processor_type": "ConvNextImageProcessor",
            "size": {"shortest_edge": 224},
            "crop_pct": 0.875,
            "resample": 2,
            **_HALF,
        },
        {**_TABLE, "resize": "pillow-bilinear", "fit": "crop", "resized": 256, "model_size": [224, 224]},
    ),
    "not normalised, of 255": (
        {
            "image_processor_type": "SegformerImageProcessor",
            "size": {"height": 64, "width": 96},
            "resample": 2,
            "do_rescale": False,
            "do_normalize": False,
        },
        {"scale": 255.0, "resize": "pillow-bilinear", "fit": "stretch", "model_size": [64, 96]},
    ),
    "blue first": (
        {"size": {"height": 64, "width": 96}, "resample": 0, "do_flip_channel_order": True, "do_normalize": False},
        {"scale": 1.0, "model_colour": "bgr", "resize": "pillow-nearest", "fit": "stretch", "model_size": [64, 96]},
    ),
    "of -1 to 1 by its factor": (
        {"do_resize": False, "rescale_factor": 2 / 255, "image_mean": 1.0, "image_std": 1.0},
        {"scale": 2.0, "mean": 1.0, "deviation": 1.0},
    ),
}


@pytest.mark.parametrize("name", _KNOWN)
def test_a_known_configuration(name: str) -> None:
    config, table = _KNOWN[name]
    assert as_table(config) == table


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}, "resample": 2, **_HALF}, "depends on the picture"),
        ({"size": {"shortest_edge": 224}, "resample": 2, **_HALF}, "depends on the picture"),
        ({"size": 224, "resample": 2, **_HALF}, "a square or the shorter side"),
        ({"size": {"height": 2, "width": 2}, **_HALF}, "resample None"),
        ({"size": {"height": 2, "width": 2}, "resample": 2}, "do_normalize without image_mean"),
        ({"size": {"height": 2, "width": 0}, "resample": 2, **_HALF}, "has 0 for a side"),
        ({"do_pad": True, **_HALF}, "do_pad = True has no counterpart"),
        ({"do_resize": False, "do_center_crop": True, "crop_size": 4, **_HALF}, "do_center_crop without do_resize"),
        ({"do_resize": False, "image_mean": ["x"], "image_std": 1}, "which is not a number"),
    ],
)
def test_what_has_no_counterpart_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(NoTable, match=says):
        as_table(config)


def _recipe(folder: Path, config: str, more: str = "") -> Path:
    (folder / "preprocessor_config.json").write_text(config)
    path = folder / "frame.toml"
    path.write_text(
        f'doc = "d"\n[step.frame.inputs.x]\nsize = [480, 640]\nconfig = "preprocessor_config.json"\n{more}\n'
    )
    return path


def test_the_recipe_reads_it_from_its_own_folder(tmp_path: Path) -> None:
    step = api.plan(_recipe(tmp_path, json.dumps(_KNOWN["ViT"][0]), "scale = 2.0")).steps[0]
    options = step.options["inputs"]["x"]
    assert options == {**_KNOWN["ViT"][1], "size": [480, 640], "scale": 2.0}, "what the table says itself wins"


@pytest.mark.parametrize(("text", "says"), [("{", "not JSON"), ("[]", "no table"), ('{"size": 3}', "resample")])
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says) as raised:
        api.plan(_recipe(tmp_path, text))
    assert "step.frame.inputs.x.config" in raised.value.where


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    path = _recipe(tmp_path, "{}")
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(RecipeError, match="cannot be read"):
        api.plan(path)
