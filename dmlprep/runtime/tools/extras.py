"""Packages that one command alone needs: where they are missing, the error says how to install them."""

from __future__ import annotations

import contextlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dmlprep.core.errors import UsageError
from dmlprep.runtime.environment import python


def extra(module: str, package: str, purpose: str) -> Any:
    """A module of a package that dmlprep does not install by itself.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise not_installed(package, purpose) from error


def require(module: str, package: str, purpose: str) -> None:
    """Make sure that a module is there, for a process that imports it.

    Raises:
        UsageError: it is not installed.
    """
    with contextlib.suppress(ImportError):  # the package around it is missing
        if find_spec(module) is not None:
            return
    raise not_installed(package, purpose)


def not_installed(package: str, purpose: str) -> UsageError:
    """The error for a package that is missing."""
    return UsageError(f"{purpose} needs {package}, which is not installed", fix=f"{python()} -m pip install {package}")
