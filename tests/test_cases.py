"""Every case file: the pass does what the file says, keeps the values, and changes nothing when it runs again."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from packaging.version import Version

from dmlprep.passes import find_pass
from tests.cases import case_files, check_refusal, expected_text, read_case, run_again, run_case, run_on_cpu

_BOUNDS = {"exact": 0.0, "rounding": 1e-5, "fp16": 2e-2, "few-bits": 0.5}
"""Largest difference by the bound that a pass declares (passes/base.py)."""


@pytest.mark.parametrize("path", case_files(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_case(path):
    case = read_case(path)
    outcome = run_case(case)
    if "findings" in case.head:
        assert outcome.findings == sorted(case.head["findings"])
    if case.end == "refused":
        check_refusal(case, outcome)
        return
    if outcome.error is not None:
        raise outcome.error
    assert outcome.end == case.end
    if case.end == "after":
        assert outcome.text == expected_text(case)
    again = run_again(case, outcome.model)
    if again.error is not None:
        raise again.error
    assert again.end == "same", f"the second run changed the model:\n{again.text}"
    since = case.head.get("run", True)
    if isinstance(since, str) and Version(onnxruntime.__version__) < Version(since):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} refuses the graph before; {since} runs it")
    if since:
        bound = _BOUNDS[find_pass(case.head["pass"]).bound]
        for a, b in zip(*run_on_cpu(case, outcome.model), strict=True):
            np.testing.assert_equal(a.shape, b.shape)
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=0, atol=bound * max(1.0, float(np.abs(a).max(initial=0))))
            else:
                np.testing.assert_array_equal(a, b)
