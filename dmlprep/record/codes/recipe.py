"""Codes DP9xx: recipes."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP901": Code("unknown recipe field", "error", "remove it, or use the field suggested"),
    "DP902": Code("recipe cannot be read", "error", "check the name: built-in recipes begin with @, files are paths"),
    "DP903": Code("steps do not fit together", "error", "add [step.pin] to the recipe, or use a recipe that pins"),
}
