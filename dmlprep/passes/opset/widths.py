"""Compute in a wider element type where the older operator lacks the narrow one.

The narrow values are exact in the wide type; integers come back by dropping high bits, which is what the narrow
arithmetic does, and floating point comes back rounded once.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from dmlprep.graph.analysis.schemas import schema_at, type_constraints, type_parameters
from dmlprep.passes.opset.build import Builder, T

_WIDER: Final[dict[int, tuple[int, ...]]] = {
    T.BOOL: (T.UINT8, T.INT32, T.FLOAT),
    **dict.fromkeys((T.INT8, T.UINT8, T.INT16, T.UINT16), (T.INT32, T.INT64, T.FLOAT)),
    **dict.fromkeys((T.INT32, T.UINT32), (T.INT64, T.DOUBLE)),
    **dict.fromkeys((T.FLOAT16, T.BFLOAT16, T.FLOAT4E2M1), (T.FLOAT,)),
    **dict.fromkeys((T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ), (T.FLOAT,)),
    T.INT4: (T.INT8, T.INT32),
    T.UINT4: (T.UINT8, T.INT32),
}
_LACKS = {"If", "Loop", "Scan", "Optional", "OptionalGetElement", "OptionalHasElement", "BitShift", "SequenceMap"}


def _name(dtype: int) -> str:
    return f"tensor({T.DataType.Name(dtype).lower()})"


def _variables(name: str, version: int, count: int, *, outputs: bool) -> list[str]:
    """The type variable of each of ``count`` inputs or outputs; the last parameter may be variadic."""
    parameters = type_parameters(name, version, outputs=outputs)
    return [parameters[min(i, len(parameters) - 1)][0] for i in range(count)] if parameters else []


def through_wider_type(builder: Builder, since: int) -> list[ir.Value | None] | None:
    """Cast inputs that the version before ``since`` lacks to a wider type, and outputs back; ``None``: none fits."""
    node, older = builder.node, since - 1
    name = str(node.op_type)
    if name in _LACKS or name == "Cast" or schema_at(name, older) is None:
        return None  # a Cast through a wider type would be made of such Casts again, without end
    allowed = type_constraints(name, older)
    inputs = _variables(name, older, len(node.inputs), outputs=False)
    types: dict[str, int] = {}
    for variable, value in zip(inputs, node.inputs, strict=False):
        dtype = builder.values.dtype(value)
        if value is not None and types.setdefault(variable, dtype) != dtype:
            return None  # two types, where the older version has one
    wide: dict[str, int] = {}
    for variable, dtype in types.items():
        takes = allowed.get(variable, frozenset((variable,)))  # a parameter's type may be written out
        if not dtype or _name(dtype) in takes:
            continue
        via = next((w for w in _WIDER.get(dtype, ()) if _name(w) in takes), None)
        if via is None or (name == "Pow" and dtype == T.INT32):
            return None  # powers of integers wrap round, those of floating point do not
        wide[variable] = via
    if not wide:
        return None
    operands = [
        builder.cast(value, wide[variable]) if value is not None and variable in wide else value
        for variable, value in zip(inputs, node.inputs, strict=True)
    ]
    results = builder.again(*operands, version=older)
    return [
        builder.cast(value, types[variable]) if variable in wide else value
        for variable, value in zip(_variables(name, older, len(results), outputs=True), results, strict=True)
    ]
