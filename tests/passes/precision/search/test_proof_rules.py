"""The search judges by what the proof will decide by: kinds of outputs, bounds, and the user's metric."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.metrics import ProofRules, UserMetric
from dmlprep.passes.precision import Setting, convert, find_islands
from tests.passes.precision.graphs import InProcess, feeds_for, model_of

RNG = np.random.default_rng(3)
STEEP = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[64,16] x) => (float[64,64] y) '
    "{ [mm] a = MatMul(x, w) [scale] b = Mul(a, c) [squash] s = Sigmoid(b) [out] y = Add(s, zero) }"
)
WEIGHTS = {
    "w": RNG.standard_normal((16, 64)).astype(np.float32),
    "c": np.float32(300),
    "zero": np.float32(0),
}


def _fast(model, keep):
    convert(model, find_target(), level="fast", keep=keep)


def _search(model, rules):
    feeds = [feeds_for(model)]
    return find_islands(model, _fast, InProcess(feeds), feeds, Setting(0.015, rules=rules))


def test_the_kind_that_the_user_gave():
    model = model_of(STEEP, WEIGHTS)
    assert _search(model, ProofRules()).keep
    assert not _search(model, ProofRules({"y": "map"})).keep


@pytest.mark.parametrize(("tolerance", "kept"), [("auto,overlap=0.9999", True), ("auto,overlap=0.99", False)])
def test_the_bounds_that_the_user_gave(tolerance, kept):
    model = model_of(STEEP, WEIGHTS)
    assert bool(_search(model, ProofRules({"y": "map"}, tolerance)).keep) == kept


def test_no_more_than_the_proof_allows():
    model = model_of(STEEP, WEIGHTS)
    assert ProofRules(tolerance="rel:0.001").judge(model, 0.015).enough == 0.001
    assert ProofRules(tolerance="loose").judge(model, 0.015).enough == 0.015
    found = _search(model, ProofRules(tolerance="rel:0.0005"))
    assert not found.met or found.error <= 0.0005


@pytest.mark.parametrize(
    ("metric", "bound", "kept"),
    [
        (lambda a, b: float(np.mean((a["y"] > 0.5) != (b["y"] > 0.5))), 0.1, False),
        (lambda a, b: float(np.max(np.abs(a["y"] - b["y"]))), 1e-3, True),
        (lambda a, b: (0.0, True), None, False),
        (lambda a, b: (0.0, bool(np.max(np.abs(a["y"] - b["y"])) < 1e-3)), None, True),
        (lambda a, b: float(np.any(a["y"] - b["y"] > 0.02)), 0.0, True),
    ],
)
def test_the_users_metric_decides(metric, bound, kept):
    model = model_of(STEEP, WEIGHTS)
    found = _search(model, ProofRules(metric=UserMetric("mine.py:metric", metric, bound)))
    assert found.met
    assert bool(found.keep) == kept


STEP = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x, float[4,64] h) => (float[4,64] y, float[4,64] NAME) '
    "{ [mm] a = MatMul(x, v) [grow] b = Mul(a, two) [add] s = Add(b, h) [squash] NAME = Tanh(s) [out] y = Relu(x) }"
)


@pytest.mark.parametrize(("name", "kept"), [("hn", True), ("z", False)])
def test_a_state_that_the_next_step_reads_is_judged_by_more(name, kept):
    weights = {"v": np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32), "two": np.float32(2)}
    found = _search(model_of(STEP.replace("NAME", name), weights), ProofRules())
    assert found.met
    assert bool(found.keep) == kept
    if kept:
        # what is said of an output is its own error, not what it counts
        assert 0.015 / 4 < found.outputs[name] < 0.015
        assert found.trials[0].error == pytest.approx(4 * found.outputs[name])
