"""The range profile and the island search inside the bodies of If, Loop and Scan."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model.walk import nodes_by_path
from dmlprep.passes.precision import Setting, convert, find_islands, profile
from tests.passes.precision.graphs import InProcess, model_of, relative, run

_SQUARE = "[grow] {0}b = Mul({1}, k) [pw] {0}s = Pow({0}b, two) [rt] {0}r = Sqrt({0}s) [back] {0} = Div({0}r, k)"
_WEIGHTS = {"k": np.float32(1000), "two": np.float32(2)}

_IF = (
    '<ir_version: 8, opset_import: ["" : OPSET]> g (float[2,4] x, bool c) => (float[2,4] y) '
    "{ [pre] a = Relu(x) "
    "[choose] z = If(c) <then_branch = t () => (float[2,4] u) { " + _SQUARE.format("u", "a") + " }, "
    "else_branch = e () => (float[2,4] w) { [tame] w = Mul(a, a) }> "
    "[post] y = Add(z, a) }"
)
_LOOP = (
    '<ir_version: 8, opset_import: ["" : OPSET]> g (float[2,4] x, int64 n) => (float[2,4] y, float[k,2,4] all) '
    "{ [pre] a = Relu(x) "
    "[turn] y, all = Loop(n, , a) <body = b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t, float[2,4] o) "
    "{ on = Identity(go) fi = Cast<to = 1>(i) [step] st = Add(s, fi) " + _SQUARE.format("u", "st") +
    " [next] t = Mul(u, half) [out] o = Relu(u) }> }"
)  # fmt: skip
_SCAN = (
    '<ir_version: 8, opset_import: ["" : OPSET]> g (float[5,4] x) => (float[4] y, float[5,4] all) '
    "{ [pre] a = Relu(x) zero = Constant<value = float[4] {0, 0, 0, 0}>() "
    "[turn] y, all = Scan<num_scan_inputs = 1, body = b (float[4] s, float[4] e) => (float[4] t, float[4] o) { "
    + _SQUARE.format("u", "e") + " [next] t = Add(u, s) [out] o = Mul(u, half) }>(zero, a) }"
)  # fmt: skip
_ALL = {**_WEIGHTS, "half": np.float32(0.5)}
_X = np.linspace(-1, 3, 8, dtype=np.float32).reshape(2, 4)


def _fast(model, keep):
    convert(model, find_target(), level="fast", keep=keep)


def _model(text: str, opset: int):
    return model_of(text.replace("OPSET", str(opset)), _ALL)


@pytest.mark.parametrize("opset", [11, 17, 18, 21])
def test_branches_are_measured_where_they_run(opset):
    model = _model(_IF, opset)
    feed = {"x": _X, "c": np.array(True)}
    found = profile(model, InProcess([feed]), [feed])
    assert found["choose/then_branch/us"].peak == pytest.approx(9e6)
    assert found["choose/then_branch/us"].node == "choose/then_branch/pw"
    assert found["choose/else_branch/w"].peak == 0
    assert found["z"].peak == pytest.approx(3)
    other = {"x": _X, "c": np.array(False)}
    both = profile(model, InProcess([feed, other]), [feed, other])
    assert both["choose/then_branch/us"].peak == pytest.approx(9e6)
    assert both["choose/else_branch/w"].peak == pytest.approx(9)


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("turns", [0, 1, 4])
def test_turns_of_a_loop_are_measured_together(opset, turns):
    model = _model(_LOOP, opset)
    feed = {"x": _X, "n": np.array(turns)}
    found = profile(model, InProcess([feed]), [feed])
    state, peak = np.maximum(_X, 0), 0.0
    for i in range(turns):
        state = (state + i) / 2
        peak = max(peak, float(((state * 2 * 1000) ** 2).max()))
    assert found["turn/body/us"].peak == pytest.approx(peak, rel=1e-5)
    assert found["y"].peak == pytest.approx(float(np.abs(state).max()), rel=1e-5)


def test_slices_of_a_scan_are_measured_together():
    model = _model(_SCAN, 17)
    x = np.arange(20, dtype=np.float32).reshape(5, 4) / 10
    found = profile(model, InProcess([]), [{"x": x}])
    assert found["turn/body/us"].peak == pytest.approx(1900.0**2)
    assert profile(model, InProcess([]), [{"x": x}], chunk=2) == found


@pytest.mark.parametrize(
    ("text", "feed", "node"),
    [
        (_IF, {"x": _X, "c": np.array(True)}, "choose/then_branch/pw"),
        (_LOOP, {"x": _X, "n": np.array(3)}, "turn/body/pw"),
        (_SCAN, {"x": np.arange(20, dtype=np.float32).reshape(5, 4) / 10}, "turn/body/pw"),
    ],
)
def test_nodes_inside_bodies_are_kept_by_place(text, feed, node):
    model = _model(text, 17)
    want = run(model, feed)
    found = find_islands(model, _fast, InProcess([feed]), [feed], Setting(5e-3))
    assert found.met
    assert set(found.keep) == {node}
    assert len(found.follow) == 1  # the root
    places = nodes_by_path(model.ir)
    _fast(model, {id(places[name]): "island" for name in found.keep})
    got = run(model, feed)
    for name, value in want.items():
        assert relative(value, got[name].astype(np.float32)) < 5e-3


def test_an_error_that_starts_inside_a_body_is_found_there():
    """In range everywhere, so that only the error shows it: blocks of the body show where."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, bool c) => (float[2,4] y) '
        "{ [pre] a = Relu(x) [choose] z = If(c) <then_branch = t () => (float[2,4] u) "
        "{ [up] p = Add(a, big) [down] q = Sub(p, big) [soft] u = Tanh(q) }, "
        "else_branch = e () => (float[2,4] w) { [tame] w = Relu(a) }> [post] y = Add(z, a) }"
    )
    model = model_of(text, {"big": np.float32(30000)})
    feed = {"x": _X, "c": np.array(True)}
    found = find_islands(model, _fast, InProcess([feed]), [feed], Setting(5e-3))
    assert found.met
    assert {"choose/then_branch/up", "choose/then_branch/down"} <= set(found.keep)
    assert len(found.keep) <= 3
    assert all("choose/" in why for why in found.keep.values())
    assert len(found.trials) <= 12


