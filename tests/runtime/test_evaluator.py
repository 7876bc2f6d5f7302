"""onnx's reference evaluator as a session: what ONNX Runtime cannot load still has reference outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from dmlprep.runtime import SessionFailure, open_cpu, open_evaluator
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here

_BEYOND = onnx.defs.onnx_opset_version() + 1
_TEXT = f"""<ir_version: 14, opset_import: ["" : {_BEYOND}]>
g (float[batch, 4] x) => (float[batch, 4] y, bool[batch, 4] m) <float[4] b = {{1, 2, 3, 4}}> {{
  a = Add(x, b)  y = Relu(a)  m = Greater(y, b)
}}"""


def test_a_model_beyond_onnxruntime(tmp_path: Path) -> None:
    path = tmp_path / "new.onnx"
    onnx.save(parser.parse_model(_TEXT), path)
    with pytest.raises(SessionFailure):
        open_cpu(path)
    x = np.array([[-9, 1, -1, 0]], np.float32)
    with open_evaluator(path) as session:
        assert session.device.name == "onnx reference evaluator"
        assert [(v.name, v.dtype, v.shape) for v in session.inputs] == [("x", "float32", ("batch", 4))]
        got = session.run({"x": x})
        np.testing.assert_array_equal(got["y"], [[0, 3, 2, 4]])
        np.testing.assert_array_equal(got["m"], [[False, True, False, False]])
        assert list(session.run({"x": x}, ["m"])) == ["m"]


def test_it_refuses_like_any_session(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(SessionFailure) as caught:
        open_evaluator(path)
    assert caught.value.kind == "load"


def test_modes_of_grid_sample_by_their_older_names(tmp_path: Path) -> None:
    """A corner of the grid aligned with the image: both names of the mode take the pixel there."""
    for opset, mode in ((16, "bilinear"), (20, "linear")):
        text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (double[1, 1, 2, 2] x, double[1, 1, 1, 2] grid) => (double[1, 1, 1, 1] y) {{
          y = GridSample<mode="{mode}", align_corners=1>(x, grid)
        }}"""
        path = tmp_path / f"{mode}.onnx"
        onnx.save(parser.parse_model(text), path)
        with open_evaluator(path) as session:
            x = np.arange(4, dtype=np.float64).reshape(1, 1, 2, 2)
            got = session.run({"x": x, "grid": np.array([[[[1.0, -1.0]]]])})
        np.testing.assert_array_equal(got["y"], [[[[1.0]]]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_gathered_from_more_than_64(axis: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 90))
    indices = rng.integers(-90, 90, (70, 80))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (double[100, 90] x, int64[70, 80] i) => (double[70, 80] y) {{ y = GatherElements<axis={axis}>(x, i) }}"""
    path = tmp_path / "gather.onnx"
    onnx.save(parser.parse_model(text), path)
    with open_evaluator(path) as session:
        got = session.run({"x": x, "i": indices})["y"]
    with open_cpu(path) as session:
        np.testing.assert_array_equal(got, session.run({"x": x, "i": indices})["y"])
