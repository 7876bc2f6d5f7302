"""Recipes (TOML files of steps): list, read and check them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dmlprep.graph.model.pinned import Value
    from dmlprep.pipeline.recipe import Plan, Recipe


def plan(
    recipe: str | Path = "@static-fp32",
    *,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Plan:
    """Read a recipe and check all its steps and their options; no model is opened.

    Args:
        recipe: a built-in recipe (``@vision-fp16``) or a path.
        pins: sizes to fix, in elements: by dimension name (``batch``), or by input and axis (``pixel_values:0``). And
            values of inputs to fix, by input name and a colon (``sr:``): a number, a truth value, a text, or lists.
        target: a name of ``dmlprep explain targets``, which replaces the recipe's target; ``None`` keeps that one. A
            recipe without a target is for the release that is installed here, otherwise for the latest.
        settings: recipe fields to override (``{"step.fp16.keep_io": False}``).

    Returns:
        the steps in the order they run, with their options and the target.

    Raises:
        RecipeError: the recipe, a step or a field is unknown, the steps do not fit together, or the recipe has no step
            ``pin`` for ``pins``.
        UsageError: the target is unknown.
    """
    from dmlprep.pipeline.recipe import apply_settings, load_recipe, make_plan

    loaded = apply_settings(load_recipe(str(recipe)), settings or {})
    if target is not None:
        loaded = msgspec.structs.replace(loaded, target=target)
    return make_plan(loaded, dict(pins or {}))


def list_recipes() -> dict[str, Recipe]:
    """Return the built-in recipes by their names (``@vision-fp16``).

    >>> dmlprep.list_recipes()["@denote-only"].step
    {'opset': {}, 'denote': {}}

    Returns:
        the recipes by name; ``doc`` of a recipe describes it, and ``step`` has its steps with their options.
    """
    from dmlprep.pipeline.recipe import builtin_names, load_recipe

    return {name: load_recipe(name) for name in builtin_names()}


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes (``@vision-fp16``), without reading their files."""
    from dmlprep.pipeline.recipe import builtin_names

    return builtin_names()


def read_settings(texts: Iterable[str]) -> dict[str, object]:
    """Parse settings of the form ``FIELD=VALUE``, such as ``step.fp16.keep_io=false``; return the values by field.

    Raises:
        RecipeError: a text has another form, or ``read_value`` refuses its value.
    """
    from dmlprep.pipeline.recipe import read_settings as read

    return read(texts)


def read_value(text: str) -> Value:
    """Parse a TOML value and return it; text that is not TOML, such as a bare word, is returned as a string.

    Raises:
        RecipeError: the value is nested too deep, contains a date or time, or has a whole number of more than 64 bits.
    """
    from dmlprep.pipeline.recipe.recipe import read_value as read

    value: Value = read(text)
    return value


def recipe_text(recipe: str | Path) -> str:
    """Return the TOML text of a recipe, as a start for your own recipe.

    Args:
        recipe: a built-in recipe (``@vision-fp16``) or a path.

    Raises:
        RecipeError: there is no such recipe, or its text cannot be read.
    """
    from dmlprep.pipeline.recipe import recipe_text as text

    return text(str(recipe))


def validate_recipe(recipe: str | Path, *, text: str | None = None) -> Plan:
    """Check a whole recipe: its steps, and the names and types of their fields; no model is opened.

    >>> [step.name for step in dmlprep.validate_recipe("@static-fp32").steps][:2]
    ['pin', 'opset']

    Args:
        recipe: a built-in recipe or a path.
        text: the TOML text of the recipe. If it is passed, dmlprep reads no file, and ``recipe`` is its name in errors.

    Returns:
        the plan of the recipe, as ``plan`` returns it.

    Raises:
        RecipeError: the recipe is wrong; the error names the field.
        UsageError: the target is unknown.
    """
    from dmlprep.pipeline.recipe import make_plan, parse_recipe

    return plan(recipe) if text is None else make_plan(parse_recipe(text, str(recipe)))
