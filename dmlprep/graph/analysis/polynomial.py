"""Sizes that are not numbers yet: sums of products of dimension names, in one normal form.

Examples: ``past + seq``, ``12*batch``, ``height*width``. Names are sizes, and never negative. A division with a
remainder becomes a new name (``height//2``). Names of dimensions that are expressions (``past_plus_seq``) are parsed
here, and never evaluated as code.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ANONYMOUS = frozenset({"", "None", "none", "?", "-1"})
"""Placeholders that exporters write for nameless dimensions. Two dimensions with one of them may differ."""

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|(//|[-+*/%(),]))")
_LONGEST, _DEEPEST = 256, 32
_CALLS = {"Max": max, "Min": min, "max": max, "min": min}

Tree = int | str | tuple[str, "Tree", "Tree"]


@dataclass(frozen=True)
class Expression:
    """An integer expression as a tree, and the dimension names that occur in it, in order."""

    tree: Tree
    names: tuple[str, ...]

    def value(self, sizes: Mapping[str, int]) -> int | None:
        """Return its value, ``None`` where a name has no size yet, a ``/`` has a remainder, or a divisor is 0."""
        return _value(self.tree, sizes)


def _value(tree: Tree, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return sizes.get(tree)
    operator, first, second = tree
    a, b = _value(first, sizes), _value(second, sizes)
    if a is None or b is None:
        return None
    if operator in _CALLS:
        return _CALLS[operator](a, b)
    if operator in ("//", "/", "%"):
        if b == 0 or (operator == "/" and a % b):
            return None
        return a % b if operator == "%" else a // b
    return {"+": a + b, "-": a - b, "*": a * b}[operator]


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError("not an expression")
            self.tokens.append(match.group().strip())
            at = match.end()
        self.at = 0
        self.names: dict[str, None] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise ValueError("not an expression")
        self.at += 1
        return token

    def sum(self, depth: int = 0) -> Tree:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        tree = self.product(depth)
        while self.peek() in ("+", "-"):
            tree = (self.take(), tree, self.product(depth))
        return tree

    def product(self, depth: int) -> Tree:
        tree = self.factor(depth)
        while self.peek() in ("*", "//", "/", "%"):
            tree = (self.take(), tree, self.factor(depth))
        return tree

    def factor(self, depth: int) -> Tree:
        token = self.take()
        if token == "(":
            tree = self.sum(depth + 1)
            self.take(")")
            return tree
        if token == "-" and depth <= _DEEPEST:
            return ("-", 0, self.factor(depth + 1))
        if token.isdigit():
            return int(token)
        if token in _CALLS and self.peek() == "(":
            self.take("(")
            tree = self.sum(depth + 1)
            while self.peek() == ",":
                self.take()
                tree = (token, tree, self.sum(depth + 1))
            self.take(")")
            return tree
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError("not an expression")
        self.names[token] = None
        return token


def parse(text: str) -> Expression | None:
    """Read a dimension name as an expression; ``None`` for a single name or number, and for any other text.

    ``None`` also above 256 characters.
    """
    if len(text) > _LONGEST:
        return None
    try:
        reader = _Reader(text if re.search(r"[-+*/%()]", text) else text.replace("_plus_", " + "))
        tree = reader.sum()
    except ValueError:
        return None
    return None if reader.peek() or isinstance(tree, (str, int)) else Expression(tree, tuple(reader.names))


def solve(expression: Expression, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """Solve an expression for its one name without a size: ``past + seq = 9`` with seq 1 gives ``("past", 8)``.

    ``None`` if more or no names lack a size, if the expression is not linear, or if no size (0 or more) fits.
    """
    missing = [name for name in expression.names if name not in sizes]
    if len(missing) != 1:
        return None
    (name,) = missing
    points = [expression.value({**sizes, name: at}) for at in (0, 1, 2, 3)]
    if any(p is None for p in points):
        return None
    zero, one, two, three = (p for p in points if p is not None)
    slope = one - zero
    if slope == 0 or two - one != slope or three - two != slope or (value - zero) % slope:
        return None
    size = (value - zero) // slope
    return (name, size) if size >= 0 and expression.value({**sizes, name: size}) == value else None


_MOST_TERMS, _MOST_FACTORS, _LONGEST_TEXT = 12, 8, 96

Factors = tuple[str, ...]


@dataclass(frozen=True)
class Polynomial:
    """A polynomial: pairs of a product of names and its factor; the empty product is the constant term."""

    terms: tuple[tuple[Factors, int], ...]

    @property
    def number(self) -> int | None:
        """The value of a polynomial without names; ``None`` if it has names."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def at_least(self) -> int | None:
        """A lower limit of the value for all sizes (0 or more), ``None`` without one."""
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
        for factors, a in self.terms:
            for other_factors, b in other.terms:
                key = tuple(sorted(factors + other_factors))
                total[key] = total.get(key, 0) + a * b
        return _normal(total)

    def divided(self, other: Polynomial) -> Polynomial | None:
        """Return the exact quotient of a division by a single product or an equal polynomial; ``None`` otherwise."""
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
        """True if it is small enough to compute with."""
        return (
            len(self.terms) <= _MOST_TERMS
            and all(len(f) <= _MOST_FACTORS and abs(c) < 2**62 for f, c in self.terms)
            and len(str(self)) <= _LONGEST_TEXT
        )


def _normal(total: Mapping[Factors, int]) -> Polynomial:
    return Polynomial(tuple(sorted((f, c) for f, c in total.items() if c)))


def of_number(value: int) -> Polynomial:
    """Return a number as a polynomial."""
    return _normal({(): int(value)})


def floor_divide(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """Return a // b for sizes: exact, or as a new name.

    ``None`` without an exact quotient, unless a is surely 0 or more, and b surely more than 0.
    """
    exact = a.divided(b) if b.terms else None
    if exact is not None:
        return exact
    if a.at_least is None or a.at_least < 0 or (b.at_least or 0) <= 0:
        return None
    dividend = str(a) if len(a.terms) == 1 and len(a.terms[0][0]) == 1 and a.terms[0][1] == 1 else f"({a})"
    divisor = str(b) if b.number is not None else f"({b})"
    return _normal({(f"({dividend}//{divisor})",): 1})


def of_name(name: str) -> Polynomial | None:
    """Return a dimension's name as a polynomial, parsed where it is an expression; ``None`` for placeholders.

    A name with ``_plus_`` is not parsed here: it stays one name.
    """
    if name in ANONYMOUS:
        return None
    expression = parse(name) if "_plus_" not in name else None
    polynomial = _of_tree(expression.tree) if expression is not None else None
    return polynomial if polynomial is not None and polynomial.sound else _normal({(name,): 1})


def _of_tree(tree: Tree) -> Polynomial | None:
    if isinstance(tree, int):
        return of_number(tree)
    if isinstance(tree, str):
        return _normal({(tree,): 1})
    operator, first, second = tree
    a, b = _of_tree(first), _of_tree(second)
    rule = _OPERATIONS.get(operator)
    return None if a is None or b is None or rule is None else rule(a, b)


_OPERATIONS: dict[str, Callable[[Polynomial, Polynomial], Polynomial | None]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    **dict.fromkeys(("//", "/"), floor_divide),
}
