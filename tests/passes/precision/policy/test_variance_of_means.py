"""Variances taken as the difference of two means."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.passes.precision import convert, emulate
from tests.passes.precision.graphs import model_of, relative, run

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,16,16] x, float[1,4,16,16] z) => (float[1,4,16,16] y) '
_POOL = "AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>"
_WEIGHTS = {
    "eps": np.float32(1e-4),
    "two": np.float32(2),
    "ninth": np.float32(1 / 9),
    "ones": np.ones((4, 1, 3, 3), np.float32),
}
_FILTERS = {
    "pools": f"[sq] s = Mul(x, x) [m2] a = {_POOL}(s) [m1] b = {_POOL}(x) [bb] c = Mul(b, b) [d] v = Sub(a, c)",
    "box filter": (
        "[sq] s = Pow(x, two) [f2] g0 = Conv<group = 4, pads = [1,1,1,1]>(s, ones) [m2] a = Mul(ninth, g0) "
        "[f1] g1 = Conv<group = 4, pads = [1,1,1,1]>(x, ones) [m1] b = Mul(g1, ninth) [bb] c = Pow(b, two) "
        "[d] v = Sub(a, c)"
    ),
    "covariance": (
        f"[sq] s = Mul(x, z) [m2] a = {_POOL}(s) [m1] b = {_POOL}(x) [m0] n = {_POOL}(z) [bb] c = Mul(n, b) "
        "[d] v = Sub(a, c)"
    ),
    "reductions": (
        "[sq] s = Mul(x, x) [m2] a = ReduceMean<axes = [2, 3]>(s) [m1] b = ReduceMean<axes = [2, 3]>(x) "
        "[bb] c = Mul(b, b) [d] v = Sub(a, c)"
    ),
}
_TAIL = " [e] w = Add(v, eps) [q] y = Div(x, w)"


def _feed() -> dict[str, np.ndarray]:
    """An image that hardly changes from pixel to pixel."""
    rng = np.random.default_rng(0)
    made = (5 + 0.05 * rng.standard_normal((2, 1, 4, 16, 16))).astype(np.float16).astype(np.float32)
    return {"x": made[0], "z": made[0] + 0.01 * made[1]}


@pytest.mark.parametrize("name", _FILTERS)
def test_all_of_it_stays_in_fp32(name: str) -> None:
    text = _HEAD + "{ " + _FILTERS[name] + _TAIL + " }"
    want = run(model_of(text, _WEIGHTS), _feed())["y"]
    model = model_of(text, _WEIGHTS)
    done = convert(model, find_target())
    assert "variance-of-means" in done.rules
    assert {"sq", "m1", "m2", "bb", "d", "e", "q"} <= done.kept_fp32.keys()
    assert relative(want, run(emulate(model), _feed())["y"]) < 0.01
    loose = model_of(text, _WEIGHTS)
    convert(loose, find_target(), level="fast")
    assert relative(want, run(emulate(loose), _feed())["y"]) > 0.05


@pytest.mark.parametrize(
    "body",
    [
        f"s = Mul(x, x) a = {_POOL}(s) b = {_POOL}(z) c = Mul(b, b) v = Sub(a, c)",  # the mean of another value
        f"s = Mul(x, x) b = {_POOL}(x) c = Mul(b, b) v = Sub(s, c)",  # no mean of the product
        f"a = {_POOL}(x) b = {_POOL}(z) c = Mul(b, b) v = Sub(a, c)",  # no product under the mean
        f"s = Mul(x, x) a = {_POOL}(s) b = Relu(x) c = Mul(b, b) v = Sub(a, c)",  # no mean
    ],
)
def test_other_differences_are_none(body: str) -> None:
    done = convert(model_of(_HEAD + "{ " + body + _TAIL + " }", _WEIGHTS), find_target())
    assert "variance-of-means" not in done.rules
