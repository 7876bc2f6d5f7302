"""Recipes: TOML files that name steps in the order they run."""

from dmlprep.pipeline.recipe.plan import Plan, PlannedStep, make_plan
from dmlprep.pipeline.recipe.recipe import (
    ParitySettings,
    Recipe,
    apply_settings,
    builtin_names,
    load_recipe,
    parse_recipe,
    read_settings,
    recipe_text,
    recipe_toml,
)

__all__ = [
    "ParitySettings",
    "Plan",
    "PlannedStep",
    "Recipe",
    "apply_settings",
    "builtin_names",
    "load_recipe",
    "make_plan",
    "parse_recipe",
    "read_settings",
    "recipe_text",
    "recipe_toml",
]
