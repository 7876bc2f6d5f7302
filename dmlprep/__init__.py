"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is what the command line does: the functions of ``dmlprep.api``, which are here by their names, and
``check``, ``plan_model``, ``prepare``, ``compare`` and ``render_record`` first of all. Errors are in
``dmlprep.core.errors``, records in ``dmlprep.record``.
"""

from dmlprep import api
from dmlprep.api import *  # noqa: F403 - the names of ``api.__all__``
from dmlprep.core._version import __version__
from dmlprep.core.deferred import without

__all__ = ["__version__"]
__all__ += api.__all__

# Both are there for arithmetic with names of sizes, which dmlprep does by itself.
without("onnx_ir", "sympy", "onnx_ir._symbolic_shapes")
