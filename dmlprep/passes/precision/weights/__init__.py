"""Store weights in few bits: MatMul and Gemm with a scale for each block, tables and convolutions for each slice."""

from dmlprep.passes.precision.weights.blocks import Blocks
from dmlprep.passes.precision.weights.convolutions import write_convolutions, write_rows
from dmlprep.passes.precision.weights.matmuls import Choice, Done, write_matmuls
from dmlprep.passes.precision.weights.sensitivity import SearchResult, find_sensitive

__all__ = [
    "Blocks",
    "Choice",
    "Done",
    "SearchResult",
    "find_sensitive",
    "write_convolutions",
    "write_matmuls",
    "write_rows",
]
