"""``dmlprep explain``."""

from __future__ import annotations

import click

from dmlprep import api
from dmlprep.api.checking import code_row
from dmlprep.cli.options import output_options
from dmlprep.cli.output import echo_page, print_json


@click.command("explain")
@click.argument("what")
@output_options("text", "json")
def command(what: str, quiet: bool, output_format: str) -> int:
    """Explain the finding code WHAT.

    \b
    dmlprep explain DP501
    """
    if what.isascii() and what.isdecimal():
        what = f"DP{what.zfill(3)}"
    text = api.explain(what)
    if output_format == "text":
        echo_page(f"{text.splitlines()[0].lstrip('# ')}\n" if quiet else text)
    else:
        code = what.upper()
        row = code_row(code)
        print_json({"code": code, "title": row.title, "severity": row.severity, "remedy": row.remedy, "page": text})
    return 0
