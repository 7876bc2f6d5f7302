"""``dmlprep genai prepare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dmlprep import api
from dmlprep.cli.completing import recipes, targets
from dmlprep.cli.options import format_option, prepare_options, quiet_option, time_limit_option
from dmlprep.cli.output import echo, show_run
from dmlprep.portable.bounds import MOST_ADAPTERS

if TYPE_CHECKING:
    from dmlprep.record import RunRecord


@click.command("prepare")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option(
    "--precision",
    type=click.Choice(["fp16", "int4"]),
    default="fp16",
    show_default=True,
    help="FP16, or 4-bit weights.",
)
@click.option(
    "-r",
    "--recipe",
    default="",
    metavar="NAME",
    shell_complete=recipes,
    help="Recipe to use instead of @llm-fp16 or @llm-int4.",
)
@prepare_options("settings", settings="Override a recipe field: step.opset.version=21.")
@click.option(
    "--target",
    default="",
    metavar="NAME",
    shell_complete=targets,
    help="DirectML release to prepare for (dmlprep target list).",
)
@click.option(
    "--device-index",
    type=click.IntRange(0, MOST_ADAPTERS),
    metavar="N",
    help="Adapter for genai, counted from 0 in the order in which Windows lists adapters by performance.",
)
@click.option(
    "--graph-capture/--no-graph-capture",
    default=None,
    help="Capture the decoder's graph. Default: if every compute node runs on DirectML.",
)
@click.option(
    "--fallback",
    type=click.Choice(["cpu"]),
    default=None,
    help="Write two folders: OUT/dml for DirectML, and OUT/cpu, a copy of FOLDER for the CPU.",
)
@click.option(
    "--builder-python",
    default="",
    metavar="PATH",
    help="Python with onnxruntime-genai, torch and transformers, to build a Hugging Face folder. Default: this one.",
)
@time_limit_option(3600.0, "Time limit for genai's builder.")
@click.option("--proof/--no-proof", default=True, show_default=True, help="Compare the result with FOLDER.")
@click.option(
    "--device", type=click.Choice(["cpu", "dml"]), default="cpu", show_default=True, help="Device for the proof."
)
@click.option(
    "--steps",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="Tokens to generate after each prompt of the proof.",
)
@click.option("--text", type=click.Path(path_type=Path), help="Text file (UTF-8) for the perplexity.")
@click.option(
    "--tolerance", default="auto", show_default=True, metavar="NAME", help="Tolerance: fp32, fp16, int8 or int4."
)
@prepare_options("vram")
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
@click.option("--record", "record_to", type=click.Path(path_type=Path), help="Write the record here as well.")
@quiet_option
@format_option("text", "json")
def command(
    folder: Path,
    record_to: Path | None,
    quiet: bool,
    output_format: str,
    fallback: Literal["cpu"] | None,
    **options: Any,
) -> int:
    """Convert FOLDER for onnxruntime-genai on DirectML, and prove the result.

    FOLDER has a genai_config.json; or it is a Hugging Face folder (config.json and safetensors), which
    onnxruntime-genai's own builder makes one of first.

    \b
    dmlprep genai prepare llama-cpu -o llama-dml
    dmlprep genai prepare llama-cpu -o llama --precision int4 --fallback cpu
    dmlprep genai prepare hf/llama -o llama-dml --builder-python ../genai/bin/python

    Exit codes: 0 written and proved; 1 a model was refused, or the builder or the proof failed; 2 bad command, recipe
    or folder; 3 the proof could not run. With 1, 2 and 3 nothing is written.
    """
    from dmlprep.cli.console import ProgressObserver
    from dmlprep.core.files import check_output
    from dmlprep.core.text.shell import command_line

    if record_to is not None:
        check_output(record_to, force=True)
    typed = command_line("dmlprep", *sys.argv[1:])
    with ProgressObserver(quiet) as observer:
        record = api.genai_prepare(
            folder,
            fallback=fallback or "",
            observer=observer,
            command_line=typed,
            **options,
        )
    if record_to is not None:
        api.write_record(record, record_to)
    show_run(record, output_format, quiet=quiet)
    if output_format == "text" and not quiet and record.exit_code == 0:
        _show_use(record)
    return record.exit_code


def _show_use(record: RunRecord) -> None:
    """Print the lines with which an app loads the result."""
    assert record.facts.genai is not None, "a run that wrote a folder notes it"
    fallback = record.facts.genai.fallback
    folder = Path(record.output)
    place = folder / "dml" if fallback else folder
    echo(f"load it: og.Model(og.Config({str(place)!r}))")
    if fallback:
        echo(f"  and where that fails, on the CPU: og.Model(og.Config({str(folder / fallback)!r}))")
