"""What scales the integer results of MatMulInteger and ConvInteger back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.view import Found, View


def find(view: View, fault: PrecisionFault) -> Found:
    """What scales the integer results of MatMulInteger and ConvInteger back: they go up to 2**31 before."""
    for node in view.order:
        if node.op_type not in ("MatMulInteger", "ConvInteger"):
            continue
        stack, seen = list(node.outputs), set[ir.Node]()
        while stack:
            value = stack.pop()
            for reader in value.consumers():
                sums = reader.op_type in ("Add", "Sub") and not view.is_float(reader)
                if reader in seen or not (sums or reader.op_type in MOVES | {"Cast", "Mul", "Div"}):
                    continue
                seen.add(reader)
                stack += reader.outputs
                if reader.op_type != "Cast" and view.is_float(reader):
                    yield reader, "it scales the integer result of a product"
                    for maker in _scale_makers(v for v in reader.inputs if v is not value):
                        yield maker, "it computes a quantisation scale"


def _scale_makers(values: Iterable[ir.Value | None]) -> Iterator[ir.Node]:
    """Products of scales, which may be below FP16's range."""
    stack = list(values)
    while stack:
        value = stack.pop()
        node = value.producer() if value is not None else None
        if node is not None and node.op_type in MOVES | {"Mul", "Div"}:
            yield node
            stack += node.inputs
