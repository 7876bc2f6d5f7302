"""Sizes that are not numbers yet: sums of products of dimension names, in one normal form.

``past + seq``, ``12*batch``, ``height*width``. Names are sizes, and never negative; division that leaves a rest becomes
a name of its own (``height//2``).
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dmlprep.graph.analysis.expressions import ANONYMOUS, Tree, parse

_MOST_TERMS, _MOST_FACTORS, _LONGEST = 12, 8, 96

Factors = tuple[str, ...]


@dataclass(frozen=True)
class Polynomial:
    """Product of names -> how often it is added; the empty product is the number."""

    terms: tuple[tuple[Factors, int], ...]

    @property
    def number(self) -> int | None:
        """Its value where it has no names."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def at_least(self) -> int | None:
        """A number that it is never below, ``None`` where it may be as low as it likes."""
        if any(count < 0 for factors, count in self.terms if factors):
            return None
        return dict(self.terms).get((), 0)

    def __str__(self) -> str:
        text = ""
        for factors, count in sorted(self.terms, key=lambda term: (not term[0], term[0])):
            word = "*".join([*([str(abs(count))] if abs(count) != 1 or not factors else []), *factors])
            text += f" {'-' if count < 0 else '+'} {word}" if text else ("-" if count < 0 else "") + word
        return text or "0"

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for factors, count in other.terms:
            total[factors] = total.get(factors, 0) + count
        return _normal(total)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + _normal({factors: -count for factors, count in other.terms})

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: dict[Factors, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                key = tuple(sorted(left + right))
                total[key] = total.get(key, 0) + a * b
        return _normal(total)

    def divided(self, other: Polynomial) -> Polynomial | None:
        """The quotient where it is exact, by a single product; ``None`` otherwise."""
        if len(other.terms) != 1:
            return of_number(1) if self == other and self.at_least else None
        ((below, divisor),) = other.terms
        total: dict[Factors, int] = {}
        for factors, count in self.terms:
            rest = list(factors)
            for name in below:
                if name not in rest:
                    return None
                rest.remove(name)
            if count % divisor:
                return None
            total[tuple(rest)] = count // divisor
        return _normal(total)

    @property
    def sound(self) -> bool:
        """Whether it is small enough to go on with."""
        return (
            len(self.terms) <= _MOST_TERMS
            and all(len(f) <= _MOST_FACTORS and abs(c) < 2**62 for f, c in self.terms)
            and len(str(self)) <= _LONGEST
        )


def _normal(total: Mapping[Factors, int]) -> Polynomial:
    return Polynomial(tuple(sorted((f, c) for f, c in total.items() if c)))


def of_number(value: int) -> Polynomial:
    """A number."""
    return _normal({(): int(value)})


def floor_divide(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """a // b for sizes: exact, or a name of its own; ``None`` where signs are not known."""
    exact = a.divided(b) if b.terms else None
    if exact is not None:
        return exact
    if a.at_least is None or a.at_least < 0 or (b.at_least or 0) <= 0:
        return None
    left = str(a) if len(a.terms) == 1 and len(a.terms[0][0]) == 1 and a.terms[0][1] == 1 else f"({a})"
    right = str(b) if b.number is not None else f"({b})"
    return _normal({(f"({left}//{right})",): 1})


def of_name(name: str) -> Polynomial | None:
    """A dimension's name, read as an expression where it is one; ``None`` for what is no name."""
    if name in ANONYMOUS:
        return None
    expression = parse(name) if "_plus_" not in name else None
    found = _of_tree(expression.tree) if expression is not None else None
    return found if found is not None and found.sound else _normal({(name,): 1})


def _of_tree(tree: Tree) -> Polynomial | None:
    if isinstance(tree, int):
        return of_number(tree)
    if isinstance(tree, str):
        return _normal({(tree,): 1})
    operator, left, right = tree
    a, b = _of_tree(left), _of_tree(right)
    rule = _OPERATIONS.get(operator)
    return None if a is None or b is None or rule is None else rule(a, b)


_OPERATIONS: dict[str, Callable[[Polynomial, Polynomial], Polynomial | None]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    **dict.fromkeys(("//", "/"), floor_divide),
}
