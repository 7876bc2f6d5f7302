"""``dmlprep recipe``."""

from __future__ import annotations

import click

from dmlprep.cli.options import format_option
from dmlprep.cli.output import echo, echo_page, print_json

__all__ = ["command"]


@click.group("recipe")
def command() -> None:
    """List, show and validate recipes."""


@command.command("list")
@format_option("text", "json")
def list_(output_format: str) -> int:
    """The built-in recipes."""
    from dmlprep.recipe import builtin_names, load_recipe

    rows = {name: load_recipe(name) for name in builtin_names()}
    if output_format == "json":
        print_json({name: {"doc": recipe.doc, "steps": list(recipe.step)} for name, recipe in rows.items()})
        return 0
    width = max(map(len, rows), default=0)
    for name, recipe in rows.items():
        echo(f"{name:<{width}}  {recipe.doc}")
        echo(f"{'':<{width}}  steps: {', '.join(recipe.step) or 'none'}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """The text of the recipe NAME: a start for one's own."""
    from dmlprep.recipe.recipe import recipe_text

    echo_page(recipe_text(name))
    return 0


@command.command("validate")
@click.argument("names", nargs=-1, required=True)
@format_option("text", "json")
def validate(names: tuple[str, ...], output_format: str) -> int:
    """Check recipes whole.

    Their steps, fields, and the types of these. Stops at the first that is wrong.
    """
    from dmlprep.recipe import load_recipe, make_plan

    plans = {name: make_plan(load_recipe(name)) for name in names}
    if output_format == "json":
        print_json({name: {"steps": [s.name for s in p.steps], "target": p.target.name} for name, p in plans.items()})
        return 0
    for name, plan in plans.items():
        echo(f"{name}: good, {len(plan.steps)} steps for {plan.target.name}")
    return 0
