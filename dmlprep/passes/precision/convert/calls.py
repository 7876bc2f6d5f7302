"""Calls of model-local functions, replaced by the functions' bodies; what was chosen in them stays chosen."""

from __future__ import annotations

from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.graph.rewriting.inlining import Inline

_TAG = "dmlprep.chosen."


def inline_calls(model: Model, *choices: dict[int, str]) -> bool:
    """Inline every function of ``model`` in place; return whether anything changed.

    Args:
        choices: ``id(node)`` -> why it was chosen, changed in place. A node of a function stands for what becomes of it
            in every call, a call for all that becomes of it.

    Raises:
        ModelRefused: a function cannot be inlined (DP403).
    """
    if not model.ir.functions:
        return False
    # What nobody calls is not counted in the model's budget, and the pass would expand it all the same.
    unused = RemoveUnusedFunctionsPass()(model.ir)  # type: ignore[no-untyped-call]
    if not model.ir.functions:
        return bool(unused.modified)
    # Metadata is what onnx-ir hands from a call, and from a function's node, to the copies.
    for node in nodes(model.ir):
        for index, chosen in enumerate(choices):
            if id(node) in chosen:
                node.metadata_props[f"{_TAG}{index}"] = chosen[id(node)]
    try:
        result = Inline()(model.ir)
    except Exception as error:  # onnx-ir's passes have no common error
        text = f"a model-local function cannot be inlined: {error}"
        raise ModelRefused(text, code="DP403", fix="export the model without functions") from error
    model.ir = result.model
    for index, chosen in enumerate(choices):
        chosen.clear()
        for node in nodes(model.ir):
            why = node.metadata_props.pop(f"{_TAG}{index}", None)
            if why is not None:
                chosen[id(node)] = why
    return bool(result.modified or unused.modified)