_LINES = "".join(
    f"[soft{i}] b{i} = Tanh({a}) [up{i}] c{i} = Add(b{i}, big{i}) [down{i}] d{i} = Sub(c{i}, big{i}) "
    f"[wave{i}] e{i} = Sin(d{i}) [mix{i}] {z} = Mul(e{i}, half) "
    for i, a, z in ((0, "s", "f"), (1, "f", "u"))
)
_WIDE = {
    "If": "[all] z = If(c) <then_branch = t () => (float[1,4096] u) { s = Neg(a) " + _LINES + "}, "
    "else_branch = e () => (float[1,4096] w) { [tame] w = Cos(a) }>",
    "Loop": "[all] z = Loop(n, , a) <body = b (int64 i, bool go, float[1,4096] s) => (bool on, float[1,4096] u) "
    "{ on = Identity(go) " + _LINES + "}>",
    "Scan": "[all] z, more = Scan<num_scan_inputs = 1, "
    "body = b (float[1,4096] s, float[1] q) => (float[1,4096] u, float[1] r) { [pass] r = Neg(q) "
    + _LINES
    + "}>(a, once)",
}


@pytest.mark.parametrize("operator", ["If", "Loop", "Scan"])
def test_a_body_is_searched_by_blocks(operator):
    """Few elements of many are off, so that no value as a whole shows where the error starts."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4096] x, bool c, int64 n) => (float[1,4096] y) '
        "{ [pre] a = Cos(x) " + _WIDE[operator] + " [post] y = Sin(z) }"
    )
    weights = {f"big{i}": np.where(np.arange(4096) == i, np.float32(50), np.float32(0))[None] for i in (0, 1)}
    model = model_of(text, {**weights, "half": np.float32(0.5), "once": np.zeros((1, 1), np.float32)})
    feed = {"x": np.linspace(-3, 3, 4096, dtype=np.float32)[None], "c": np.array(True), "n": np.array(1)}
    found = find_islands(model, _fast, InProcess([feed]), [feed], Setting(5e-3))
    assert found.met
    body = "then_branch" if operator == "If" else "body"
    assert set(found.keep) == {f"all/{body}/{name}{i}" for name in ("up", "down") for i in (0, 1)}
    assert len(found.trials) < 50
    for why in found.keep.values():
        without, beside = map(float, re.search(r"from (\S+) to (\S+)$", why).groups())
        assert without <= 5e-3 < beside
