"""The recipes that candidates start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dmlprep.core.errors import RecipeError, UsageError
from dmlprep.pipeline.recipe import Recipe, apply_settings, load_recipe


def base_recipes(
    names: Sequence[str], target: str | None = None, settings: Mapping[str, object] | None = None
) -> list[Recipe]:
    """Read recipes; a setting is for those that have the step.

    Args:
        target: a name in place of the recipes'.

    Raises:
        RecipeError: there is no such recipe, or no recipe takes a setting.
        UsageError: none is named.
    """
    if not names:
        raise UsageError("no recipe is named to start from", where="--recipe", fix="leave it out, or name one")
    recipes = [_with_whole_path(load_recipe(name)) for name in dict.fromkeys(names)]
    for field, value in (settings or {}).items():
        taken: list[Recipe] = []
        refused: RecipeError | None = None
        for recipe in recipes:
            try:
                taken.append(apply_settings(recipe, {field: value}))
            except RecipeError as error:
                refused = error
                taken.append(recipe)
        if refused is not None and all(one is other for one, other in zip(taken, recipes, strict=True)):
            raise refused
        recipes = taken
    return recipes if target is None else [msgspec.structs.replace(recipe, target=target) for recipe in recipes]


def _with_whole_path(recipe: Recipe) -> Recipe:
    """Its metric is relative to its own folder, and what is found may be written elsewhere."""
    if recipe.name.startswith("@") or not recipe.parity.metric:
        return recipe
    whole = str(Path(recipe.name).absolute().parent / recipe.parity.metric)
    return msgspec.structs.replace(recipe, parity=msgspec.structs.replace(recipe.parity, metric=whole))
