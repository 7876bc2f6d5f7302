"""Every error that dmlprep raises on purpose.

    DmlprepError
    ├── UsageError          exit 2   the command, an option or a value is wrong
    │   ├── InputError      exit 2   a file given is missing, broken, hostile or not ONNX
    │   ├── OutputError     exit 2   the output cannot be written (exists, disk full, no permission)
    │   └── RecipeError     exit 2   a recipe field is unknown, of the wrong type, or steps do not fit together
    ├── ModelRefused        exit 1   a valid model that a step cannot make ready without changing its results
    ├── ToolFailed          exit 1   a tool crashed on the model, or needed too much time or memory for it
    ├── CheckNotRun         exit 3   a check that was demanded could not run here
    └── InternalError       exit 70  a bug of dmlprep: a pass broke its contract

An error says what happened, where, and how to mend it. The class owns the exit code of the command line.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "CheckNotRun",
    "DmlprepError",
    "InputError",
    "InternalError",
    "ModelRefused",
    "OutputError",
    "RecipeError",
    "ToolFailed",
    "UsageError",
]


class DmlprepError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: what happened, one sentence.
        where: the file, node, step or recipe field concerned.
        code: the stable finding code (``DP201``) where the error has a page in ``docs/codes``.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, where: str = "", fix: str = "", code: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        self.code = code

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.code:
            text = f"{text} [{self.code}]"
        return f"{text} ({self.fix})" if self.fix else text


class UsageError(DmlprepError):
    """The command, an option or a value is wrong."""

    exit_code = 2


class InputError(UsageError):
    """A file that was given is missing, broken, hostile or not what it should be."""


class OutputError(UsageError):
    """The output cannot be written."""


class RecipeError(UsageError):
    """A recipe does not hold together; ``where`` names the field."""


class ModelRefused(DmlprepError):
    """A valid model that a step cannot make ready without changing what it computes."""

    exit_code = 1


class ToolFailed(DmlprepError):
    """A tool that reads the model, in a process of its own, crashed on it or went beyond its limits.

    No other way around it is tried, as with a ``ModelRefused``: the tool would fail again, a time limit later.
    """

    exit_code = 1


class CheckNotRun(DmlprepError):
    """A check that was demanded could not run on this machine."""

    exit_code = 3


class InternalError(DmlprepError):
    """A bug of dmlprep: a pass broke its contract."""

    exit_code = 70
