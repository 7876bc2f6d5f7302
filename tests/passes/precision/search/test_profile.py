"""The range profile: what values are at FP32, measured inside the graph."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.passes.precision import profile
from tests.passes.precision.emulation.test_emulate import OVERFLOW, OVERFLOW_WEIGHTS
from tests.passes.precision.graphs import InProcess, deep, feeds_for, model_of, run


def test_profile_measures_ranges():
    model = model_of(OVERFLOW, OVERFLOW_WEIGHTS)
    feeds = [feeds_for(model, seed) for seed in (0, 1)]
    found = profile(model, InProcess(feeds), feeds)
    assert set(found) == {"b", "sq", "v", "ve", "sd", "y"}
    truth = [run(_with_outputs(), f) for f in feeds]
    for name in ("b", "sq", "v"):
        assert found[name].peak == pytest.approx(max(np.abs(t[name]).max() for t in truth))
    assert found["b"].minimum == pytest.approx(min(t["b"].min() for t in truth))
    assert {n for n, r in found.items() if r.overflows} == {"sq", "v", "ve"}


def _with_outputs():
    return model_of(
        OVERFLOW.replace("(float[2,16] y)", "(float[2,16] y, float[2,16] b, float[2,16] sq, float[2,1] v)"),
        OVERFLOW_WEIGHTS,
    )


def test_profile_counts_what_falls_below_the_normal_range():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Mul(x, k) }',
        {"k": np.array([1, 1e-6, 1e-6, 0], np.float32)},
    )
    feed = {"x": np.ones((2, 4), np.float32)}
    assert profile(model, InProcess([feed]), [feed])["y"].small == 0.5


def test_profile_in_chunks_and_with_empty_tensors():
    text, weights = deep(6, 3)
    model = model_of(text, weights)
    feed = feeds_for(model)
    runner = InProcess([feed])
    whole = profile(model, runner, [feed])
    assert profile(model, runner, [feed], chunk=5) == whole
    empty = model_of('<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }')
    nothing = {"x": np.zeros((0, 4), np.float32)}
    assert profile(empty, InProcess([nothing]), [nothing])["y"].peak == 0
