"""Turn a recipe into a plan: passes (one for each step) with checked options, for one target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.core.errors import RecipeError
from dmlprep.core.files import Unfit, explain, parse_json, read_text
from dmlprep.directml.targets import Target, find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import Value
from dmlprep.passes import AnyPass, Fact, make_pass
from dmlprep.passes.frame import FramePass
from dmlprep.passes.framing import Frame
from dmlprep.passes.framing.preprocessor import NoTable, as_table
from dmlprep.pipeline.recipe.recipe import Recipe
from dmlprep.runtime.default_target import default_target


@dataclass(frozen=True)
class PlannedStep:
    """One step of a plan: its pass, ready to run.

    Attributes:
        pass_: the pass with its options.
        options: the options that the recipe or the command line sets, for the record.
    """

    name: str
    pass_: AnyPass
    options: dict[str, object]


@dataclass(frozen=True)
class Plan:
    """The steps of a recipe in the order they run, for one target.

    Attributes:
        facts: properties that the model has after the steps, such as ``fp16``.
        target_reason: why ``target`` is the default, as a clause; empty if the user or the recipe chose it.
    """

    recipe: Recipe
    target: Target
    steps: tuple[PlannedStep, ...]
    facts: frozenset[Fact]
    target_reason: str = ""

    @property
    def framing(self) -> Callable[[Model], Frame | None] | None:
        """A function that returns the frame (pre- and post-processing) that a model will get.

        ``None`` if no step of the plan adds a frame.
        """
        return next((s.pass_.framed for s in self.steps if isinstance(s.pass_, FramePass)), None)

    @property
    def values(self) -> dict[str, Value]:
        """The values to which the steps ``pin`` fix inputs, by the name of the input."""
        options = (s.pass_.options for s in self.steps if s.pass_.name == "pin")
        return {name: value for one in options for name, value in one.values.items()}


def make_plan(recipe: Recipe, pins: Mapping[str, Value] | None = None) -> Plan:
    """Check a whole recipe and return its plan.

    Args:
        pins: sizes by dimension, and values by input name and a colon (``sr:``). They are added to the step ``pin``,
            and override its own.

    Raises:
        RecipeError: a step or field is unknown, a value does not fit, or a ``config`` of a frame cannot be used. A step
            follows the step ``frame``, or the recipe has no step ``pin`` for the pins.
        UsageError: the target does not exist.
    """
    name, reason = (recipe.target, "") if recipe.target else default_target()
    target = find_target(name)
    steps: list[PlannedStep] = []
    facts: set[Fact] = set()
    pinned = False
    for name, table in recipe.step.items():
        where = f"{recipe.name}: step.{name}"
        options = dict(table)
        use = options.pop("use", name)
        if not isinstance(use, str):
            raise RecipeError("field 'use' names a pass", where=where, fix="write it as a string", code="DP901")
        if pins and use == "pin":
            sizes = {k: v for k, v in pins.items() if not k.endswith(":")}
            values = {k[:-1]: v for k, v in pins.items() if k.endswith(":")}
            for field, new in (("sizes", sizes), ("values", values)):
                old = options.get(field, {})
                if new and isinstance(old, dict):
                    options[field] = {**old, **new}
            pinned = True
        if use == "frame":
            options = with_configs(options, recipe.name, where)
        step = make_pass(use, options, where)
        facts |= step.promises()
        steps.append(PlannedStep(name, step, options))
    last = steps[-1] if steps else None
    if last is not None and any(s.pass_.name == "frame" for s in steps[:-1]):
        what = f"step {last.name!r} follows the frame, which must be last"
        fix = "write [step.frame] after all other steps"
        raise RecipeError(what, where=recipe.name, fix=fix, code="DP903")
    if pins and not pinned:
        raise RecipeError(
            "the recipe has no step 'pin' for these pins",
            where=recipe.name,
            fix="add [step.pin] to the recipe, or use a recipe that pins",
            code="DP903",
        )
    return Plan(recipe, target, tuple(steps), frozenset(facts), reason)


_BYTES = 1 << 20
"""Largest size in bytes of a preprocessor configuration for a frame; usual ones have about a thousand."""


def with_configs(options: dict[str, object], recipe: str, where: str) -> dict[str, object]:
    """Return the options of a step ``frame``, with each ``config`` file replaced by the fields that it sets.

    A ``config`` in ``inputs.NAME`` is a preprocessor_config.json. A field in the recipe overrides the same field of the
    file.

    Args:
        recipe: name of the recipe; paths of files are relative to its folder.
        where: place of the step, for errors.

    Raises:
        RecipeError: a file cannot be read, or needs something that a frame has no field for.
    """
    inputs = options.get("inputs")
    if not isinstance(inputs, dict):
        return options
    folder = Path() if recipe.startswith("@") else Path(recipe).parent
    tables = dict(inputs)
    for name, table in inputs.items():
        if isinstance(table, dict) and "config" in table:
            own = {key: value for key, value in table.items() if key != "config"}
            tables[name] = {**_read(folder, table["config"], f"{where}.inputs.{name}.config"), **own}
    return {**options, "inputs": tables}


def _read(folder: Path, config: object, where: str) -> dict[str, object]:
    if not isinstance(config, str):
        raise RecipeError("'config' is a path", where=where, fix="write it as a string", code="DP901")
    path = folder / config
    try:
        held = parse_json(read_text(path, _BYTES), Any, lenient=True)
        if not isinstance(held, dict):
            raise Unfit("it contains no table", "pass the preprocessor_config.json of the model")
        return as_table(held)
    except OSError as error:
        what, fix = explain(error, path)
        what, fix = what or f"{path} cannot be read: {error.strerror or error}", fix or "check the path"
        raise RecipeError(what, where=where, fix=fix, code="DP902") from error
    except (Unfit, NoTable) as error:
        raise RecipeError(f"{path}: {error}", where=where, fix=error.fix, code="DP901") from error
