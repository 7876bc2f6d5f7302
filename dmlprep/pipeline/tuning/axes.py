"""The axes in which candidates differ: opset, com.microsoft's operators, FP16 inputs and outputs, fused forms.

Each axis changes a recipe. Options that a recipe sets itself do not change.
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
"""Options of the fuse step, in the order in which they are added, and their words in a candidate's name."""

_ASKED = ("group_norm", "attention", "grouped_attention")


class Variant(msgspec.Struct, frozen=True):
    """A recipe, and its changed settings in words."""

    recipe: Recipe
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in tables."""
        return ", ".join((self.recipe.name, *self.words))

    def set(self, step: str, words: str, **options: object) -> Variant:
        """Return the variant with options of a step, which is added at the end if the recipe does not have it."""
        tables = {**self.recipe.step, step: {**self.recipe.step.get(step, {}), **options}}
        return Variant(msgspec.structs.replace(self.recipe, step=tables), (*self.words, words))


def step_of(recipe: Recipe, pass_name: str) -> str:
    """Return the name of the last step that runs a pass; empty where none does."""
    return next((n for n, table in reversed(recipe.step.items()) if table.get("use", n) == pass_name), "")


def says(recipe: Recipe, pass_name: str, option: str) -> bool:
    """Return True if a recipe itself sets an option, or does not have the step."""
    step = step_of(recipe, pass_name)
    return not step or option in recipe.step[step]


def with_opset(one: Variant, version: int) -> Variant:
    """Return the variant at another opset than ``auto`` selects."""
    return one.set(step_of(one.recipe, "opset"), f"opset {version}", version=version)


def with_contrib(one: Variant) -> Variant:
    """Return the variant with operators of com.microsoft instead of newer ones."""
    return one.set(step_of(one.recipe, "opset"), "com.microsoft", prefer_contrib=True)


def half_io(one: Variant, io: Io) -> list[Variant]:
    """Return the variants with the requested types of graph inputs and outputs; only itself without an FP16 step."""
    step = step_of(one.recipe, "fp16")
    if not step or io == "keep":
        return [one]
    half = one.set(step, "FP16 inputs and outputs", keep_io=False)
    return [half] if io == "half" else [one, half]


def fused(one: Variant, asked: Collection[str]) -> list[Variant]:
    """Return the variant itself, and with more and more fused forms.

    Args:
        asked: options of forms that are tried only on request. ``group_norm`` has a kernel on DirectML only. Both forms
            of attention need times to show whether they gain.
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
    """Return opsets to try, with how many compute nodes would leave DirectML at each; fewest first.

    Of opsets with the same version of every operator in the model, only the nearest to the model's own is returned.
    Ties: the nearest first.

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
