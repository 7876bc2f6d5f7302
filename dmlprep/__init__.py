"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is six functions: ``check``, ``plan``, ``prepare`` and ``compare``, and for a Windows machine without
dmlprep ``pack_kit`` and ``verify_kit``. Errors are in ``dmlprep.errors``, records in ``dmlprep.record``.
"""

from dmlprep._version import __version__
from dmlprep.api import check, compare, pack_kit, plan, prepare, verify_kit

__all__ = ["__version__", "check", "compare", "pack_kit", "plan", "prepare", "verify_kit"]
