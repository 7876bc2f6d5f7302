"""What figures amount to."""

from __future__ import annotations

import msgspec
import pytest

from dmlprep.core.errors import UsageError
from dmlprep.genai.proof.bounds import BOUNDS, choose_bounds, precision_beside
from dmlprep.genai.proof.figures import Differences, judge_greedy, judge_logits, judge_perplexity
from dmlprep.record import Check, Verdict
from dmlprep.record.generation import GenaiCheck, GenaiProof, GreedyText, LogitFigures, Perplexity

RAN = Verdict(Check("steps", "cpu"), "passed")
GOOD = LogitFigures(
    positions=20,
    max_difference=0.1,
    mean_difference=0.01,
    kl=1e-5,
    worst_kl=1e-4,
    information=3.0,
    top1=1.0,
    top5=1.0,
    margin=1.0,
    noise=0.01,
    decided=20,
    top1_decided=1.0,
)


@pytest.mark.parametrize(
    ("changes", "outcome", "word"),
    [
        ({}, "passed", ""),
        ({"kl": 2e-3}, "failed", "KL"),
        ({"kl": 5e-5, "information": 2e-3}, "failed", "KL"),
        ({"information": 1e-5, "kl": 1e-9}, "not-proven", "equally likely"),
        ({"top1_decided": 0.9}, "failed", "18 of the 20"),
        ({"decided": 4, "top1": 0.4}, "not-proven", "closer than the noise"),
        ({"decided": 0, "kl": 0.0}, "passed", ""),
        ({"decided": 0, "kl": 2e-7, "information": 1e-3}, "not-proven", "closer than the noise"),
    ],
)
def test_logits(changes: dict[str, float], outcome: str, word: str) -> None:
    judged = judge_logits(RAN, Differences(), msgspec.structs.replace(GOOD, **changes), BOUNDS["fp16"])
    assert judged.outcome == outcome
    assert word in judged.reason
    assert bool(judged.findings) == (outcome != "passed")


def test_four_bits_may_lose_more_than_fp16_and_three_bits_lose_too_much() -> None:
    plain_4_bits = msgspec.structs.replace(GOOD, kl=0.072, information=9.0)
    assert judge_logits(RAN, Differences(), plain_4_bits, BOUNDS["fp16"]).outcome == "failed"
    assert judge_logits(RAN, Differences(), plain_4_bits, BOUNDS["int4"]).outcome == "passed"
    three_bits = msgspec.structs.replace(GOOD, kl=0.228, information=9.0)
    assert judge_logits(RAN, Differences(), three_bits, BOUNDS["int4"]).outcome == "failed"


def test_perplexity() -> None:
    assert judge_perplexity(RAN, Perplexity(100, 6.0, 6.01), BOUNDS["fp16"]).outcome == "passed"
    assert judge_perplexity(RAN, Perplexity(100, 6.0, 5.0), BOUNDS["fp16"]).outcome == "passed"
    assert judge_perplexity(RAN, Perplexity(100, 6.0, 6.7), BOUNDS["int4"]).outcome == "passed"
    worse = judge_perplexity(RAN, Perplexity(100, 6.0, 6.7), BOUNDS["fp16"])
    assert worse.outcome == "failed"
    assert worse.findings[0].code == "DP882"
    assert judge_perplexity(RAN, None, BOUNDS["fp16"]).outcome == "not-proven"


def test_greedy_texts_may_part_where_it_is_a_near_tie() -> None:
    whole = GreedyText(3, [1, 2, 3], [1, 2, 3])
    assert judge_greedy(RAN, whole).outcome == "passed"
    tie = GreedyText(1, [1, 2, 3], [1, 5, 6], margin=0.01, noise=0.01)
    assert judge_greedy(RAN, tie).outcome == "not-proven"
    assert "token 2 of 3" in judge_greedy(RAN, tie).reason
    clear = GreedyText(1, [1, 2, 3], [1, 5, 6], margin=1.0, noise=0.01)
    assert judge_greedy(RAN, clear).outcome == "failed"


def test_bounds_by_name_and_by_weights() -> None:
    assert choose_bounds("auto", "int4").name == "int4"
    assert choose_bounds("fp16", "int4").name == "fp16"
    with pytest.raises(UsageError, match="unknown tolerance 'fp8'"):
        choose_bounds("fp8", "int4")
    pairs = {("int4", "fp32"): "int4", ("int4", "int4"): "fp16", ("fp16", "fp32"): "fp16", ("fp32", "fp16"): "fp16"}
    assert {pair: precision_beside(*pair) for pair in pairs} == pairs
    assert precision_beside("fp32", "fp32") == "fp32"


def proof(*checks: tuple[str, bool]) -> GenaiProof:
    made = [
        GenaiCheck(Verdict(Check("proof"), outcome, "" if outcome == "passed" else "why", decides=decides))  # type: ignore[arg-type]
        for outcome, decides in checks
    ]
    return GenaiProof("a", "b", "cpu", [3], 4, "seeded", made)


@pytest.mark.parametrize(
    ("checks", "outcome", "code"),
    [
        ([("passed", True), ("failed", False)], "passed", 0),
        ([("passed", True), ("not-proven", True), ("failed", True)], "failed", 1),
        ([("passed", True), ("not-proven", True)], "not-proven", 3),
        ([("passed", True), ("not-run", True), ("not-proven", True)], "not-run", 3),
        ([("not-run", False)], "not-run", 3),
        ([], "not-run", 3),
    ],
)
def test_what_checks_amount_to(checks: list[tuple[str, bool]], outcome: str, code: int) -> None:
    found = proof(*checks)
    assert (found.outcome, found.exit_code) == (outcome, code)
    assert bool(found.reason) == (outcome != "passed")


def test_bounds_grow_with_less_precision() -> None:
    kl = [BOUNDS[name].kl for name in ("fp32", "fp16", "int8", "int4")]
    assert kl == sorted(kl)
