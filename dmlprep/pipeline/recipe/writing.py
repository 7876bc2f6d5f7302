"""Write a recipe as the TOML that reads back as the same."""

from __future__ import annotations

import msgspec

from dmlprep.core.text.documents import toml_key, toml_value
from dmlprep.pipeline.recipe.recipe import Recipe


def recipe_toml(recipe: Recipe, *notes: str) -> str:
    """The recipe's text; fields that are as they are by default are left out, ``name`` is its file's.

    Args:
        notes: comments before it, one line each.
    """
    lines = [*(f"# {' '.join(note.split())}" for note in notes)]
    lines += _rows({"doc": recipe.doc, "target": recipe.target})
    for name, options in recipe.step.items():
        lines += ["", f"[step.{toml_key(name)}]", *_rows(options)]
    for name in ("parity", "limits"):
        table = _set(getattr(recipe, name))
        lines += ["", f"[{name}]", *_rows(table)] if table else []
    return "\n".join(lines) + "\n"


def _rows(table: dict[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]


def _set(table: msgspec.Struct) -> dict[str, object]:
    """The fields of a table that differ from what they are by default."""
    default = type(table)()
    every = msgspec.to_builtins(table)
    return {name: value for name, value in every.items() if getattr(table, name) != getattr(default, name)}
