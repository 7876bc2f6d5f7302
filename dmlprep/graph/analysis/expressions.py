"""Expressions in dimension names: ``past + seq``, ``2*s0``, ``past_plus_seq``. Parsed here, never evaluated as code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ANONYMOUS = frozenset({"", "None", "none", "?", "-1"})
"""Names that exporters write where they have none. Two dimensions called so are not the same dimension."""

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|(//|[-+*/%(),]))")
_LONGEST, _DEEPEST = 256, 32
_CALLS = {"Max": max, "Min": min, "max": max, "min": min}

Tree = int | str | tuple[str, "Tree", "Tree"]


@dataclass(frozen=True)
class Expression:
    """An integer expression, and the dimension names that it reads, in order."""

    tree: Tree
    names: tuple[str, ...]

    def value(self, sizes: Mapping[str, int]) -> int | None:
        """Its value, ``None`` where a name has no size yet or a division leaves a rest."""
        return _value(self.tree, sizes)


def _value(tree: Tree, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return sizes.get(tree)
    operator, left, right = tree
    a, b = _value(left, sizes), _value(right, sizes)
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
    """Read a dimension name as an expression; ``None`` where it is a plain name or nothing of the kind."""
    if len(text) > _LONGEST:
        return None
    try:
        reader = _Reader(text if re.search(r"[-+*/%()]", text) else text.replace("_plus_", " + "))
        tree = reader.sum()
    except ValueError:
        return None
    return None if reader.peek() or isinstance(tree, (str, int)) else Expression(tree, tuple(reader.names))


def solve(expression: Expression, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one missing name of an expression that is linear in it: ``past + seq = 9`` with seq 1 gives past 8."""
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
