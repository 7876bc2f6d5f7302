"""What the contract and the README tell of a framed model, and the samples' inputs for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx_ir as ir
import pytest

import dmlprep
from dmlprep.core.errors import ModelRefused
from dmlprep.package.contract import Contract, schema
from dmlprep.passes.framing import DetectOptions, PictureOptions, ResultOptions
from dmlprep.portable.public import Model as Loaded
from dmlprep.portable.sample import example
from tests.package.runs import DETECTOR, PICTURE, framed_run, run_of


def _packaged(run: Path, app: Path) -> Contract:
    contract = dmlprep.package_model(run, out=app, language="python").contract
    jsonschema.validate(json.loads((app / "model.json").read_text(encoding="utf-8")), schema())
    return contract


def test_a_detector(tmp_path: Path) -> None:
    options = PictureOptions(size=(24, 40), colour="bgr", fit="letterbox", resize="opencv-linear")
    detect = DetectOptions(raw="raw", count=6, candidates=32, activation="sigmoid")
    run = framed_run(DETECTOR, tmp_path / "run", pictures={"images": options}, detect=detect)
    contract = _packaged(run, tmp_path / "app")
    (image,) = contract.inputs
    assert (image.type, image.shape, image.layout, image.bytes) == ("uint8", [1, 24, 40, 3], "NHWC", 2880)
    assert (image.meaning, image.range) == ("picture", (0.0, 255.0))
    picture = image.picture
    assert picture is not None
    assert (picture.size, picture.colour, picture.white, picture.fit) == ((24, 40), "bgr", 255.0, "letterbox")
    assert (picture.resize, picture.model_size) == ("opencv-linear", (16, 16))
    boxes, scores, classes, count = contract.outputs
    assert (boxes.meaning, boxes.about, boxes.range) == ("boxes", "images", (0.0, 40.0))
    assert boxes.picture is not None
    assert boxes.picture.size == (24, 40)
    assert (scores.meaning, scores.range) == ("scores", (0.0, 1.0))
    assert (classes.meaning, classes.type, classes.range) == ("classes", "int32", None)
    assert (count.meaning, count.range) == ("count", (0.0, 6.0))
    readme = (tmp_path / "app" / "README.md").read_text(encoding="utf-8")
    assert (
        "- `images`: a picture of 24 x 40 (height x width), NHWC, BGR, 0 to 255; the graph resizes it to 16 x 16 "
        "(letterbox, opencv-linear)." in readme
    )
    assert "- `detected_boxes`: left, top, right and bottom of each box; 0 for unused boxes, in pixels of" in readme


def test_a_picture_comes_out_and_other_inputs_have_ranges(tmp_path: Path) -> None:
    options = PictureOptions(size=(20, 32), type="float32", layout="nchw", fit="crop", resized=(18, 18))
    results = {"y": ResultOptions(take="picture", colour="bgr")}
    run = framed_run(PICTURE, tmp_path / "run", pictures={"images": options}, results=results)
    contract = _packaged(run, tmp_path / "app")
    image, ids, flags = contract.inputs
    assert (image.layout, image.range) == ("NCHW", (0.0, 1.0))
    assert image.picture is not None
    assert (image.picture.fit, image.picture.white) == ("crop", 1.0)
    assert (ids.meaning, ids.range) == ("indices", (0.0, 9.0))
    assert (flags.meaning, flags.range) == ("flags", (0.0, 1.0))
    made, plain, _ = contract.outputs
    assert (made.meaning, made.layout, made.range, made.type) == ("picture", "NHWC", (0.0, 255.0), "uint8")
    assert made.picture is not None
    assert (made.picture.size, made.picture.colour, made.picture.model_size) == ((16, 16), "bgr", None)
    assert (plain.meaning, plain.range, plain.picture) == ("", None, None)
    values = {one["name"]: example(one) for one in json.loads((tmp_path / "app" / "model.json").read_bytes())["inputs"]}
    assert set(values["ids"].reshape(-1)) <= set(range(10))
    assert values["images"].max() < 1
    Loaded(tmp_path / "app", device="cpu").run(values)


@pytest.mark.parametrize(
    ("options", "outputs"),
    [
        (ResultOptions(activation="softmax"), [("probabilities", (0.0, 1.0), "")]),
        (ResultOptions(take="argmax"), [("largest index", None, "")]),
        (
            ResultOptions(activation="softmax", take="topk", top=3),
            [("top values", (0.0, 1.0), "y"), ("top indices", None, "y")],
        ),
        (ResultOptions(), [("", None, "")]),
    ],
)
def test_results(options: ResultOptions, outputs: list[Any], tmp_path: Path) -> None:
    run = framed_run(PICTURE, tmp_path / "run", pictures={"images": PictureOptions()}, results={"y": options})
    contract = _packaged(run, tmp_path / "app")
    image = contract.inputs[0].picture
    assert image is not None
    assert (image.fit, image.size) == ("stretch", (16, 16))
    found = [(one.meaning, one.range, one.about) for one in contract.outputs[: len(outputs)]]
    assert found == outputs
    assert "the model gets it unchanged" in (tmp_path / "app" / "README.md").read_text(encoding="utf-8")


def test_bytes_of_a_made_picture_are_many(tmp_path: Path) -> None:
    run = framed_run(DETECTOR, tmp_path / "run", pictures={"images": PictureOptions(size=(24, 40))})
    one = json.loads((_packaged(run, tmp_path / "app") and tmp_path / "app" / "model.json").read_bytes())["inputs"][0]
    made = example(one)
    assert (made.dtype, made.shape) == (np.uint8, (1, 24, 40, 3))
    assert len(np.unique(made)) == 256


@pytest.mark.parametrize("change", ["size", "result"])
def test_a_note_of_another_model_is_refused(change: str, tmp_path: Path) -> None:
    results = {"y": ResultOptions(take="picture")}
    run = framed_run(PICTURE, tmp_path / "run", pictures={"images": PictureOptions()}, results=results)
    model = ir.load(run / "model.onnx")
    note = json.loads(model.metadata_props["dmlprep.frame"])
    if change == "size":
        note["pictures"][0]["size"] = [17, 16]
    else:
        note["results"][0]["outputs"] = ["f"]
    model.metadata_props["dmlprep.frame"] = json.dumps(note)
    ir.save(model, run / "model.onnx")
    with pytest.raises(ModelRefused, match="metadata of the frame"):
        dmlprep.package_model(run_of(run), out=tmp_path / "app", language="python")
    assert not (tmp_path / "app").exists()


def test_an_older_contract_without_these_fields_is_read(made: Path, tmp_path: Path) -> None:
    document = json.loads((made / "model.json").read_bytes())
    for one in (*document["inputs"], *document["outputs"]):
        for name in ("meaning", "about", "range", "picture"):
            del one[name]
    jsonschema.validate(document, schema())
