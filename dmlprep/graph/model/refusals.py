"""Errors about invalid models, and about models beyond the bounds of what is read."""

from __future__ import annotations

from dmlprep.core.errors import InputError, ModelRefused


def invalid(what: str, where: str = "", code: str = "DP003") -> InputError:
    """The error about a model that has to be exported again."""
    return InputError(what, where=where, code=code, fix="export the model again")


def too_large(what: str, where: str) -> ModelRefused:
    """The error about a model beyond the bounds of what is read."""
    return ModelRefused(what, where=where, code="DP016", fix="export a smaller model")
