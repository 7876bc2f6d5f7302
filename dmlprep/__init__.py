"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is four functions: ``check``, ``plan``, ``prepare`` and ``compare``.
"""

from dmlprep._version import __version__
from dmlprep.api import check, compare, plan, prepare

__all__ = ["__version__", "check", "compare", "plan", "prepare"]
