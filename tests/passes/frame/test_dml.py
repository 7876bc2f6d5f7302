"""Frames on the real DirectML: the numbers of the reference pipeline, and Pillow's very bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dmlprep import api
from dmlprep.passes.framing import PictureOptions, resolve, write_frame
from dmlprep.runtime import SessionOptions, dml_status, open_dml
from tests.passes.framing.graphs import handing_on

pytestmark = pytest.mark.dml

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"

_FRAMES = {
    "residual_cnn": """
[step.pin]
sizes = { batch = 1 }
[step.opset]
[step.frame.inputs.pixel_values]
size = [45, 60]
fit = "crop"
colour = "bgra"
mean = 0.5
deviation = 0.25
[step.frame.outputs.logits]
activation = "softmax"
take = "topk"
""",
    "detector_raw": """
[step.opset]
[step.frame.inputs.images]
size = [96, 160]
fit = "letterbox"
resize = "opencv-linear"
[step.frame.detect]
raw = "output0"
corners = "cxcywh"
""",
    "unet_resize": """
[step.pin]
sizes = { batch = 1, height = 16, width = 24 }
[step.opset]
[step.simplify]
[step.frame.inputs.image]
size = [32, 32]
layout = "nchw"
[step.frame.outputs.mask]
take = "picture"
""",
}


@pytest.fixture(autouse=True, scope="module")
def dml() -> None:
    status = dml_status()
    if not status.available:
        pytest.skip(f"no DirectML here: {status.reason}")


@pytest.mark.parametrize("name", _FRAMES)
def test_a_framed_fixture_is_proved_on_directml(name: str, tmp_path: Path) -> None:
    recipe = tmp_path / "frame.toml"
    recipe.write_text(f'doc = "{name}, framed"\n{_FRAMES[name]}')
    record = api.prepare(MODELS / f"{name}.onnx", out=tmp_path / "out", recipe=recipe, require_dml=True)
    assert {str(v.check): v.outcome for v in record.verdicts} == {"parity on cpu": "passed", "parity on dml": "passed"}
    assert record.facts.placement_after is not None
    assert record.facts.placement_after.node_share == 1.0


@pytest.mark.parametrize("mode", ["pillow-bilinear", "pillow-lanczos"])
def test_bytes_are_those_of_pillow(mode: str, tmp_path: Path) -> None:
    model = handing_on((1, 3, 30, 25))
    write_frame(model, resolve(model.ir, {"x": PictureOptions(size=(97, 61), resize=mode, scale=255)}))  # type: ignore[arg-type]
    model.save(tmp_path / "m.onnx")
    given = np.random.default_rng(0).integers(0, 256, (1, 97, 61, 3)).astype(np.uint8)
    with open_dml(tmp_path / "m.onnx", SessionOptions()) as session:
        found = session.run({"x": given})["y"][0]
    small = Image.fromarray(given[0]).resize((25, 30), Image.Resampling[mode.split("-")[1].upper()])
    assert np.array_equal(found, np.moveaxis(np.asarray(small), -1, 0))
