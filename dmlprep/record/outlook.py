"""Predictions of the result of ``prepare``, for ``check``, with ``--plan`` and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.shell import command_line
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.steps import StepRecord


class Fate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that runs on the CPU now, and what ``prepare`` does with it.

    Shape arithmetic that ONNX Runtime keeps on the CPU is left out.

    Attributes:
        op: operator and version: ``Gelu-20``.
        step: the step that moves it to DirectML or removes it; empty if it stays on the CPU.
        reason: why it stays on the CPU; empty if it does not.
    """

    node: str
    op: str
    step: str = ""
    reason: str = ""
    role: str = "compute"


class Half(msgspec.Struct, frozen=True):
    """The number of floating-point nodes in FP16 (``half``) and FP32 (``single``) after the step to FP16.

    Casts do not count. Only the rules of the step are applied, not its search.

    Attributes:
        by_rule: number of nodes that each rule keeps in FP32.
        search: whether ``prepare`` then searches for more nodes to keep in FP32.
    """

    half: int
    single: int
    by_rule: dict[str, int]
    search: bool


class Outlook(msgspec.Struct, frozen=True, omit_defaults=True):
    """The predicted result of ``prepare`` for one model and recipe.

    Attributes:
        sizes, values: sizes of dimensions and values of inputs that the user set.
        free: dimensions of inputs that stay free, with their places.
        before, after: the placement before and after the steps; ``after`` is ``None`` if a step refuses the model.
        pinned: the placement before the steps, but with the fixed sizes; ``None`` if no size changes, or if all nodes
            are on DirectML.
        steps: the results of the steps, which ran without models being run.
        fates: the nodes on the CPU before the steps.
        staying: compute nodes on the CPU afterwards, also those that a step made.
        half: the result of the step to FP16; ``None`` without this step.
        refused: why a step refuses the model; otherwise empty.
        memory: device memory of a session afterwards; ``None`` if no step changed the model, or one refuses it.
        example: the prediction with a size for each free dimension; ``None`` without such dimensions. The graph may
            refuse these sizes.
        target_reason: why ``target`` is the default, as in ``RunRecord``.
    """

    recipe: str
    target: str
    sizes: dict[str, int]
    free: dict[str, list[str]]
    opset_before: int
    opset_after: int
    opset_chosen_by: str
    before: PlacementFacts
    after: PlacementFacts | None
    steps: list[StepRecord]
    fates: list[Fate]
    staying: list[Fate]
    half: Half | None = None
    refused: str = ""
    values: dict[str, Any] = {}
    memory: MemoryEstimate | None = None
    pinned: PlacementFacts | None = None
    example: Outlook | None = None
    target_reason: str = ""

    @property
    def best(self) -> Outlook:
        """The prediction ``example``, with sizes for free dimensions.

        Without an example, or if a step refuses it, this prediction.
        """
        return self if self.example is None or self.example.refused else self.example

    @property
    def pins(self) -> str:
        """The sizes that the example adds, as options of the command line; empty without an example."""
        return command_line(*_pins({k: v for k, v in (self.example or self).sizes.items() if k not in self.sizes}))


def _pins(sizes: Mapping[str, int]) -> list[str]:
    return [word for name, size in sizes.items() for word in ("--pin", f"{name}={size}")]


def prepare_command(
    model: str, outlook: Outlook | None = None, recipe: str = "", target: str = "", more: Sequence[str] = ()
) -> str:
    """Return the command ``dmlprep prepare`` for a model, with the sizes and values of a prediction, if any.

    Args:
        recipe: the recipe to use; empty: that of the prediction.
        target: the release to name in the command; empty for none.
        more: the last words of the command.
    """
    recipe = recipe or (outlook.recipe if outlook else "")
    out = "prepared" if PurePath(model).parent.name == "out" else "out"  # prepare never replaces its input
    words: list[str | PurePath] = ["dmlprep", "prepare", PurePath(model), "-o", out]
    words += [] if recipe in ("", "@static-fp32") else ["--recipe", recipe]
    words += ["--target", target] if target else []
    words += _pins(outlook.sizes) if outlook else []
    for name, value in outlook.values.items() if outlook else ():
        words += ["--pin", f"{name}:={toml_value(value)}"]
    if outlook and outlook.best is outlook.example:
        words += _pins({k: v for k, v in outlook.best.sizes.items() if k not in outlook.sizes})
    return command_line(*words, *more)
