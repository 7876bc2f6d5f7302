"""``dmlprep genai check``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep.cli.completing import targets
from dmlprep.cli.options import format_option, prepare_options, quiet_option
from dmlprep.cli.output import echo, echo_commands, echo_lines, print_json_text


@click.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--target",
    "target_name",
    metavar="NAME",
    default="latest",
    shell_complete=targets,
    help="DirectML release (dmlprep target list). Default: latest.",
)
@prepare_options("vram")
@quiet_option
@format_option("text", "json", "sarif", "github")
def command(folder: Path, target_name: str, vram: str | None, quiet: bool, output_format: str) -> int:
    """Show the problems of FOLDER, a language model for onnxruntime-genai, and which nodes DirectML runs.

    dmlprep compares genai_config.json with the fields that onnxruntime-genai reads, and with the models, the tokenizer
    and DirectML. Edits nothing, runs nothing, reads no weights.

    \b
    dmlprep genai check phi-3-mini
    dmlprep genai check phi-3-mini --vram 6GB
    dmlprep genai check phi-3-mini --format sarif > genai.sarif

    Exit codes: 0 good; 1 a finding is an error; 2 FOLDER or its genai_config.json cannot be read.
    """
    from dmlprep.api.genai import examine_folder
    from dmlprep.report import genai_text, github, sarif

    check = examine_folder(folder, target=target_name, vram=vram)

    if output_format == "json":
        print_json_text(genai_text.render_json(check))
    elif output_format == "sarif":
        print_json_text(sarif.render(check.records))
    elif output_format == "github":
        echo_commands(line for record in check.records for line in github.annotation_lines(record))
    elif quiet:
        echo(genai_text.brief_line(check))
    else:
        echo_lines(genai_text.lines(check))
    return check.exit_code
