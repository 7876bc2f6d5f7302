"""What candidates differ in: opset, com.microsoft's operators, FP16 inputs and outputs, fused forms.

Each axis is a change of a recipe. What a recipe says of an axis itself stays as it says.
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
"""Types of graph inputs and outputs of FP16 candidates: as they are, FP16, or both tried."""

_FORMS = {
    "rotary": "rotary",
    "skip_norm": "skip-norm",
    "group_norm": "group-norm",
    "attention": "attention",
    "grouped_attention": "grouped-attention",
}
"""Options of the fuse step, in the order they are added, and what a candidate's name calls them."""

_ASKED = ("group_norm", "attention", "grouped_attention")


class Variant(msgspec.Struct, frozen=True):
    """A recipe, and what of it was set otherwise in words."""

    recipe: Recipe
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As tables have it."""
        return ", ".join((self.recipe.name, *self.words))

    def set(self, step: str, words: str, **options: object) -> Variant:
        """With options of a step, which is added at the end where the recipe does not have it."""
        tables = {**self.recipe.step, step: {**self.recipe.step.get(step, {}), **options}}
        return Variant(msgspec.structs.replace(self.recipe, step=tables), (*self.words, words))


def step_of(recipe: Recipe, pass_name: str) -> str:
    """Name of the last step that runs a pass; empty where none does."""
    return next((n for n, table in reversed(recipe.step.items()) if table.get("use", n) == pass_name), "")


def says(recipe: Recipe, pass_name: str, option: str) -> bool:
    """Whether a recipe itself says something of an option, or does not have the step."""
    step = step_of(recipe, pass_name)
    return not step or option in recipe.step[step]


def with_opset(one: Variant, version: int) -> Variant:
    """Brought to another opset than ``auto`` finds."""
    return one.set(step_of(one.recipe, "opset"), f"opset {version}", version=version)


def with_contrib(one: Variant) -> Variant:
    """With operators of com.microsoft in the place of younger ones."""
    return one.set(step_of(one.recipe, "opset"), "com.microsoft", prefer_contrib=True)


def half_io(one: Variant, io: Io) -> list[Variant]:
    """With graph inputs and outputs in the types that are asked for; itself where no step makes FP16."""
    step = step_of(one.recipe, "fp16")
    if not step or io == "keep":
        return [one]
    half = one.set(step, "FP16 inputs and outputs", keep_io=False)
    return [half] if io == "half" else [one, half]


def fused(one: Variant, asked: Collection[str]) -> list[Variant]:
    """Itself, and with more fused forms, one after the other.

    Args:
        asked: options of forms that are tried only where they are asked for: ``group_norm``, which only DirectML has a
            kernel for, and both forms of attention, of which only times tell whether they gain.
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
    """Opsets to try, with how many compute nodes would leave DirectML at each. Fewest first, then nearest to the own.

    Of opsets at which every operator of the model has the same version, one: that nearest to the model's own.

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
