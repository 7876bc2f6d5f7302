"""The kit judges by the rules of the proof, here and on the other machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from dmlprep import api
from tests.kit.box import CPU, extract, run_kit

_DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 8] scores, float[1, 8, 4] boxes) => (float[1, 5] best, float[1, 5, 4] chosen)
<float[1, 8] shift = {%s}, float factor = {%s}, int64[1] k = {5}, int64[1] two = {2}, int64[3] wide = {1, 5, 4}> {
  moved = Add(scores, shift)  best, index = TopK(moved, k)
  behind = Unsqueeze(index, two)  every = Expand(behind, wide)
  scaled = Mul(boxes, factor)  chosen = GatherElements<axis = 1>(scaled, every)
}"""

_IMAGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 8, 8] x) => (uint8[1, 3, 8, 8] y) <float scale = {100.0}, float shift = {%s}> {
  s = Sigmoid(x)  m = Mul(s, scale)  a = Add(m, shift)  y = Cast<to = 2>(a)
}"""


def _detector(shift: str, factor: str) -> str:
    return _DETECTOR % (shift, factor)


AS_IT_IS = "0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0"
NEAR_TIE = "0.0, 0.0, 0.0000002, 0.0, 0.0, 0.0, 0.0, 0.0"


def _feeds() -> dict[str, np.ndarray]:
    scores = np.array([[0.9, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]], np.float32)
    return {"scores": scores, "boxes": np.random.default_rng(0).random((1, 8, 4)).astype(np.float32)}


@pytest.mark.parametrize(
    ("original", "model", "tolerance", "outcome"),
    [
        (_detector(AS_IT_IS, "1.0"), _detector(NEAR_TIE, "1.0"), "auto", "passed"),
        (_detector(AS_IT_IS, "1.0"), _detector(NEAR_TIE, "1.1"), "auto", "failed"),
        (_IMAGE % "0.0", _IMAGE % "1.0", "loose", "passed"),
        (_IMAGE % "0.0", _IMAGE % "40.0", "loose", "failed"),
    ],
    ids=["ranked", "ranked, other boxes", "image", "image, far off"],
)
def test_rankings_and_images_are_judged_as_the_proof_judges_them(
    tmp_path: Path, original: str, model: str, tolerance: str, outcome: str
) -> None:
    for name, text in (("original", original), ("model", model)):
        onnx.save(parser.parse_model(text), tmp_path / f"{name}.onnx")
    feeds = [_feeds()] if "TopK" in original else []
    files = (tmp_path / "original.onnx", tmp_path / "model.onnx")
    here = api.compare(*files, feeds=feeds, tolerance=tolerance, device="cpu")
    assert here.outcome == outcome
    api.pack_kit(files[1], out=tmp_path / "k.zip", reference=files[0], feeds=feeds, tolerance=tolerance)
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    done = run_kit(box, *CPU)
    assert done.returncode == (0 if outcome == "passed" else 1), done.stdout
    verdict, _ = api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip")
    assert verdict.outcome == outcome
    assert verdict.outputs == here.outputs
