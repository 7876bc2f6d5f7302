"""Packages that one command alone needs: where they are missing, the error says how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dmlprep.errors import UsageError
from dmlprep.runtime.environment import python

__all__ = ["extra"]


def extra(module: str, package: str, purpose: str) -> Any:
    """A module of a package that dmlprep does not install by itself.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{purpose} needs {package}, which is not installed", fix=f"{python()} -m pip install {package}"
        ) from error
