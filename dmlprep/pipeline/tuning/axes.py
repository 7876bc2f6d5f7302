"""The changes that ``tune`` tries on a recipe: opset, operators of com.microsoft, FP16 inputs and outputs, fusions.

Options that the recipe itself sets do not change, except ``keep_io`` and ``group_norm``, which the user requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Literal

import msgspec

from dmlprep.directml.placement import off_directml
from dmlprep.directml.targets import Target
from dmlprep.graph.analysis.schemas import NEWEST, since_versions
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.fuse import FuseOptions
from dmlprep.pipeline.recipe import Recipe

Io = Literal["keep", "half", "any"]
"""Types of graph inputs and outputs of FP16 candidates: unchanged, FP16, or both tried."""

_FORMS = {
    "rotary": "rotary",
    "skip_norm": "skip-norm",
    "group_norm": "group-norm",
    "attention": "attention",
    "grouped_attention": "grouped-attention",
}
"""Options of the step ``fuse``, in the order in which ``tune`` adds them, and their words in a candidate's name."""

_ASKED = ("group_norm", "attention", "grouped_attention")


class Variant(msgspec.Struct, frozen=True):
    """A changed recipe that ``tune`` tries; ``words`` describe the changes."""

    recipe: Recipe
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the candidate: the name of the recipe, and the changes in words."""
        return ", ".join((self.recipe.name, *self.words))

    def set(self, step: str, words: str, **options: object) -> Variant:
        """Return a copy of the variant with more options of a step, and ``words`` that describe them.

        If the recipe does not have the step, it is added at the end, but before a step that runs ``frame``.
        """
        tables = {**self.recipe.step, step: {**self.recipe.step.get(step, {}), **options}}
        if frame := step_of(self.recipe, "frame"):
            tables[frame] = tables.pop(frame)
        return Variant(msgspec.structs.replace(self.recipe, step=tables), (*self.words, words))


def step_of(recipe: Recipe, pass_name: str) -> str:
    """Return the name of the last step of a recipe that runs the pass ``pass_name``; empty if no step does."""
    return next((n for n, table in reversed(recipe.step.items()) if table.get("use", n) == pass_name), "")


def says(recipe: Recipe, pass_name: str, option: str) -> bool:
    """Return True if ``tune`` must not set an option: the recipe itself sets it, or has no step that runs the pass."""
    step = step_of(recipe, pass_name)
    return not step or option in recipe.step[step]


def with_opset(one: Variant, version: int) -> Variant:
    """Return the variant with a fixed opset ``version``, instead of the one that the step ``opset`` would choose."""
    return one.set(step_of(one.recipe, "opset"), f"opset {version}", version=version)


def with_contrib(one: Variant) -> Variant:
    """Return the variant whose step ``opset`` prefers operators of com.microsoft to newer standard operators."""
    return one.set(step_of(one.recipe, "opset"), "com.microsoft", prefer_contrib=True)


def half_io(one: Variant, io: Io) -> list[Variant]:
    """Return the variants with the requested types of graph inputs and outputs.

    ``keep``: the variant itself; ``half``: only that with FP16 inputs and outputs; ``any``: both. Without an FP16 step,
    always the variant itself.
    """
    step = step_of(one.recipe, "fp16")
    if not step or io == "keep":
        return [one]
    half = one.set(step, "FP16 inputs and outputs", keep_io=False)
    return [half] if io == "half" else [one, half]


def fused(one: Variant, asked: Collection[str]) -> list[Variant]:
    """Return the variant itself, and variants whose step ``fuse`` fuses more and more kinds of operators.

    Args:
        asked: kinds to try although they are tried on request only: ``group_norm``, which only DirectML can run;
            ``attention`` and ``grouped_attention``, which only times can judge.
    """
    own = step_of(one.recipe, "fuse")
    table = one.recipe.step[own] if own else dict.fromkeys(_FORMS, False)
    default = msgspec.to_builtins(FuseOptions())
    variants, words, more = [one], list[str](), dict(table)
    for option, word in _FORMS.items():
        fixed = own and option in table
        if more.get(option, default[option]) or (option in _ASKED and option not in asked):
            continue
        if not fixed or option == "group_norm":
            words, more = [*words, word], {**more, option: True}
            variants.append(one.set(own or "fuse", f"fused {' and '.join(words)}", **more))
    return variants


def opset_classes(model: Model, target: Target) -> dict[int, int]:
    """Return the opsets to try, and for each the number of compute nodes that DirectML has no kernel for.

    The opset with the fewest such nodes is first; ties: the nearest to the model's own opset first. If several opsets
    have the same version of every operator in the model, only the nearest is in the result.

    Raises:
        UsageError: the target's kernels are not known.
    """
    known = since_versions()
    operators = sorted({n.op_type for n in nodes(model.ir) if n.domain in ("", "ai.onnx") and n.op_type in known})
    off, own = off_directml(model, target), model.opset
    nearest: dict[tuple[int, ...], int] = {}
    for opset in sorted((v for v in off if v <= NEWEST), key=lambda v: (abs(v - own), -v)):
        nearest.setdefault(tuple(bisect_right(known[op], opset) for op in operators), opset)
    return {opset: off[opset] for opset in sorted(nearest.values(), key=lambda v: off[v])}
