"""Convert models to FP16 with onnxconverter-common, with explicit limits and without weights.

Its defaults clamp at 1e4 and are never used. Large weights are external references during the conversion, so that they
are not read. The caller casts those whose type changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

import onnx
from onnxconverter_common import float16

from dmlprep.core.errors import CheckNotRun, InternalError, ModelRefused, ToolFailed
from dmlprep.process.onnx_worker import calls

FP16_MAX = 65504.0
FP16_MIN = 5.96e-8
"""The smallest subnormal, 2**-24, rounded down so that 2**-24 itself passes."""

DEFAULT_OPERATORS: tuple[str, ...] = tuple(float16.DEFAULT_OP_BLOCK_LIST)
"""Operators that this converter leaves in FP32 by default."""


def convert_to_fp16(
    proto: onnx.ModelProto, *, keep_io: bool, keep_operators: Collection[str], keep_nodes: Collection[str]
) -> onnx.ModelProto:
    """Return the model in FP16. The result may be invalid.

    Large initializers may be external references: their type changes, their content is not read.

    Args:
        keep_io: inputs and outputs stay FP32.
        keep_operators: operator types that stay FP32, in addition to ``DEFAULT_OPERATORS``.
        keep_nodes: names of nodes that stay FP32.

    Raises:
        ModelRefused: the converter failed.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
        CheckNotRun: the process of onnx does not start.
    """
    try:
        inferred = calls.infer_shapes(proto, propagate=False)  # the converter would call it in this process
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the caller finds and reports clamped weights, with numbers
            converted: onnx.ModelProto = float16.convert_float_to_float16(
                inferred,
                min_positive_val=FP16_MIN,
                max_finite_val=FP16_MAX,
                keep_io_types=keep_io,
                disable_shape_infer=True,
                op_block_list=[*DEFAULT_OPERATORS, *keep_operators],
                node_block_list=list(keep_nodes),
                check_fp16_ready=False,
            )
            return converted
    except (ToolFailed, CheckNotRun, InternalError):
        raise
    except Exception as error:  # its errors have no common base class, so every error counts as a refusal
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
        raise ModelRefused(f"onnxconverter-common failed: {line}", code="DP403", fix='use engine = "own"') from error


def holds_fp16(proto: onnx.ModelProto) -> bool:
    """Return whether a model already has FP16 inputs, outputs, weights or casts; this converter would break it."""
    return bool(float16.check_if_fp16_ready(proto.graph))
