"""Which rewrite mends which quirk."""

from __future__ import annotations

from collections.abc import Callable

from dmlprep.passes.fix_quirks import (
    contraction,
    elements,
    outputs,
    products,
    quantization,
    ranks,
    resampling,
    shapes,
    values,
    windows,
)
from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import NodeFacts

__all__ = ["REWRITES", "Rewrite"]

Rewrite = Callable[[NodeFacts, Edit], str]
"""Mends one node, whole, and says ``""``; or says why it cannot, and has changed nothing that matters."""

REWRITES: dict[str, Rewrite] = {
    "reshape-allowzero": shapes.reshape_allowzero,
    "gemm-without-c": products.gemm_without_c,
    "mvn-before-activation": values.mvn_before_activation,
    "matmul-rank": products.matmul_rank,
    "rank": ranks.rank,
    "quantize-axis": quantization.quantize_axis,
    "dequantize-axis-omitted": quantization.dequantize_axis_omitted,
    "split-empty-output": shapes.split_empty_output,
    "convtranspose-same": windows.convtranspose_same,
    "convtranspose-output-padding": windows.convtranspose_output_padding,
    "qlinearmatmul-half": products.qlinearmatmul_half,
    "resize-aspect": windows.resize_aspect,
    "optional-without-input": shapes.optional_without_input,
    "squeeze-shared": shapes.squeeze_shared,
    "quantize-zero-point": quantization.quantize_zero_point,
    "idle-clip": quantization.idle_clip,
    "quantized-unary": quantization.quantized_unary,
    "output-before-activation": outputs.output_before_activation,
    "constant-output": outputs.constant_output,
    "matmul-vector": products.matmul_vector,
    "pad-negative": shapes.pad_negative,
    "empty-reduction": values.empty_reduction,
    "empty-output": outputs.empty_output,
    "empty-product": products.empty_product,
    "pool-ceil": windows.pool_ceil,
    "averagepool-ceil": windows.averagepool_ceil,
    "resize-forms": resampling.resize_forms,
    "resize-crop-axes": resampling.resize_forms,
    "cast-bool": values.cast_bool,
    "clip-crossed": values.clip_crossed,
    "einsum-labels": contraction.einsum_labels,
    "dynamic-quantize": quantization.dynamic_quantize,
    "gelu-decomposed": values.gelu_decomposed,
    "gelu-tanh": values.gelu_decomposed,
    "fast-gelu": values.fast_gelu,
    "gather-narrow": elements.gather_narrow,
    "scatter-narrow": elements.scatter_narrow,
    "split-gate": shapes.split_gate,
}
"""Quirk id -> rewrite. A test holds it equal to the rows of ``target/data/quirks.json`` that say ``fix``."""
