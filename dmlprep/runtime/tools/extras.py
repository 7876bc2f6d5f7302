"""Optional packages that only one command needs. If one is missing, the error gives the command to install it."""

from __future__ import annotations

import contextlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dmlprep.core.errors import UsageError
from dmlprep.runtime.environment import python


def extra(module: str, package: str, purpose: str) -> Any:
    """Import and return a module of an optional package. ``purpose`` is for the error: ``reading pictures``.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise not_installed(package, purpose) from error


def require(module: str, package: str, purpose: str) -> None:
    """Check that a module of an optional package exists, without importing it; a child process imports it.

    Raises:
        UsageError: the package is not installed.
    """
    with contextlib.suppress(ImportError):  # the parent package is missing
        if find_spec(module) is not None:
            return
    raise not_installed(package, purpose)


def not_installed(package: str, purpose: str) -> UsageError:
    """Return, without raising it, the error for a missing package."""
    return UsageError(f"{purpose} needs {package}, which is not installed", fix=f"{python()} -m pip install {package}")
