"""``dmlprep recipe``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep import api
from dmlprep.cli.options import PATH, option, output_options, quiet_option, recipes
from dmlprep.cli.output import echo, echo_lines, echo_page, print_json
from dmlprep.core.text.sizes import count_text


@click.group("recipe")
def command() -> None:
    """List, show and validate recipes."""


@command.command("list")
@output_options("text", "json")
def list_(quiet: bool, output_format: str) -> int:
    """List the built-in recipes."""
    rows = api.list_recipes()
    if output_format == "json":
        print_json({name: {"doc": recipe.doc, "steps": list(recipe.step)} for name, recipe in rows.items()})
        return 0
    if quiet:
        echo_lines(rows)
        return 0
    width = max(map(len, rows), default=0)
    for name, recipe in rows.items():
        echo(f"{name:<{width}}  {recipe.doc}")
        echo(f"{'':<{width}}  steps: {', '.join(recipe.step) or 'none'}")
    return 0


@command.command("show")
@click.argument("name", shell_complete=recipes)
@option("-o", "--out", type=PATH, help="Write the recipe to this file, in UTF-8.")
@option("--force", is_flag=True, help="Replace the file.")
@quiet_option
def show(name: str, out: Path | None, force: bool, quiet: bool) -> int:
    """Print the recipe NAME, to start your own from.

    \b
    dmlprep recipe show @vision-fp16 -o mine.toml
    """
    text = api.recipe_text(name)
    if out is None:
        echo_page(text)
        return 0
    from dmlprep.core.files import check_output
    from dmlprep.core.files.writing import write_file

    check_output(out, force=force)
    write_file(out, text.encode("utf-8"), force=force)
    if not quiet:
        echo(f"wrote {out}", err=True)
    return 0


@command.command("validate")
@click.argument("names", nargs=-1, required=True)
@output_options("text", "json")
def validate(names: tuple[str, ...], quiet: bool, output_format: str) -> int:
    """Validate recipe files.

    It checks steps, fields and the types of values, and stops at the first invalid file.
    """
    plans = {name: api.validate_recipe(name) for name in names}
    if output_format == "json":
        print_json({name: {"steps": [s.name for s in p.steps], "target": p.target.name} for name, p in plans.items()})
        return 0
    if quiet:
        echo(f"{count_text(len(plans), 'recipe')} {'is' if len(plans) == 1 else 'are'} good")
        return 0
    for name, plan in plans.items():
        echo(f"{name}: good, {len(plan.steps)} steps for {plan.target.name}")
    return 0
