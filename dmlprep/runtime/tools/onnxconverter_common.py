"""onnxconverter-common's FP16 converter, with explicit limits and without its weights.

Its defaults clamp at 1e4 and are never used. Large weights stand as references while it works, so that nothing of them
is read; the caller casts those whose type it changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

import onnx
from onnxconverter_common import float16

from dmlprep.core.errors import ModelRefused, ToolFailed
from dmlprep.process.onnx_worker import calls

FP16_MAX = 65504.0
FP16_MIN = 5.96e-8
"""The smallest subnormal, 2**-24, rounded down so that 2**-24 itself passes."""

DEFAULT_OPERATORS: tuple[str, ...] = tuple(float16.DEFAULT_OP_BLOCK_LIST)
"""Operators that this converter leaves in FP32 unless told otherwise."""


def convert_to_fp16(
    proto: onnx.ModelProto, *, keep_io: bool, keep_operators: Collection[str], keep_nodes: Collection[str]
) -> onnx.ModelProto:
    """Convert a model to FP16; nothing about the validity of the result is promised.

    Large initializers may be external references: their type is changed, their bytes are not looked for. Inputs and
    outputs (``keep_io``), operator types besides ``DEFAULT_OPERATORS``, and nodes by name can stay FP32.

    Raises:
        ModelRefused: the converter failed.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    try:
        inferred = calls.infer_shapes(proto, propagate=False)  # the converter's own call would be in this process
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # clamped weights are found and reported by the caller, with numbers
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
    except ToolFailed:
        raise
    except Exception as error:  # its failures have no common base: whatever it raises is a refusal
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
        raise ModelRefused(f"onnxconverter-common failed: {line}", code="DP403", fix='use engine = "own"') from error


def holds_fp16(proto: onnx.ModelProto) -> bool:
    """Whether a model has FP16 inputs, outputs, weights or casts already; this converter would break it."""
    return bool(float16.check_if_fp16_ready(proto.graph))
