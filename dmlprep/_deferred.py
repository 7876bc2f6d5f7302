"""Packages that others import and hardly ever use are loaded at the first use of them."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["defer"]


class _Deferred(ModuleType):
    """Stands for a module that is not loaded yet. ``importlib.util.LazyLoader`` loads it at its second import."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return getattr(import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let a package be loaded when something of it is asked for, not when it is imported, unless it is loaded."""
    if name not in sys.modules:
        sys.modules[name] = _Deferred(name)
