"""What is said where FP16 gains little."""

from __future__ import annotations

from math import inf

from dmlprep.passes.precision.gain import smaller_question
from dmlprep.record.steps import StepFacts, Trial


def _facts(error: float) -> StepFacts:
    return StepFacts(outputs_in_fp16={"y": error, "z": 0.001}, trials=[Trial(0, error), Trial(12, 0.002)])


def test_a_tolerance_is_offered_where_one_helps() -> None:
    said = smaller_question(_facts(0.2), 0.015)
    assert "'y' is off by 0.2, the other 1 outputs meet 0.015" in said
    assert "a tolerance of 0.21 needs at most 0 nodes in FP32" in said
    assert "--metric" in said


def test_no_tolerance_is_offered_for_an_overflow() -> None:
    said = smaller_question(_facts(inf), 0.015)
    assert said.startswith("with everything in FP16 'y' overflows, or its shape or rows differ, and no tolerance")
    assert "inf" not in said


def test_no_tolerance_is_offered_for_an_error_of_the_whole_range() -> None:
    said = smaller_question(_facts(2.0), 0.015)
    assert "a tolerance of" not in said
    assert "--metric" in said
