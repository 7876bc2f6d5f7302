"""A sample of ONNX's own node cases in FP16; tests/benchmarks/fp16_suite.py runs all of them."""

from __future__ import annotations

import warnings

import pytest

from tests.benchmarks.fp16_suite import CLEAN, EXPLAINED, in_scope, judge
from tests.benchmarks.opset_suite import cases


@pytest.mark.parametrize("keep_io", [pytest.param(True, marks=pytest.mark.slow), False], ids=["keep_io", "half_io"])
def test_a_sample_of_the_node_suite(keep_io: bool) -> None:
    sample = [c for c in cases() if in_scope(c.model)][::37]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference evaluator: overflows that the cases ask for
        outcomes = {c.name: judge(c, keep_io, "balanced") for c in sample}
    assert {n: o for n, o in outcomes.items() if o[0] not in (*CLEAN, *EXPLAINED)} == {}
    assert sum(o[0] in CLEAN for o in outcomes.values()) >= 0.95 * len(sample)
