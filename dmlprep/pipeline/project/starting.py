"""A project file for models that are there: the recipe that fits each, and sizes for what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import onnx_ir as ir

from dmlprep.core.text.documents import toml_comment, toml_key, toml_value
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes

_LONGEST = 200
"""Characters of a comment."""

_RECURRENT = {"LSTM", "GRU", "RNN"}

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


@dataclass(frozen=True)
class Suggestion:
    """What a model is taken for.

    Attributes:
        why: what in the model speaks for it.
        guessed: those of them that are examples: the app knows better.
    """

    path: str
    recipe: str
    why: str
    sizes: dict[str, int] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)


def suggest_for(model: Model) -> tuple[str, str]:
    """The built-in recipe for a model, and why."""
    graph = model.ir.graph
    given = [value for value in graph.inputs if value not in graph.initializers.values()]
    operators = {node.op_type for node in nodes(model.ir)}
    ranks = {value.name or "": len(value.shape) for value in given if value.shape is not None}
    if half := next((value.name for value in graph.initializers.values() if value.dtype == ir.DataType.FLOAT16), None):
        return "@static-fp32", f"its weights are FP16 already ({half})"
    if operators & {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "MatMulInteger", "ConvInteger"}:
        return "@static-fp32", "it is quantized"
    if pictures := [name for name, rank in ranks.items() if rank == 4]:
        latent = {"timestep", "timesteps", "encoder_hidden_states"} & set(ranks)
        if latent:
            return "@diffusion-fp16", f"it has an input {min(latent)}"
        outputs = [len(value.shape) for value in graph.outputs if value.shape is not None]
        if outputs == [4] and len(pictures) == 1 and operators & {"Resize", "DepthToSpace", "ConvTranspose"}:
            return "@super-resolution-fp16", "pictures go in, and pictures of another size come out"
        if operators & {"Conv", "MatMul", "Gemm"} and not _tokens(given):
            return "@vision-fp16", f"its input {pictures[0]} is a picture"
    if recurrent := operators & _RECURRENT:
        if "Conv" in operators:
            return "@speech-fp16", f"it has Conv and {min(recurrent)}"
        return "@static-fp32", f"{min(recurrent)} stays in FP32 anyway"
    if tokens := _tokens(given):
        return "@transformer-fp16", f"its input {tokens[0]} takes tokens"
    return "@static-fp32", "no other recipe fits it for sure"


def _tokens(given: Sequence[ir.Value]) -> list[str]:
    return [v.name or "" for v in given if v.dtype in _INTEGERS and v.shape is not None and len(v.shape) == 2]


def project_text(suggestions: Sequence[Suggestion], out: str) -> str:
    """A project file, with a comment wherever something was guessed."""
    lines = [
        "# What dmlprep does here: docs/project-file.md",
        f"out = {toml_value(PurePath(out).as_posix())}          # of each model, a folder of its name in it",
    ]
    for one in suggestions:
        lines += [
            "",
            f"[models.{toml_value(one.path)}]",
            f"recipe = {toml_value(one.recipe)}   {toml_comment(one.why, _LONGEST)}",
        ]
        if one.sizes:
            sizes = ", ".join(f"{toml_key(name)} = {size}" for name, size in one.sizes.items())
            guessed = f"   {toml_comment('examples: ' + ', '.join(one.guessed), _LONGEST)}" if one.guessed else ""
            lines.append(f"pins = {{ {sizes} }}{guessed}")
    return "\n".join(lines) + "\n"
