"""Where an error starts: what each node adds to it in the FP16 emulation, and the first node that is far off."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.targets import find_target
from dmlprep.passes.precision import convert
from dmlprep.passes.precision.search.contribution import Growth, error_growth
from dmlprep.passes.precision.search.origins import around, origins
from tests.passes.precision.graphs import InProcess, feeds_for, model_of

CANCELS = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
    "{ [scale] a = Mul(x, one) [shift] b = Add(a, big) [back] c = Sub(b, big) [turn] d = Transpose<perm = [0, 1]>(c) "
    "[end] y = Tanh(d) }"
)
WEIGHTS = {"big": np.full(16, 4096, np.float32), "one": np.full(16, 1.5, np.float32)}


def grown() -> tuple[dict[str, Growth], int]:
    model = model_of(CANCELS, WEIGHTS)
    feeds = [feeds_for(model, seed) for seed in (0, 1)]
    converted = model.copy()
    convert(converted, find_target(), level="fast")
    runner = InProcess(feeds)
    return error_growth(model, converted, runner, feeds), runner.runs


def test_a_cancellation_is_where_the_error_grows() -> None:
    growth, runs = grown()
    assert runs == 2  # one for each feed
    assert set(growth) == {"scale", "shift", "back", "turn", "end"}
    assert growth["scale"].result < 2**-10
    assert growth["shift"].result < 2**-10
    assert growth["back"].result > 0.1
    assert max(growth, key=lambda name: growth[name].grown) == "back"
    assert abs(growth["turn"].grown) < 1e-6


def test_the_first_node_that_is_far_off_is_the_origin() -> None:
    growth, _ = grown()
    assert origins(model_of(CANCELS, WEIGHTS), growth, 0.01) == ["back"]
    assert origins(model_of(CANCELS, WEIGHTS), growth, 100.0) == []


def test_what_is_much_worse_behind_an_origin_is_one_too() -> None:
    growth = {"scale": Growth(0.01, 0.01), "shift": Growth(0.02, 0.01), "back": Growth(0.9, 0.88)}
    assert origins(model_of(CANCELS, WEIGHTS), growth, 0.01) == ["scale", "back"]


def test_around_a_node_are_those_that_make_its_operands() -> None:
    model = model_of(CANCELS, WEIGHTS)
    assert around(model, "back", 0) == ["back"]
    assert around(model, "back", 1) == ["back", "shift"]
    assert around(model, "end", 1) == ["end", "turn"]
    assert around(model, "end", 2) == ["end", "turn", "back"]


def test_a_node_with_bodies_stands_for_what_is_inside() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) {
        [up] h = Neg (x)
        [choice] y = If (c) < then_branch = t () => (float[2] p) { [root] p = Sqrt (h) },
                              else_branch = e () => (float[2] q) {
                                k = Constant <value = float {1.0}> () [sum] q = Add (x, k) } >
        }"""
    )
    assert set(around(model, "choice", 0)) == {"choice/then_branch/root", "choice/else_branch/sum"}
