"""The texts of the repository that people read: pages, docstrings, comments, messages."""

from __future__ import annotations

import ast
import gc
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
_GENERATED = {"docs/changelog.md", "docs/directml-conformance.md", "docs/modules.md", "docs/opset.md"}

_WORD = re.compile(r"(?<![\w-])[a-z]{2,}(?![\w-])")
_DATA = re.compile(r"(?:^|\n)(?:import|from|set) [\w-]|[;{}]\n|\\[wsdb]|\(\?|\w \d+, \w+ \d+, |\n *<\w")
"""A string that is no message: a program, a regular expression, a table."""
_SPANS = [  # Markdown and reST that is no prose, and what stands for it
    (re.compile(r"<!--.*?-->|\{\w+\}(?=`)"), ""),
    (re.compile(r"``.+?``|`[^`]+`_{0,2}"), "CODE"),
    (re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)"), r"\1"),
    (re.compile(r"\*\*|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)"), ""),
]
_BREAK = re.compile(r"^(?:#+ |[-*+] |\d+\. |> |: |\.\. |\|)")
_READ = {ast.Expr, ast.Constant, ast.JoinedStr, ast.Name, ast.Attribute, ast.arg, ast.ExceptHandler}
_READ |= {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef}
_SECTIONS = {"Args:", "Attributes:", "Raises:", "Returns:", "Yields:"}
_LABEL = re.compile(r"[\w*.]+(?:, [\w*.]+)*: ")
_COMMENT = re.compile(
    r"""^(\s*)# (?!type:|noqa|ruff:|fmt:)(.*)|^[^"'#]*(?:(["'])[^"'#]*\3[^"'#]*)*  # (?!type:|noqa)(.*)"""
)


Name = tuple[str, int, str]
"""File, line and name of a function, class, variable, parameter, attribute or module, where it gets it."""


@dataclass(frozen=True)
class Text:
    """One paragraph, heading, list item, table cell, docstring, comment or message, as one line without markup."""

    file: str
    group: str
    """``docs``, ``docstrings``, ``comments`` or ``messages``."""
    text: str
    lines: tuple[tuple[int, int], ...]
    """Offset in ``text`` and line of the file, for each line of it."""
    opens: bool = False
    """True for the first paragraph of a docstring."""
    flows: bool = True
    """False for headings and cells, which are no sentences."""

    def line(self, offset: int) -> int:
        """Return the line of the file for an offset in the text."""
        return self.lines[bisect_right(self.lines, (offset, 1 << 60)) - 1][1]


def files(paths: Iterable[Path] = ()) -> list[Path]:
    """Return the pages and the Python files to read: those in ``paths``, or all of them."""
    every = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
    every += [file for part in ("docs", "dmlprep", "scripts") for file in sorted((TOP / part).rglob("*.py"))]
    every += (TOP / "dmlprep").rglob("codes.json")  # reads as Python
    within = [path.resolve() for path in paths] or [TOP]
    return [
        file
        for file in every
        if file.relative_to(TOP).as_posix() not in _GENERATED and any(file.is_relative_to(path) for path in within)
    ]


def read(paths: Iterable[Path]) -> tuple[list[Text], list[Name]]:
    """Return the texts and names of files, each of which is parsed once."""
    texts: list[Text] = []
    names: list[Name] = []
    gc.disable()  # syntax trees are many objects without cycles; collecting doubles the time
    for path in paths:
        file, source = path.relative_to(TOP).as_posix(), path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            texts += _paragraphs(file, "docs", source.splitlines(), 1)
        else:
            names.append((file, 1, path.stem))
            names += ((file, line, name) for line, name in _python(file, source, texts))
    gc.enable()
    return texts, names


def _paragraphs(file: str, group: str, lines: list[str], first: int) -> Iterator[Text]:
    fence = ""  # what ends a block that is no prose: its own mark, or an empty line after click's backspace
    part: list[tuple[int, str]] = []
    opens, labels = group == "docstrings", False
    for number, raw in enumerate([*lines, ""], first):
        line = raw.strip()
        mark = line[:3] if line.startswith(("```", "~~~")) else "\b" if line == "\b" else ""
        label = _LABEL.match(line) if labels else None
        if part and (mark or fence or label or not line or line in _SECTIONS or _BREAK.match(line)):
            yield _joined(file, group, part, opens)
            part, opens = [], False
        if mark or fence:
            ended = mark == fence or (fence == "\b" and not line)
            fence = ("" if ended else fence) if fence else mark
        elif line in _SECTIONS:
            labels = True
        elif line.startswith("#"):
            yield _joined(file, group, [(number, line)], False, flows=False)
        elif line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                yield _joined(file, group, [(number, cell.strip())], False, flows=False)
        elif line and not (raw.startswith("    ") and group == "docs" and not part):
            part.append((number, line[label.end() :] if label else line))


def _joined(file: str, group: str, part: list[tuple[int, str]], opens: bool, flows: bool = True) -> Text:
    # Code may be wrapped: mask it in the whole paragraph, one line end for each line of the file.
    text = "\n".join(line for _, line in part)
    text = _BREAK.sub("", text)
    for span, stand_in in _SPANS:
        text = span.sub(
            lambda m, to=stand_in: m.expand(to) + "\n" * (m[0].count("\n") - m.expand(to).count("\n")), text
        )
    offsets = accumulate((len(line) + 1 for line in text.split("\n")), initial=0)
    return Text(
        file, group, text.replace("\n", " "), tuple(zip(offsets, (n for n, _ in part), strict=False)), opens, flows
    )


def _python(file: str, source: str, texts: list[Text]) -> Iterator[tuple[int, str]]:
    docs: set[int] = set()
    inside: set[int] = set()  # lines that a string goes on in, where # is no comment
    for node in ast.walk(ast.parse(source)):
        if type(node) not in _READ:  # nine of ten nodes; a match costs more
            continue
        match node:
            case ast.Expr(value=ast.Constant(value=str(value)) as constant):
                docs.add(id(constant))
                texts += _paragraphs(file, "docstrings", value.splitlines(), node.lineno)
            case ast.Constant(value=str(value)):
                inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
                if id(node) not in docs:
                    texts += _message(file, node.lineno, value)
            case ast.JoinedStr():
                docs.update(map(id, node.values))
                parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
                texts += _message(file, node.lineno, "".join(parts))
            case ast.Name(ctx=ast.Store(), id=name) | ast.Attribute(ctx=ast.Store(), attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler(name=str()):
                yield node.lineno, node.name or ""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        match = _COMMENT.match(line) if "# " in line and number not in inside else None
        if block and (match is None or match[2] is None or number != block[-1][0] + 1):
            texts.append(_joined(file, "comments", block, False))
            block = []
        if match:
            block.append((number, match[2] if match[2] is not None else match[4]))


def _message(file: str, line: int, value: str) -> Iterator[Text]:
    if len(_WORD.findall(value)) >= 3 and not _DATA.search(value):
        yield from _paragraphs(file, "messages", [" ".join(value.split())], line)
