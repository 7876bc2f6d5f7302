"""Compute in a wider element type where the older operator lacks the narrow one.

The narrow values are exact in the wide type; integers come back by dropping high bits, which is what the narrow
arithmetic does, and floating point comes back rounded once.
"""

from __future__ import annotations

from typing import Final

import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.schemas import schema_at, type_constraints, type_parameters
from dmlprep.passes.opset.build import Builder

_T = onnx.TensorProto
_WIDER: Final[dict[int, tuple[int, ...]]] = {
    _T.BOOL: (_T.UINT8, _T.INT32, _T.FLOAT),
    _T.INT8: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.UINT8: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.INT16: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.UINT16: (_T.INT32, _T.INT64, _T.FLOAT),
    _T.INT32: (_T.INT64, _T.DOUBLE),
    _T.UINT32: (_T.INT64, _T.DOUBLE),
    _T.FLOAT16: (_T.FLOAT,),
    _T.BFLOAT16: (_T.FLOAT,),
    _T.FLOAT8E4M3FN: (_T.FLOAT,),
    _T.FLOAT8E4M3FNUZ: (_T.FLOAT,),
    _T.FLOAT8E5M2: (_T.FLOAT,),
    _T.FLOAT8E5M2FNUZ: (_T.FLOAT,),
    _T.FLOAT4E2M1: (_T.FLOAT,),
    _T.INT4: (_T.INT8, _T.INT32),
    _T.UINT4: (_T.UINT8, _T.INT32),
}
_LACKS = {"If", "Loop", "Scan", "Optional", "OptionalGetElement", "OptionalHasElement", "BitShift", "SequenceMap"}


def _name(dtype: int) -> str:
    return f"tensor({_T.DataType.Name(dtype).lower()})"


def through_wider_type(builder: Builder, since: int) -> list[ir.Value | None] | None:
    """The node with the inputs that the version before ``since`` lacks cast to a wider type, and its outputs cast back.

    Returns:
        the outputs, ``None`` where no type fits.
    """
    node, older = builder.node, since - 1
    name = str(node.op_type)
    if name in _LACKS or name == "Cast" or schema_at(name, older) is None:
        return None  # a Cast through a wider type would be made of such Casts again, without end
    allowed = type_constraints(name, older)
    variables: dict[str, int] = {}
    seen: dict[str, int] = {}
    inputs = type_parameters(name, older, outputs=False)
    for i, value in enumerate(node.inputs):
        if value is None or not inputs:
            continue
        variable = inputs[min(i, len(inputs) - 1)][0]
        dtype = builder.values.dtype(value)
        takes = allowed.get(variable, frozenset((variable,)))  # a parameter's type may be written out
        if seen.setdefault(variable, dtype) != dtype:
            return None  # two types, where the older version has one
        if dtype and _name(dtype) not in takes:
            variables[variable] = dtype
    chosen: dict[str, tuple[int, int]] = {}
    for variable, dtype in variables.items():
        takes = allowed.get(variable, frozenset((variable,)))
        via = next((w for w in _WIDER.get(dtype, ()) if _name(w) in takes), None)
        if via is None or (name == "Pow" and dtype == _T.INT32):
            return None  # powers of integers wrap round, those of floating point do not
        chosen[variable] = (dtype, via)
    if not chosen:
        return None
    given: list[ir.Value | None] = []
    for i, value in enumerate(node.inputs):
        variable = inputs[min(i, len(inputs) - 1)][0]
        given.append(builder.cast(value, chosen[variable][1]) if value is not None and variable in chosen else value)
    found = builder.again(*given, version=older)
    outputs = type_parameters(name, older, outputs=True)
    result: list[ir.Value | None] = []
    for i, value in enumerate(found):
        variable = outputs[min(i, len(outputs) - 1)][0]
        result.append(builder.cast(value, chosen[variable][0]) if variable in chosen else value)
    return result
