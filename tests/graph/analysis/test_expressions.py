"""Dimension names that are expressions: read, never evaluated as code; bounded; one missing part is solved."""

from __future__ import annotations

import pytest

from dmlprep.graph.analysis.polynomial import parse, solve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("past + seq", 7),
        ("past+seq", 7),
        ("2*past - seq", 8),
        ("2*(past - 1)//seq", 4),
        ("(past + seq) // 2", 3),
        ("past / 5", 1),
        ("past % 3", 2),
        ("Max(past, 9)", 9),
        ("min(past, seq, 1)", 1),
        ("-past + 9", 4),
        ("past_plus_seq", 7),
    ],
)
def test_expressions(text, value):
    expression = parse(text)
    assert expression is not None
    assert expression.value({"past": 5, "seq": 2}) == value
    assert expression.value({"past": 5}) is None or "seq" not in expression.names


@pytest.mark.parametrize(
    "text",
    [
        *("batch", "7", "", "a b", "a +", "(a", "a)", "__import__('os')", "a**b", "a;b", "f(x)"),
        "(" * 99 + "a" + ")" * 99,
        "a+" * 200 + "a",
        "a" + "-" * 99 + "a",
    ],
)
def test_what_is_no_expression(text):
    assert parse(text) is None


def test_one_missing_part_is_solved():
    assert solve(parse("past + seq"), 9, {"seq": 1}) == ("past", 8)
    assert solve(parse("2*s0 + 1"), 9, {}) == ("s0", 4)
    assert solve(parse("2*s0 + 1"), 8, {}) is None
    assert solve(parse("s0*s0"), 9, {}) is None
    assert solve(parse("s0//2"), 4, {}) is None
    assert solve(parse("past + seq"), 1, {"seq": 2}) is None


@pytest.mark.parametrize(
    ("text", "sizes"), [("a // b", {"a": 7, "b": 0}), ("a % b", {"a": 7, "b": 0}), ("a / 2", {"a": 7})]
)
def test_divisions_without_a_whole_result_have_no_value(text, sizes):
    expression = parse(text)
    assert expression is not None
    assert expression.value(sizes) is None


@pytest.mark.parametrize(("text", "value"), [("Max(a, 1)", 1), ("Min(a, 1)", 0), ("(2*a + 1) // 2", 0)])
def test_a_size_may_be_zero(text, value):
    expression = parse(text)
    assert expression is not None
    assert expression.value({"a": 0}) == value


@pytest.mark.parametrize("text", ["9**9**9**9", "2**99999999", "1" * 300, "((((((((9*9)" * 20])
def test_hostile_names_are_plain_names(text):
    assert parse(text) is None
