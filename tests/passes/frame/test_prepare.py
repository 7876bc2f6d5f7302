"""A framed model is proved: on raw pictures, against the original behind the reference pipeline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from PIL import Image

from dmlprep import api
from dmlprep.core.errors import InputError, RecipeError
from dmlprep.graph.model import Model
from dmlprep.passes.framing import frame_of
from dmlprep.record import RunRecord

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"

_RECIPE = """
doc = "residual_cnn on pictures"
[step.pin]
sizes = {{ batch = 1 }}
[step.opset]
[step.simplify]
{more}
[step.frame.inputs.pixel_values]
size = [45, 60]
fit = "crop"
resized = 36
mean = [0.485, 0.456, 0.406]
deviation = [0.229, 0.224, 0.225]
[parity]
dml = "off"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "frame.toml"
    path.write_text(_RECIPE.format(more=""))
    return path


def _prepared(recipe: Path, out: Path, **more: Any) -> RunRecord:
    return api.prepare(MODELS / "residual_cnn.onnx", out=out, recipe=recipe, **more)


def _raw(count: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(3)
    return [{"pixel_values": rng.integers(0, 256, (1, 45, 60, 3)).astype(np.uint8)} for _ in range(count)]


def test_it_computes_what_the_original_computes_behind_pillow(recipe: Path, tmp_path: Path) -> None:
    record = _prepared(recipe, tmp_path / "out", feeds=_raw(2))
    assert [v.outcome for v in record.verdicts] == ["passed"], record.verdicts
    assert not record.verdicts[0].on_made_inputs
    raw = _raw(1)[0]["pixel_values"]
    small = Image.fromarray(raw[0]).resize((48, 36), Image.Resampling.BILINEAR)
    middle = np.asarray(small.crop((8, 2, 40, 34))) / 255
    pixels = (middle - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    first, second = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        for path in (MODELS / "residual_cnn.onnx", tmp_path / "out" / "model.onnx")
    )
    wanted = first.run(None, {"pixel_values": np.moveaxis(pixels, -1, 0)[None].astype(np.float32)})[0]
    assert np.max(np.abs(second.run(None, {"pixel_values": raw})[0] - wanted)) < 1e-5 * np.max(np.abs(wanted))
    assert second.get_inputs()[0].type == "tensor(uint8)"
    assert second.get_inputs()[0].shape == [1, 45, 60, 3]


def test_made_pictures_prove_it_too(recipe: Path, tmp_path: Path) -> None:
    record = _prepared(recipe, tmp_path / "out")
    assert [v.outcome for v in record.verdicts] == ["passed"], record.verdicts
    assert record.verdicts[0].on_made_inputs
    assert [f.code for s in record.steps for f in s.findings if s.step == "frame"] == ["DP304"]


def test_a_wrong_frame_fails(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference pipeline has nothing of the frame's own: what is wrong there shows."""
    from dmlprep.passes.framing import pictures

    monkeypatch.setattr(
        pictures, "_scaled", lambda nodes, picture, value: nodes.with_number("Mul", value, 0.01, "wrong")
    )
    record = _prepared(recipe, tmp_path / "out")
    assert [v.outcome for v in record.verdicts] == ["failed"]
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_feeds_are_those_of_the_app(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs uint8, but the feed is float32"):
        _prepared(recipe, tmp_path / "out", feeds=[{"pixel_values": np.zeros((1, 3, 32, 32), np.float32)}])


def test_the_frame_is_around_fp16(tmp_path: Path) -> None:
    """The FP16 step searches on what is inside the frame, and the frame stays in FP32."""
    recipe = tmp_path / "half.toml"
    recipe.write_text(_RECIPE.format(more='[step.fp16]\nislands = "auto"\nallow = ["little-gain"]'))
    record = _prepared(recipe, tmp_path / "out", feeds=_raw(2))
    assert [v.outcome for v in record.verdicts] == ["passed", "passed"], record.verdicts
    made = Model.open(tmp_path / "out" / "model.onnx")
    own = [n for n in made.ir.graph if (n.name or "").startswith("pixel_values_") and n.op_type != "Cast"]
    assert own
    assert not any(v.dtype is not None and v.dtype.name == "FLOAT16" for n in own for v in n.outputs)


def test_compare_and_kit_know_the_frame(recipe: Path, tmp_path: Path) -> None:
    _prepared(recipe, tmp_path / "out")
    made, original = tmp_path / "out" / "model.onnx", MODELS / "residual_cnn.onnx"
    assert api.compare(original, made, feeds=_raw(1)).outcome == "passed"
    assert api.compare(original, made).outcome == "passed"
    api.pack_kit(made, out=tmp_path / "kit.zip")
    # Prepared again, the frame is part of the original.
    assert frame_of(Model.open(made).ir) is not None
    again = api.prepare(made, out=tmp_path / "again", recipe="@static-fp32", device="cpu")
    assert next(v.outcome for v in again.verdicts if v.outcome != "not-run") == "passed"


def test_the_frame_goes_on_last(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.toml"
    recipe.write_text('doc = "wrong"\n[step.frame.inputs.x]\nsize = [4, 4]\n[step.simplify]\n')
    with pytest.raises(RecipeError, match="step 'simplify' follows the frame"):
        api.plan(recipe)


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.toml"
    recipe.write_text('doc = "wrong"\n[step.frame.inputs.x]\nsiez = [4, 4]\n')
    with pytest.raises(RecipeError, match="siez"):
        api.plan(recipe)


def test_the_model_is_in_the_opset_that_it_had(recipe: Path, tmp_path: Path) -> None:
    _prepared(recipe, tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 11


def test_what_it_costs_is_timed_on_the_same_pictures(recipe: Path, tmp_path: Path) -> None:
    record = _prepared(recipe, tmp_path / "out", bench=True, bench_seconds=0.2)
    assert record.facts.bench is not None
    assert [row.not_run for row in record.facts.bench.models] == ["", "", ""]


def test_a_framed_model_is_not_bisected(recipe: Path, tmp_path: Path) -> None:
    _prepared(recipe, tmp_path / "out")
    with pytest.raises(InputError, match="has a frame"):
        api.bisect(MODELS / "residual_cnn.onnx", tmp_path / "out" / "model.onnx")


def test_the_best_classes_come_out(recipe: Path, tmp_path: Path) -> None:
    table = '[step.frame.outputs.logits]\nactivation = "softmax"\ntake = "topk"\ntop = 3\n[parity]'
    recipe.write_text(recipe.read_text().replace("[parity]", table))
    record = _prepared(recipe, tmp_path / "out")
    assert [v.outcome for v in record.verdicts] == ["passed"], record.verdicts
    assert [m.output for m in record.verdicts[0].outputs] == ["logits_values", "logits_indices"]
    made = onnx.load(tmp_path / "out" / "model.onnx").graph.output
    assert [(o.name, [d.dim_value for d in o.type.tensor_type.shape.dim]) for o in made] == [
        ("logits_values", [1, 3]),
        ("logits_indices", [1, 3]),
    ]


def test_pictures_in_and_pictures_out(tmp_path: Path) -> None:
    recipe = tmp_path / "frame.toml"
    recipe.write_text("""
doc = "super-resolution of gray pictures"
[step.pin]
sizes = { batch = 1, height = 24, width = 32 }
[step.opset]
[step.frame.inputs.lr]
colour = "rgba"
[step.frame.outputs.sr]
take = "picture"
[parity]
dml = "off"
""")
    record = api.prepare(MODELS / "super_resolution.onnx", out=tmp_path / "out", recipe=recipe)
    assert [v.outcome for v in record.verdicts] == ["passed"], record.verdicts
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (graph.input[0], graph.output[0])]
    assert shapes == [[1, 24, 32, 4], [1, 48, 64, 3]]
    assert {v.type.tensor_type.elem_type for v in (graph.input[0], graph.output[0])} == {onnx.TensorProto.UINT8}


_DETECTOR = """
doc = "boxes of a detector, in pixels of the app's picture"
[step.opset]
[step.simplify]
[step.frame.inputs.images]
size = [96, 160]
fit = "letterbox"
fill = 114
resize = "opencv-linear"
[step.frame.detect]
raw = "output0"
corners = "cxcywh"
score = 0.5
count = 24
[parity]
dml = "off"
"""


def _detector(folder: Path, more: str = "") -> RunRecord:
    recipe = folder / "boxes.toml"
    recipe.write_text(_DETECTOR.replace("[step.frame.inputs", f"{more}\n[step.frame.inputs", 1))
    return api.prepare(MODELS / "detector_raw.onnx", out=folder / "out", recipe=recipe)


def test_a_detector_takes_bytes_and_gives_boxes(tmp_path: Path) -> None:
    record = _detector(tmp_path)
    assert [v.outcome for v in record.verdicts] == ["passed"], record.verdicts
    assert record.facts.placement_after is not None
    assert record.facts.placement_after.node_share == 1.0
    session = ort.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("images", "tensor(uint8)", [1, 96, 160, 3])]
    assert {o.name: o.shape for o in session.get_outputs()} == {
        "detected_boxes": [1, 24, 4],
        "detected_scores": [1, 24],
        "detected_classes": [1, 24],
        "detected_count": [1],
    }
    picture = np.random.default_rng(0).integers(0, 256, (1, 96, 160, 3)).astype(np.uint8)
    boxes, scores, classes, count = session.run(None, {"images": picture})
    assert 0 < count[0] <= 24
    assert np.all(np.diff(scores[0]) <= 0)
    assert np.all(classes[0, : count[0]] >= 0)
    assert np.all((boxes >= 0) & (boxes <= [160, 96, 160, 96]))


def test_boxes_of_a_detector_that_is_all_fp16(tmp_path: Path) -> None:
    """The original takes FP32 where the model in the frame takes FP16."""
    record = _detector(tmp_path, '[step.fp16]\nkeep_io = false\nallow = ["little-gain"]')
    assert [v.outcome for v in record.verdicts] == ["passed", "passed"], record.verdicts
    made = Model.open(tmp_path / "out" / "model.onnx").ir.graph
    assert [v.dtype.name for v in (*made.inputs, *made.outputs) if v.dtype] == [
        "UINT8",
        "FLOAT",
        "FLOAT",
        "INT32",
        "INT32",
    ]


_PAGE = Path(__file__).resolve().parents[3] / "docs" / "passes" / "frame.md"
_ON_PAGE = {
    "Classify photos.": ("residual_cnn", {"logits_values": (1, 5), "logits_indices": (1, 5)}),
    "Segment photos into a gray mask.": ("unet_resize", {"mask": (1, 64, 96, 1)}),
    "Double the size of gray pictures.": ("super_resolution", {"sr": (1, 128, 192, 1)}),
    "Find objects in video frames.": ("detector_raw", {"detected_boxes": (1, 100, 4)}),
}


def test_the_recipes_on_its_page_run(tmp_path: Path) -> None:
    recipes = re.findall(
        r'^```toml\n(doc = "([^\n]+)"\n.*?)^```', _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert sorted(doc for _, doc in recipes) == sorted(_ON_PAGE)
    for text, doc in recipes:
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        name, shapes = _ON_PAGE[doc]
        record = api.prepare(MODELS / f"{name}.onnx", out=tmp_path / name, recipe=path, device="cpu")
        assert record.exit_code == 0, record.error
        model = onnx.load(tmp_path / name / "model.onnx")
        dims = {one.name: tuple(d.dim_value for d in one.type.tensor_type.shape.dim) for one in model.graph.output}
        assert {output: dims[output] for output in shapes} == shapes
        assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
