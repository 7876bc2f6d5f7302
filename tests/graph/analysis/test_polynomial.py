"""Sizes in one normal form have the value of the expressions that they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlprep.graph.analysis.polynomial import floor_divide, of_name, of_number, parse

names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 9)
trees = st.recursive(
    st.one_of(names, numbers.map(str)),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=8,
)


@given(trees, st.fixed_dictionaries({n: st.integers(0, 7) for n in "abc"}))
def test_a_normal_form_has_the_value_of_the_expression(text, sizes):
    """Where a polynomial stands for an expression, both have one value for every size."""
    expression, polynomial = parse(text), of_name(text)
    if expression is None or polynomial is None:
        return
    value = expression.value(sizes)
    normal = parse(str(polynomial))
    found = (
        polynomial.number
        if polynomial.number is not None
        else normal.value(sizes)
        if normal
        else sizes.get(str(polynomial))
    )
    if value is not None and found is not None:
        assert found == value
        if polynomial.at_least is not None and str(polynomial) != text:
            assert value >= polynomial.at_least


def test_polynomials():
    a, b = of_name("a"), of_name("b")
    assert str(a * b + of_number(2) * a) == "2*a + a*b"
    assert (a + b) - b == a
    assert (a * b * of_number(6)).divided(b * of_number(3)) == of_number(2) * a
    assert (a + b).divided(of_number(2)) is None
    assert (a - b).at_least is None
    assert of_name("2*a + 3") == of_number(2) * a + of_number(3)
    assert (a + of_number(3)).at_least == 3


def test_a_division_with_a_rest_is_a_name_of_its_own():
    height, two = of_name("height"), of_number(2)
    half = floor_divide(height, two)
    assert str(half) == "(height//2)"
    assert half - floor_divide(height, two) == of_number(0)
    assert floor_divide(height * two, two) == height
    assert floor_divide(height - of_number(1), two) is None  # it may be negative: which way it rounds is not known
    assert floor_divide(height, of_name("width")) is None  # it may be zero


@pytest.mark.parametrize("name", ["", "None", "?", "-1"])
def test_what_exporters_write_where_they_have_no_name_is_none(name):
    assert of_name(name) is None


def test_what_grows_too_long_stays_a_name():
    product = "*".join(["(a+b)"] * 12)
    assert str(of_name(product)) == product
    assert of_name(product).sound
    assert not of_name("a" * 200).sound
