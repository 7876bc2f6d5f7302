"""No code of dmlprep decides by a text that was made for people: verdicts, findings and errors have fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.rooms import FILES, PACKAGE, syntax

VARIABLES = {"reason", "detail", "details", "message", "fix", "remedy", "title", "why", "said", "stderr", "stdout"}
TEXTS = VARIABLES | {"check", "error", "note", "headline", "tolerance", "what", "where", "told", "words"}
"""Attributes that hold sentences; as names of variables, the others hold data as well."""

EXCEPTIONS = {"error", "failure", "failed", "refused", "wrong", "cause"}
"""Variables that hold exceptions: ``str`` of one is a sentence."""

CUTS = {
    *("startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"),
    *("find", "rfind", "index", "rindex", "count"),
}
SEARCHES = {"match", "search", "fullmatch", "findall", "finditer", "sub", "split"}

ALLOWED = {
    # Texts of others that have no other form.
    "runtime/tools/reading.py": "Rust's allocator, in tokenizers",
    "fleet/cluster.py": "Dask",
    "graph/model/opening.py": "protobuf's parser",
    "parity/feeds/files.py": "numpy",
    "passes/catalog.py": "msgspec",
    "process/failure.py": "ONNX Runtime: shows the name of an HRESULT where the text has none",
    "runtime/linux/source.py": "apt's configuration",
    "runtime/ort_messages.py": "ONNX Runtime",
    # Texts for people that are made shorter for people.
    "parity/bisection/repro.py": "begins a sentence with a capital",
    "report/grouping.py": "leaves the name of a node out where the message has it",
}
"""Why a file may look into a text. The test fails for a file that no longer does."""


def _text(node: ast.expr) -> bool:
    """Whether an expression is a text for people, or a part of one."""
    if isinstance(node, ast.Attribute):
        return node.attr in TEXTS
    if isinstance(node, ast.Name):
        return node.id in VARIABLES
    if isinstance(node, ast.Subscript):
        return _text(node.value)
    if isinstance(node, ast.BoolOp):
        return any(map(_text, node.values))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            of = node.args[0]
            return _text(of) or (isinstance(of, ast.Name) and of.id in EXCEPTIONS)
        cases = ("lower", "upper", "casefold", "strip", "lstrip", "rstrip")
        return isinstance(node.func, ast.Attribute) and node.func.attr in cases and _text(node.func.value)
    return False


def _words(node: ast.expr) -> bool:
    """Whether an expression is a text that the code holds; ``""`` asks whether there is one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_words, node.elts))
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip() != ""
    )


def looks_into_a_text(node: ast.AST) -> bool:
    """Whether a node of a syntax tree takes a text for people apart, or compares it with words."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        return (name in CUTS and _text(node.func.value)) or (name in SEARCHES and any(map(_text, node.args)))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(map(_words, sides)) and any(map(_text, sides)):
            return True
        inside = zip(node.ops, node.comparators, strict=True)
        return any(isinstance(op, ast.In | ast.NotIn) and _text(into) and not _table(into) for op, into in inside)
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and _attribute(node.value)


def _table(node: ast.expr) -> bool:
    """Whether a variable may be a list that something is looked up in, by the same operator."""
    return isinstance(node, ast.Name) and node.id in ("said", "fix", "why")


def _attribute(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in TEXTS


def found() -> Iterator[tuple[str, str]]:
    """Each place: the file, and the line with its code."""
    for path in FILES:
        inside = path.relative_to(PACKAGE).as_posix()
        for node in syntax(path):
            if looks_into_a_text(node):
                yield inside, f"{inside}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)[:100]}"


def test_no_code_looks_into_a_text_for_people() -> None:
    places = list(found())
    assert [place for file, place in places if file not in ALLOWED] == []
    assert {file for file, _ in places} >= set(ALLOWED)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('"DP804" in status.reason', True),
        ('verdict.check == "parity on dml"', True),
        ('verdict.check.startswith("parity")', True),
        ('re.search("DP", str(error))', True),
        ("_ERROR.match(done.stderr)", True),
        ("failure.message[:13]", True),
        ('verdict.check.provider == "dml"', False),
        ('finding.code == "DP804"', False),
        ("verdict.reason or verdict.tolerance", False),
        ('verdict.reason == ""', False),
    ],
)
def test_what_looks_into_a_text(code: str, wrong: bool) -> None:
    assert any(map(looks_into_a_text, ast.walk(ast.parse(code)))) is wrong
