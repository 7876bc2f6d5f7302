"""Sizes that a node cannot accept, where onnx's shape rules do not check them.

Each rule returns a few words on the fault where it is certain, otherwise an empty text: it compares numbers only.
Source: the operators' text at https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import Known
from dmlprep.graph.model.texts import text_of
from dmlprep.portable.arrays import Array


def contradiction(known: Known, node: ir.Node) -> str:
    """Return why the sizes of a node do not fit together; empty where they do, or where that is not known."""
    rule = _RULES.get(node.op_type)
    try:
        return rule(known, node) if rule is not None else ""
    except (IndexError, TypeError):  # a node that its operator does not allow: onnx's checker reports it
        return ""


def _sizes(known: Known, node: ir.Node, index: int) -> tuple[int | None, ...] | None:
    """Return the sizes of an input, ``None`` for free ones; the whole is ``None`` without the input or its rank."""
    dims = known.dims(node.inputs[index]) if index < len(node.inputs) else None
    return None if dims is None else tuple(d if isinstance(d, int) else None for d in dims)


def _differ(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a != b


def _reshape(known: Known, node: ir.Node) -> str:
    """Return why a Reshape changes the number of elements; empty if it does not, or if a size is unknown.

    onnx does not compare the numbers: a shape with a fixed batch would pass.
    """
    before, after = known.static_shape(node.inputs[0]), known.static_shape(node.outputs[0])
    if before is None or after is None or math.prod(before) == math.prod(after):
        return ""
    return f"{math.prod(before)} elements do not fit {after}"


def _conv(known: Known, node: ir.Node) -> str:
    data, weight = _sizes(known, node, 0), _sizes(known, node, 1)
    if data is None or weight is None or len(data) < 3 or len(weight) != len(data):
        return ""
    if node.op_type == "ConvTranspose":
        return f"{data[1]} channels, but the weight needs {weight[0]}" if _differ(data[1], weight[0]) else ""
    wanted = None if weight[1] is None else weight[1] * node.attributes.get_int("group", 1)
    if _differ(data[1], wanted):
        return f"{data[1]} channels, but the weight needs {wanted}"
    return _window(node, data[2:], weight[2:])


def _window(node: ir.Node, sizes: tuple[int | None, ...], kernel: tuple[int | None, ...]) -> str:
    """Return that a window is larger than its padded input; empty if it fits, or if that is unknown.

    onnx infers 0 for such a size, and no kernel runs it.
    """
    automatic = text_of(node, "auto_pad", "NOTSET")
    if automatic.startswith("SAME") or 0 in sizes:
        return ""
    rank = len(sizes)
    pads = list(node.attributes.get_ints("pads", [0] * 2 * rank)) if automatic == "NOTSET" else [0] * 2 * rank
    dilations = list(node.attributes.get_ints("dilations", [1] * rank))
    if len(pads) != 2 * rank or len(dilations) != rank:
        return ""
    for axis, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        if size is None or width is None:
            continue
        room, span = size + pads[axis] + pads[axis + rank], (width - 1) * dilations[axis] + 1
        if room < span:
            return f"its window spans {span} of only {room} elements"
    return ""


def _recurrent(known: Known, node: ir.Node) -> str:
    data, weight = _sizes(known, node, 0), _sizes(known, node, 1)
    if data is None or len(data) != 3:
        return ""
    if weight is not None and len(weight) == 3 and _differ(data[2], weight[2]):
        return f"{data[2]} features, but the weight needs {weight[2]}"
    axis = 0 if node.attributes.get_int("layout", 0) else 1
    batch = data[axis]
    for index, name in ((5, "initial_h"), (6, "initial_c")):
        state = _sizes(known, node, index) if node.op_type == "LSTM" or index == 5 else None
        if state is not None and len(state) == 3 and _differ(batch, state[axis]):
            return f"{name} is for a batch of {state[axis]}, the input has {batch}"
    lengths = _sizes(known, node, 4)
    if lengths is not None and len(lengths) == 1 and _differ(batch, lengths[0]):
        return f"sequence_lens has {lengths[0]} entries, the batch is {batch}"
    return ""


def _broadcasts(known: Known, node: ir.Node, index: int) -> str:
    """Return that input ``index`` does not broadcast to the first input; empty if it does, or if that is unknown."""
    dims, other = _sizes(known, node, 0), _sizes(known, node, index)
    if dims is None or other is None:
        return ""
    if len(other) > len(dims):
        return f"input {index} has too many dimensions"
    for size, own in zip(reversed(other), reversed(dims), strict=False):
        if size not in (None, 1) and _differ(size, own):
            return f"input {index} of {size} does not broadcast to {own}"
    return ""


def _instance_norm(known: Known, node: ir.Node) -> str:
    data = _sizes(known, node, 0)
    for index in (1, 2):
        scale = _sizes(known, node, index)
        if data is not None and len(data) > 1 and scale is not None and len(scale) == 1 and _differ(data[1], scale[0]):
            return f"{data[1]} channels, but input {index} has {scale[0]}"
    return ""


def _gather(known: Known, node: ir.Node) -> str:
    data, indices = _sizes(known, node, 0), known.constant(node.inputs[1])
    if data is None or indices is None or not indices.size or indices.dtype.kind not in "iu":
        return ""
    axis = node.attributes.get_int("axis", 0)
    return _outside(indices, data[axis] if -len(data) <= axis < len(data) else None)


def _outside(indices: Array, size: int | None) -> str:
    """Return that an index is not one of ``size`` elements; empty if all are, or if ``size`` is ``None``."""
    if size is None or (-size <= indices.min() and indices.max() < size):
        return ""
    return f"index {int(indices.max() if indices.max() >= size else indices.min())} of {size}"


def _gather_nd(known: Known, node: ir.Node) -> str:
    data, indices = _sizes(known, node, 0), known.constant(node.inputs[1])
    batch = node.attributes.get_int("batch_dims", 0)
    if data is None or indices is None or not indices.size or indices.ndim < 1:
        return ""
    columns = zip(np.moveaxis(indices, -1, 0), data[batch:], strict=False)
    return next(filter(None, (_outside(column, size) for column, size in columns)), "")


def _scatter_nd(known: Known, node: ir.Node) -> str:
    data, indices, updates = (_sizes(known, node, i) for i in range(3))
    if data is None or indices is None or updates is None or not indices or indices[-1] is None:
        return ""
    wanted = (*indices[:-1], *data[indices[-1] :])
    if len(wanted) != len(updates) or any(_differ(a, b) for a, b in zip(wanted, updates, strict=True)):
        return f"updates are {list(updates)}, but must be {list(wanted)}"
    return ""


def _blocks(known: Known, node: ir.Node) -> str:
    data, block = _sizes(known, node, 0), node.attributes.get_int("blocksize", 0)
    if data is None or len(data) != 4 or block < 1:
        return ""
    pairs = [(data[1], block * block)] if node.op_type == "DepthToSpace" else [(data[2], block), (data[3], block)]
    return next((f"{size} is not a multiple of {divisor}" for size, divisor in pairs if size and size % divisor), "")


def _pool(known: Known, node: ir.Node) -> str:
    data, kernel = _sizes(known, node, 0), node.attributes.get_ints("kernel_shape", None)
    if data is None or not kernel or len(kernel) != len(data) - 2:
        return ""
    if text_of(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return ""
    rank = len(kernel)
    pads = list(node.attributes.get_ints("pads", ()) or [0] * 2 * rank)
    dilations = list(node.attributes.get_ints("dilations", ()) or [1] * rank)
    strides = list(node.attributes.get_ints("strides", ()) or [1] * rank)
    if len(pads) != 2 * rank or len(dilations) != rank or len(strides) != rank:
        return ""
    for axis, size in enumerate(data[2:]):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        # A window that is too large by less leaves an empty output, which ONNX Runtime runs.
        if size is not None and size + pads[axis] + pads[axis + rank] - reach <= -2 * strides[axis]:
            return f"a window of {reach} does not fit in {size}"
    return ""


def _einsum(known: Known, node: ir.Node) -> str:
    equation = text_of(node, "equation").replace(" ", "")
    if "." in equation:
        return ""
    label_sizes: dict[str, int] = {}
    for index, letters in enumerate(equation.split("->")[0].split(",")):
        sizes = _sizes(known, node, index)
        if sizes is None or len(sizes) != len(letters):
            continue
        for letter, size in zip(letters, sizes, strict=True):
            if size not in (None, 1) and _differ(label_sizes.setdefault(letter, size), size):
                return f"{letter} is both {label_sizes[letter]} and {size}"
    return ""


_RULES: dict[str, Callable[[Known, ir.Node], str]] = {
    "Reshape": _reshape,
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "PRelu": lambda known, node: _broadcasts(known, node, 1) if known.version(node) >= 7 else "",
    "LayerNormalization": lambda known, node: _broadcasts(known, node, 1) or _broadcasts(known, node, 2),
    "InstanceNormalization": _instance_norm,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    "Einsum": _einsum,
}
