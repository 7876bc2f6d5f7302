"""``dmlprep explain``."""

from __future__ import annotations

import click

from dmlprep import api
from dmlprep.api.checking import code_row
from dmlprep.cli.options import option, output_options
from dmlprep.cli.output import echo_page, print_json


@click.command("explain")
@click.argument("what")
@option("--node NAME", help="Explain the placement of this node of the model WHAT.")
@option("--target NAME", "target_name", default="latest", help="DirectML release.")
@output_options("text", "json")
def command(what: str, node: str | None, target_name: str, quiet: bool, output_format: str) -> int:
    """Explain the finding code WHAT, or with --node the placement of one node of the model WHAT.

    \b
    dmlprep explain DP501
    dmlprep explain --node /layer1/Conv model.onnx
    """
    if node is None and what.isascii() and what.isdecimal():
        what = f"DP{what.zfill(3)}"
    text = api.explain(what, node=node, target=target_name)
    if output_format == "text":
        echo_page(f"{text.splitlines()[0].lstrip('# ')}\n" if quiet else text)
    elif node is not None:
        print_json({"model": what, "node": node, "target": target_name, "lines": text.removesuffix("\n").split("\n")})
    else:
        code = what.upper()
        row = code_row(code)
        print_json({"code": code, "title": row.title, "severity": row.severity, "remedy": row.remedy, "page": text})
    return 0
