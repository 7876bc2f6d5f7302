"""``dmlprep explain``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep.cli.options import format_option
from dmlprep.cli.output import echo, print_json
from dmlprep.errors import UsageError

__all__ = ["command"]


@click.command("explain")
@click.argument("what")
@click.option("--node", metavar="NAME", help="Explain the placement of this node of the model WHAT.")
@click.option("--target", "target_name", metavar="NAME", default="latest", show_default=True, help="DirectML release.")
@format_option("text", "json")
def command(what: str, node: str | None, target_name: str, output_format: str) -> int:
    """Explain the finding code WHAT, or with --node the placement of one node of the model WHAT.

    \b
    dmlprep explain DP501
    dmlprep explain --node /layer1/Conv model.onnx
    """
    if node is None:
        from dmlprep.quirks import code_row
        from dmlprep.report.pages import page

        code = what.upper()
        text = page(code)
        if output_format == "json":
            row = code_row(code)
            print_json({"code": code, "title": row.title, "severity": row.severity, "remedy": row.remedy, "page": text})
        else:
            echo(text, nl=False)
        return 0
    path = Path(what)
    if path.suffix == "" and not path.exists():
        raise UsageError(f"{what!r} is no model", where="--node", fix="dmlprep explain --node NAME model.onnx")
    from dmlprep.model import Model
    from dmlprep.placement.explain import explain_node
    from dmlprep.targets import find_target

    lines = explain_node(Model.open(path), node, find_target(target_name))
    if output_format == "json":
        print_json({"model": what, "node": node, "target": target_name, "lines": lines})
    else:
        echo("\n".join(lines))
    return 0
