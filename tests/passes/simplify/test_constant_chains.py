"""Chains of constants are judged by their ends, not by their links."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.pin import PinOptions, PinPass
from dmlprep.passes.simplify import SimplifyOptions, SimplifyPass
from tests.passes.simplify.test_simplify import Runner

_RESIZE = """p4 = Reshape (pos, grid)  pt = Transpose <perm = [0, 3, 1, 2]> (p4)
pr = Resize <mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel"> (pt, , scales)"""

# The graph behind the weights, the operators that stay, and the scale of the Resize.
CASES: dict[str, tuple[str, list[str], float]] = {
    "a position embedding that shrinks": (f"{_RESIZE} y = Add (x, pr)", ["Add"], 0.45),
    "one that grows by 20 %": (f"{_RESIZE} y = Add (x, pr)", ["Add"], 34.1 / 31),
    "one that grows by 27 %": (f"{_RESIZE} y = Add (x, pr)", ["Add", "Reshape", "Resize", "Transpose"], 35.1 / 31),
    "two ends that grow by 12 % together": (
        f"{_RESIZE} q = Slice (pr, zero, one, one)  z = Add (x, pr)  y = Mul (z, q)",
        ["Add", "Mul"],
        31.1 / 31,
    ),
    "two ends next to a weight that only turns": (
        f"{_RESIZE} q = Slice (pr, zero, one, one)  z = Add (x, pr)  m = Mul (z, q)  i = Cast <to = 7> (x)"
        "  t = Transpose <perm = [0, 2, 1]> (pos)  j = Gather (t, i)  k = ReduceMax <keepdims = 0> (j)  y = Add (m, k)",
        ["Add", "Add", "Cast", "Gather", "Mul", "ReduceMax", "Transpose"],
        0.45,
    ),
    "one that grows, on DirectML": (
        f"{_RESIZE.replace('cubic', 'linear')} y = Add (x, pr)",
        ["Add", "Reshape", "Resize", "Transpose"],
        34.1 / 31,
    ),
    "one that the graph reads as well": (
        f"{_RESIZE.replace('cubic', 'linear')} z = Add (x, pr)  i = Cast <to = 7> (x)"
        "  j = Gather (pos, i)  k = ReduceMax <keepdims = 0> (j)  y = Add (z, k)",
        ["Add", "Add", "Cast", "Gather", "ReduceMax", "Reshape", "Resize", "Transpose"],
        0.45,
    ),
    "a chain that grows again": (f"{_RESIZE} r = Tile (pr, many)  y = Add (x, r)", ["Add", "Tile"], 0.45),
    "two parts of one table": (
        "a = Slice (pos, zero, one, one)  b = Slice (pos, one, end, one)  c = ReduceMean <axes = [1]> (b)"
        "  d = Add (x, a)  y = Mul (d, c)",
        ["Add", "Mul"],
        1.0,
    ),
    "a weight that only turns": (
        "t = Transpose <perm = [0, 2, 1]> (pos)  y = MatMul (x, t)",
        ["MatMul", "Transpose"],
        1.0,
    ),
    "few numbers with a large link": (
        "r = Expand (zero, wide)  f = Cast <to = 1> (r)  m = ReduceSum <keepdims = 1> (f, axes)  y = Add (x, m)",
        ["Add"],
        1.0,
    ),
}


def _model(body: str, scale: float, x: str) -> Model:
    y = "a,b,c,d"[: len(x.split(",")) * 2 - 1]
    text = f"""<ir_version: 8, opset_import: ["" : 13]> g (float[{x}] x) => (float[{y}] y)
    <int64[4] grid = {{1, 31, 31, 8}}, int64[4] many = {{9, 1, 1, 1}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
     int64[1] end = {{961}}, int64[1] eight = {{8}}, float[1] positions = {{961}}, float[1] half = {{0.5}},
     int64[2] wide = {{700, 700}}, int64[2] axes = {{0, 1}}> {{ {body} }}"""
    proto = parser.parse_model(text)
    pos = np.random.default_rng(0).standard_normal((1, 961, 8)).astype(np.float32)
    scales = np.array([1, 1, scale, scale], np.float32)
    proto.graph.initializer.extend(map(numpy_helper.from_array, (pos, scales), ("pos", "scales")))
    return Model(ir.from_proto(proto))


@pytest.mark.parametrize("name", CASES)
def test_a_chain_is_judged_by_its_end(name: str) -> None:
    body, stay, scale = CASES[name]
    size = int(31 * scale)
    shape = (1, 8, size, size) if "Resize" in body else (1, 5, 8)
    model = _model(body, scale, ",".join(map(str, shape)))
    feed = {"x": np.random.default_rng(1).uniform(-0.9, 0.9, shape).astype(np.float32)}
    expected = _run(model, feed)
    runner = Runner()
    runner.feeds = lambda model, count=1: [feed]  # type: ignore[method-assign]
    context = Context(find_target(), before=model.snapshot(), runner=runner)
    SimplifyPass(SimplifyOptions()).run(model, context)
    assert sorted(n.op_type for n in model.ir.graph if n.op_type != "Constant") == stay
    np.testing.assert_allclose(_run(model, feed), expected, rtol=1e-6, atol=1e-6)


def test_as_many_rows_as_the_root_of_the_positions() -> None:
    rows = (
        "side = Pow (positions, half)  h = Cast <to = 7> (side)  square = Concat <axis = 0> (one, h, h, eight)"
        f"  {_RESIZE.replace('grid', 'square')} y = Add (x, pr)"
    )
    model = _model(rows, 0.45, "1,8,13,13")
    feed = {"x": np.random.default_rng(1).uniform(-0.9, 0.9, (1, 8, 13, 13)).astype(np.float32)}
    expected = _run(model, feed)
    runner = Runner()
    runner.feeds = lambda model, count=1: [feed]  # type: ignore[method-assign]
    for step in (PinPass(PinOptions()), SimplifyPass(SimplifyOptions())):
        step.run(model, Context(find_target(), before=model.snapshot(), runner=runner))
    assert [n.op_type for n in model.ir.graph if n.op_type != "Constant"] == ["Add"]
    np.testing.assert_allclose(_run(model, feed), expected, rtol=1e-6, atol=1e-6)


def _run(model: Model, feed: dict[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model.ir).SerializeToString())
    return np.asarray(session.run(None, feed)[0])
