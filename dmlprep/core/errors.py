"""All errors that dmlprep raises on purpose. Each is an exception class with an exit code of the command line.

* ``DmlprepError`` (exit code 70): the base class. All others but three derive from it directly.
* ``UsageError`` (2): the command, an option or a value is wrong. The next three are kinds of it.
* ``InputError`` (2): an input file is missing, broken, hostile or not ONNX.
* ``OutputError`` (2): the output cannot be written (exists, disk full, no permission).
* ``RecipeError`` (2): a recipe cannot be read, a field is unknown or wrong, or steps do not fit together.
* ``ModelRefused`` (1): a model that dmlprep cannot prepare or pack: not supported, too large, or unfit for the options.
* ``ToolFailed`` (1): a tool crashed on the model, or needed too much time or memory for it.
* ``CheckNotRun`` (3): a required check could not run here.
* ``InternalError`` (70): a bug of dmlprep, such as a pass that broke its contract, or a damaged installation.

An error reports the problem, its place and the fix.
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
    """The base class of all errors that are raised on purpose.

    Args:
        what: the problem, in one sentence.
        where: the file, node, step, option or recipe field concerned; empty if unknown.
        fix: the user's remedy.
        code: the stable finding code (``DP201``) if the error has a page in ``docs/codes``.
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
    """An input file is missing, broken, hostile or of the wrong kind."""


class OutputError(UsageError):
    """The output cannot be written."""


class RecipeError(UsageError):
    """A recipe cannot be read, a field is unknown or wrong, or steps do not fit together. The error names the field."""


class ModelRefused(DmlprepError):
    """A model that dmlprep cannot prepare or pack: not supported, too large, or unfit for the options."""

    exit_code = 1


class ToolFailed(DmlprepError):
    """A tool that reads the model in a separate process crashed on it or exceeded its limits.

    Like ``ModelRefused``, it triggers no other attempt: the tool would fail again, after another time limit.
    """

    exit_code = 1


class CheckNotRun(DmlprepError):
    """A required check could not run on this machine."""

    exit_code = 3


class InternalError(DmlprepError):
    """A bug of dmlprep, such as a pass that broke its contract, or a damaged installation."""

    exit_code = 70
