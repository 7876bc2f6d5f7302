"""Codes DP9xx: recipes, and files that name them."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP901": Code("unknown recipe field", "error", "remove it, or use the field suggested"),
    "DP902": Code("recipe cannot be read", "error", "check the name: built-in recipes begin with @, files are paths"),
    "DP904": Code("project file cannot be used", "error", "mend the file, or leave it out with --no-project"),
    "DP905": Code("file of a fleet cannot be used", "error", "mend the field that the message names (docs/fleet.md)"),
    "DP906": Code("job of a fleet left no record", "error", "run the job by itself: the message says why it ended"),
    "DP903": Code("steps do not fit together", "error", "add [step.pin] to the recipe, or use a recipe that pins"),
}
