"""Weights in few bits: numbers of 4 or 8 bits in blocks that share a scale, as com.microsoft::MatMulNBits has them."""

from dmlprep.precision.weights.blocks import Blocks
from dmlprep.precision.weights.matmuls import Choice, Done, write_matmuls
from dmlprep.precision.weights.rows import write_rows
from dmlprep.precision.weights.sensitivity import Found, find_sensitive

__all__ = ["Blocks", "Choice", "Done", "Found", "find_sensitive", "write_matmuls", "write_rows"]
