"""The rooms of dmlprep, from the ground up; ``python -m tests.rooms`` draws them in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dmlprep.graph.model.collector import paused_collector

TOP = Path(__file__).resolve().parents[1]
PACKAGE = TOP / "dmlprep"
PAGE = TOP / "docs" / "architecture.md"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("portable",),
    ("core",),
    ("record",),
    ("process",),
    ("graph",),
    ("metrics", "directml"),
    ("runtime",),
    ("passes",),
    ("parity",),
    ("pipeline",),
    ("kit", "package", "genai", "fleet"),
    ("report",),
    ("api",),
    ("cli",),
)
"""The rooms, from the ground up. A room imports from the floors below its own, and from no other room of its floor."""

FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

MOST_ROOMS, MOST_ARROWS = 18, 130
"""An arrow is a pair of rooms of which one imports from the other."""

FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """``passes`` for ``dmlprep/passes/pin/sizes.py``; the stem for files at the top."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    with paused_collector():  # collecting takes three times as long as parsing
        return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def syntax(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the tree of a file: walking takes as long as parsing."""
    return tuple(ast.walk(tree(path)))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything a file imports, also inside functions and for types alone."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in syntax(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= (room(path) == "portable"), f"{path}:{node.lineno}: relative import"
            start = ".".join(filter(None, ("dmlprep.portable" if node.level else "", node.module)))
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value)


def arrows() -> dict[tuple[str, str], list[str]]:
    """Where each room imports from each other one. What stands for types alone counts too."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        for line, imported in imports(path):
            own, parts = room(path), imported.split(".")
            if parts[0] == "dmlprep" and path.parent != PACKAGE and parts[1:2] != [own]:
                found.setdefault((own, parts[1] if len(parts) > 1 else "dmlprep"), []).append(
                    f"{path}:{line}: {imported}"
                )
    return found


def picture() -> str:
    """The rooms by floors, each with the first sentence of its docstring."""
    lines = [f"{'floor':5}  {'room':8}  what belongs in it"]
    for number, rooms in reversed([*enumerate(FLOORS, 1)]):
        for name in rooms:
            doc = ast.get_docstring(tree(PACKAGE / name / "__init__.py")) or ""
            sentence = doc.split("\n\n")[0].replace("``", "").replace("\n", " ")
            lines.append(f"{number:5}  {name:8}  {sentence}")
    return "\n".join(lines)


def page() -> str:
    """docs/architecture.md with the picture as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"(?<=```text\nfloor)[^`]*(?=```)", lambda _: picture().removeprefix("floor") + "\n", text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(picture())
    print(f"{len(FLOOR)} rooms on {len(FLOORS)} floors, {len(arrows())} arrows", file=sys.stderr)
