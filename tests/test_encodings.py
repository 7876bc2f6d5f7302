"""Text files are read and written in an encoding that is named: Windows' default is a code page such as cp1252."""

from __future__ import annotations

import ast

from tests.rooms import FILES, PACKAGE, syntax

ASCII_ONLY = ("runtime/linux/", "portable/memory.py", "runtime/dml.py")
"""Read and write JSON of their own, which is ASCII, and what Linux itself writes."""


def _names_no_encoding(call: ast.Call) -> bool:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in named:
        return False
    text = named.get("text") or named.get("universal_newlines")
    if isinstance(text, ast.Constant) and text.value is True:  # subprocess
        return True
    if isinstance(call.func, ast.Attribute):
        called, mode_at = call.func.attr, 0
        if called == "read_text":
            return not call.args
        if called == "write_text":
            return len(call.args) < 2
        if called != "open" or len(call.args) > 1:  # of a path only: models, sessions and archives are opened too
            return False
    elif isinstance(call.func, ast.Name):
        called, mode_at = call.func.id, 1
    else:
        return False
    if called != "open":
        return False
    mode = call.args[mode_at] if len(call.args) > mode_at else named.get("mode", ast.Constant("r"))
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rwxat+")


def test_every_text_file_names_its_encoding() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}"
        for path in FILES
        for node in syntax(path)
        if isinstance(node, ast.Call) and _names_no_encoding(node)
        if not path.relative_to(PACKAGE).as_posix().startswith(ASCII_ONLY)
    ]
    assert wrong == []
