"""``dmlprep genai``: folders of language models for onnxruntime-genai."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dmlprep import api
from dmlprep.cli.help import Group
from dmlprep.cli.options import (
    ADAPTER,
    PATH,
    default_out,
    device_option,
    option,
    output_options,
    prepare_options,
    recipes,
    targets,
    time_limit_option,
)
from dmlprep.cli.output import echo, echo_commands, echo_lines, print_json, print_json_text, progress_line, show_run
from dmlprep.portable.bounds import MOST_ADAPTERS

if TYPE_CHECKING:
    from dmlprep.record import RunRecord


@click.group("genai", cls=Group)
def command() -> None:
    """Prepare, check and compare language models for onnxruntime-genai (docs/language-models.md)."""


@command.command("prepare")
@click.argument("folder", type=PATH)
@option("-o", "--out", type=PATH, help="Folder to write. Default: build/models/NAME.")
@option("--precision", type=click.Choice(["fp16", "int4"]), default="fp16", help="FP16, or 4-bit weights.")
@option(
    "-r", "--recipe NAME", default="", shell_complete=recipes, help="Recipe to use instead of @llm-fp16 or @llm-int4."
)
@prepare_options("settings", settings="Override a recipe field: step.opset.version=21.")
@option(
    "--target NAME",
    default="",
    shell_complete=targets,
    help="DirectML release to prepare for (dmlprep explain targets).",
)
@option(
    "--device-index N",
    type=click.IntRange(0, MOST_ADAPTERS),
    help="Adapter for genai, counted from 0 in the order in which Windows lists adapters by performance.",
    group="Device",
    rare=True,
)
@option(
    "--graph-capture/--no-graph-capture",
    default=None,
    help="Set genai's graph capture for the decoder. Default: on if every compute node runs on DirectML.",
)
@option(
    "--fallback",
    type=click.Choice(["cpu"]),
    default=None,
    help="Write two folders: OUT/dml for DirectML, and OUT/cpu, a copy of FOLDER for the CPU.",
)
@option(
    "--builder-python PATH",
    default="",
    help="Python with onnxruntime-genai, torch and transformers, to build a Hugging Face folder. Default: this one.",
    rare=True,
)
@time_limit_option(3600.0, "Time limit for genai's builder.")
@option(
    "--proof/--no-proof",
    default=True,
    help="Compare the result with FOLDER.",
    group="Inputs and proof",
)
@device_option("Device for the proof.")
@option(
    "--steps",
    type=click.IntRange(1, 1024),
    default=16,
    help="Tokens to generate after each prompt of the proof.",
    group="Inputs and proof",
)
@option(
    "--text",
    type=PATH,
    help="Text file (UTF-8) for the perplexity.",
    group="Inputs and proof",
    rare=True,
)
@option(
    "--tolerance NAME",
    default="auto",
    help="Tolerance: fp32, fp16, int8 or int4.",
    group="Inputs and proof",
)
@prepare_options("vram")
@option("--force", is_flag=True, help="Replace the files of an earlier run.")
@option(
    "--record",
    "record_to",
    type=PATH,
    help="Write the record here as well.",
    group="Output",
    rare=True,
)
@output_options("text", "json")
def prepare(
    folder: Path,
    out: Path | None,
    record_to: Path | None,
    quiet: bool,
    output_format: str,
    fallback: Literal["cpu"] | None,
    **options: Any,
) -> int:
    """Prepare FOLDER for DirectML, and prove the result.

    FOLDER has a genai_config.json. Or it is a Hugging Face folder (config.json and safetensors): then
    onnxruntime-genai's own builder converts it first.

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
    typed = command_line("dmlprep", *sys.argv[1:], whole=True)
    with ProgressObserver(quiet) as observer:
        wanted = {"out": out or default_out("models", folder.resolve().name), "fallback": fallback or "", **options}
        record = api.genai_prepare(folder, observer=observer, command_line=typed, **wanted)
    if record_to is not None:
        api.write_record(record, record_to)
    show_run(record, output_format, quiet=quiet)
    if output_format == "text" and not quiet and record.exit_code == 0:
        _show_use(record)
    return record.exit_code


