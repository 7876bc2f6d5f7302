"""``dmlprep recipe``."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["command"]


@click.group("recipe")
def command() -> None:
    """List, show and validate recipes."""


@command.command("list")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_(output_format: str) -> int:
    """The built-in recipes."""
    from dmlprep.recipe import builtin_names, load_recipe

    rows = {name: load_recipe(name) for name in builtin_names()}
    if output_format == "json":
        click.echo(json.dumps({n: {"doc": r.doc, "steps": list(r.step)} for n, r in rows.items()}, indent=2))
        return 0
    width = max(map(len, rows), default=0)
    for name, recipe in rows.items():
        click.echo(f"{name:<{width}}  {recipe.doc}")
        click.echo(f"{'':<{width}}  steps: {', '.join(recipe.step) or 'none'}")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """The text of the recipe NAME: a start for one's own."""
    from dmlprep.recipe.recipe import recipe_text

    click.echo(recipe_text(name), nl=False)
    return 0


@command.command("validate")
@click.argument("names", nargs=-1, required=True)
def validate(names: tuple[str, ...]) -> int:
    """Check recipes whole: fields, types, and that each step's needs are met."""
    from dmlprep.recipe import load_recipe, make_plan

    for name in names:
        plan = make_plan(load_recipe(name))
        label = name if name.startswith("@") else Path(name).name
        click.echo(f"{label}: good, {len(plan.steps)} steps for {plan.target.name}")
    return 0
