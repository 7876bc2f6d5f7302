"""``dmlprep explain``."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from dmlprep import api
from dmlprep.api.explaining import explanation, names
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, fit_mode, option, output_options
from dmlprep.cli.output import echo, echo_lines, print_json


def _names(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


@click.command("explain", cls=Command)
@click.argument("what", shell_complete=_names)
@click.argument("other", required=False, shell_complete=_names)
@option("--op OPERATOR", "operator", help="Show only this operator of a release (Conv, com.microsoft::Gelu).")
@option("-o", "--out", type=PATH, help="Write the recipe WHAT to this file, in UTF-8, to start your own from.")
@option("--force", is_flag=True, help="Replace the file.")
@output_options("text", "json")
def command(
    what: str, other: str | None, operator: str | None, out: Path | None, force: bool, quiet: bool, output_format: str
) -> int:
    """Explain WHAT: a finding code, a step, a recipe or a DirectML release; or compare the release WHAT with OTHER.

    \b
    dmlprep explain DP501                          a finding code
    dmlprep explain fp16                           a step of recipes
    dmlprep explain mine.toml                      a recipe: validate it, show all options
    dmlprep explain @vision-fp16 -o mine.toml      copy a built-in recipe, to edit it
    dmlprep explain ort-1.30 --op Conv             a release
    dmlprep explain ort-1.24 ort-1.30              the differences of two releases
    dmlprep explain codes                          lists: codes, passes, recipes, targets

    Exit codes: 0 good; 2 the name is unknown, or the recipe is wrong.
    """
    fit_mode("--out", out is not None, needs=("force",), excludes=("other", "operator", "output_format"))
    if out is None:
        answer = explanation(what, other, operator=operator)
        if output_format == "json":
            print_json(answer.data)
        else:
            echo_lines(answer.brief if quiet else answer.lines)
        return 0
    from dmlprep.core.files import check_output
    from dmlprep.core.files.writing import write_file

    text = api.recipe_text(what)
    check_output(out, force=force)
    write_file(out, text.encode("utf-8"), force=force)
    if not quiet:
        echo(f"wrote {out}")
    return 0