def _show_use(record: RunRecord) -> None:
    """Print the lines of code that load the result in an app."""
    assert record.facts.genai is not None, "a run that wrote a folder records it"
    fallback = record.facts.genai.fallback
    folder = Path(record.output)
    place = folder / "dml" if fallback else folder
    echo(f"load it: og.Model(og.Config({str(place)!r}))")
    if fallback:
        echo(f"  if that fails, on the CPU: og.Model(og.Config({str(folder / fallback)!r}))")


@command.command("check")
@click.argument("folder", type=PATH)
@option(
    "--target NAME",
    "target_name",
    shell_complete=targets,
    help="DirectML release (dmlprep explain targets). Default: the one that is installed here, otherwise the latest.",
)
@prepare_options("vram")
@output_options("text", "json", "sarif", "github")
def check(folder: Path, target_name: str | None, vram: str | None, quiet: bool, output_format: str) -> int:
    """Show the problems of FOLDER, and which nodes DirectML runs.

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

    checked = examine_folder(folder, target=target_name, vram=vram)

    if output_format == "json":
        print_json_text(genai_text.render_json(checked))
    elif output_format == "sarif":
        print_json_text(sarif.render(checked.records))
    elif output_format == "github":
        echo_commands(line for record in checked.records for line in github.annotation_lines(record))
    elif quiet:
        echo(genai_text.brief_line(checked))
    else:
        echo_lines(genai_text.lines(checked))
    return checked.exit_code


@command.command("compare")
@click.argument("original", type=PATH)
@click.argument("prepared", type=PATH)
@option("--prompt TEXT", "prompts", multiple=True, help="Text for both models to continue. Repeatable.")
@option("--text FILE", type=PATH, help="Text file for the perplexity.")
@option("--text-tokens N", type=click.IntRange(2, 1 << 20), default=512, help="Number of tokens of the text to use.")
@option(
    "--steps N", type=click.IntRange(1, 1024), default=16, help="Tokens after each prompt, one by one with the cache."
)
@device_option("Device for PREPARED. ORIGINAL runs on the CPU.")
@prepare_options(*ADAPTER)
@option(
    "--tolerance",
    type=click.Choice(["auto", "fp32", "fp16", "int8", "int4"]),
    default="auto",
    help="Tolerance (docs/language-models.md). auto: from the weights of both.",
)
@option(
    "--genai/--no-genai",
    default=True,
    help="Also generate text from both with onnxruntime-genai, if it is installed.",
    show_default=False,
)
@time_limit_option(600.0, "Time limit for one load or run.")
@output_options("text", "json")
def compare(original: Path, prepared: Path, quiet: bool, output_format: str, **options: Any) -> int:
    """Compare folder PREPARED with ORIGINAL, token by token.

    \b
    dmlprep genai compare llama out --prompt "The quick brown fox" --device dml
    dmlprep genai compare llama out --text book.txt

    Both decoders get the same tokens: a prompt, then one token at a time with the cache. dmlprep compares their logits,
    their perplexity on your text, and the text that each writes by itself. It compares the other models of the folder,
    such as an encoder, on synthetic inputs.

    Exit codes: 0 within the bounds; 1 not within the bounds; 2 bad input; 3 the comparison could not run, or these
    tokens prove nothing.
    """
    with progress_line(quiet) as progress:
        proof = api.genai_compare(original, prepared, progress=progress, **options)
    if output_format == "json":
        print_json(proof)
    else:
        from dmlprep.cli.bars import out
        from dmlprep.report.genai_text import show_proof

        show_proof(proof, out(), brief=quiet)
    return proof.exit_code
