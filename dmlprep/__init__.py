"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result.

The public surface is what the command line does: ``check``, ``verify_placement`` and ``explain``; ``plan``,
``plan_model``, ``tune`` and ``prepare``; ``compare``, ``bisect``, ``bench``, and ``make_feeds`` for their inputs; for a
Windows machine without dmlprep ``pack_kit``, ``verify_kit`` and ``choose_kit``; for apps ``package_model``,
``verify_package`` and ``inspect_app``;
``adapters`` and ``gpus``; ``render_record``, ``write_record`` and ``write_depfile`` for records;
``limits`` for models that need more. Errors are in ``dmlprep.errors``, records in ``dmlprep.record``.
"""

from dmlprep._deferred import without
from dmlprep._version import __version__
from dmlprep.api import (
    adapters,
    bench,
    bisect,
    check,
    choose_kit,
    compare,
    explain,
    gpus,
    inspect_app,
    limits,
    make_feeds,
    pack_kit,
    package_model,
    plan,
    plan_model,
    prepare,
    render_record,
    tune,
    verify_kit,
    verify_package,
    verify_placement,
    write_depfile,
    write_record,
)

__all__ = [
    "__version__",
    "adapters",
    "bench",
    "bisect",
    "check",
    "choose_kit",
    "compare",
    "explain",
    "gpus",
    "inspect_app",
    "limits",
    "make_feeds",
    "pack_kit",
    "package_model",
    "plan",
    "plan_model",
    "prepare",
    "render_record",
    "tune",
    "verify_kit",
    "verify_package",
    "verify_placement",
    "write_depfile",
    "write_record",
]

# Both are there for arithmetic with names of sizes, which dmlprep does by itself.
without("onnx_ir", "sympy", "onnx_ir._symbolic_shapes")
