"""Load rarely used dependencies of another package only at their first use.

onnx-ir imports sympy for arithmetic with symbolic dimensions. This import takes as long as all others together, and
dmlprep does not need it: dmlprep has its own arithmetic (``graph/analysis/polynomial.py``).
``importlib.util.LazyLoader`` is not suitable. It loads a module at its second import, and changes the imports of the
surrounding program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    # importlib.abc imports importlib.resources and archive readers, only for an empty base class
    Loader = MetaPathFinder = object


class _Absent(ModuleType):
    """A placeholder for a module that is not loaded yet.

    Reading an attribute loads the real module and returns the attribute of the real module.
    """

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


class _Without(Loader):
    """A loader that executes one module while the modules ``absent`` are placeholders in ``sys.modules``.

    A module that is already loaded is not replaced. Afterwards the placeholders are removed, so later imports load the
    real modules.
    """

    def __init__(self, loader: Loader, absent: Sequence[str]) -> None:
        self._loader, self._absent = loader, absent

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        put = {name: _Absent(name) for name in self._absent if name not in sys.modules}
        sys.modules.update(put)
        try:
            self._loader.exec_module(module)
        finally:
            for name, absent in put.items():
                if sys.modules.get(name) is absent:
                    del sys.modules[name]


class _Finder(MetaPathFinder):
    """A finder for ``sys.meta_path`` that wraps the loader of one module in ``_Without``, then removes itself."""

    def __init__(self, name: str, absent: Sequence[str]) -> None:
        self._name, self._absent = name, absent

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Without(spec.loader, self._absent)
        return spec


def without(name: str, *absent: str) -> None:
    """Make the first import of ``name`` see placeholders instead of the modules ``absent``.

    Each of them is loaded at its first use. There is no effect if ``name`` is already imported.
    """
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, absent))
