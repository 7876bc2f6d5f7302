"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is what the command line does: the functions of ``dmlprep.api``, which are here by their names, and
``check``, ``plan_model``, ``prepare``, ``compare`` and ``render_record`` first of all. Errors are in
``dmlprep.core.errors``, records in ``dmlprep.record``.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dmlprep.core._version import __version__ as __version__
from dmlprep.core.deferred import without

if TYPE_CHECKING:
    from dmlprep import api as api
    from dmlprep.api import *  # noqa: F403 - the names of ``api.__all__``

# Both are there for arithmetic with names of sizes, which dmlprep does by itself.
without("onnx_ir", "sympy", "onnx_ir._symbolic_shapes")


def __getattr__(name: str) -> object:
    """Import ``dmlprep.api`` when one of its names is used, so that the command line starts without it."""
    if name == "api":
        return import_module("dmlprep.api")
    if name == "__all__":
        return ["__version__", *import_module("dmlprep.api").__all__]
    # ``from dmlprep import core`` imports a room alone.
    if not name.startswith("_") and find_spec(f"dmlprep.{name}") is None:
        api = import_module("dmlprep.api")
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'dmlprep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "api", *import_module("dmlprep.api").__all__})
