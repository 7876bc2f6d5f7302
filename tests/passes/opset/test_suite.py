"""A sample of ONNX's own node cases; tests/benchmarks/opset_suite.py runs all of them."""

from __future__ import annotations

import warnings

import pytest

from tests.benchmarks.opset_suite import cases, in_scope, judge


@pytest.mark.slow
@pytest.mark.parametrize(("target", "share"), [(21, 0.97), (17, 0.95), (13, 0.9)])
def test_a_sample_of_the_node_suite(target: int, share: float) -> None:
    sample = [c for c in cases() if in_scope(c.model, target)][::23]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference evaluator: overflows that the cases ask for
        outcomes = {c.name: judge(c, target, "dmlprep") for c in sample}
    wrong = {n: o for n, o in outcomes.items() if o[0] not in ("equal", "refused", "random", "rounding", "as before")}
    assert wrong == {}
    assert sum(o[0] == "equal" for o in outcomes.values()) >= (share - 0.03) * len(sample)  # a sample strays
