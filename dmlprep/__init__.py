"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is seven functions: ``check``, ``plan``, ``prepare`` and ``compare``, for a Windows machine without
dmlprep ``pack_kit`` and ``verify_kit``, and ``adapters``. Errors are in ``dmlprep.errors``, records in
``dmlprep.record``.
"""

from dmlprep._version import __version__
from dmlprep.api import adapters, check, compare, pack_kit, plan, prepare, verify_kit

__all__ = ["__version__", "adapters", "check", "compare", "pack_kit", "plan", "prepare", "verify_kit"]
