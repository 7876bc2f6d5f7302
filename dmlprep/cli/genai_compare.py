"""``dmlprep genai compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep import api
from dmlprep.cli.options import ADAPTER, format_option, prepare_options, quiet_option, time_limit_option
from dmlprep.cli.output import print_json, progress_line, unheard


@click.command("compare")
@click.argument("original", type=click.Path(path_type=Path))
@click.argument("prepared", type=click.Path(path_type=Path))
@click.option(
    "--prompt", "prompts", multiple=True, metavar="TEXT", help="Text for both models to continue. Repeatable."
)
@click.option("--text", type=click.Path(path_type=Path), metavar="FILE", help="Text file for the perplexity.")
@click.option(
    "--text-tokens",
    type=click.IntRange(2, 1 << 20),
    default=512,
    show_default=True,
    metavar="N",
    help="Number of tokens of the text to use.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    metavar="N",
    help="Tokens after each prompt, one by one with the cache.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "dml"]),
    default="cpu",
    show_default=True,
    help="Device for PREPARED. ORIGINAL runs on the CPU.",
)
@prepare_options(*ADAPTER)
@click.option(
    "--tolerance",
    type=click.Choice(["auto", "fp32", "fp16", "int8", "int4"]),
    default="auto",
    show_default=True,
    help="Tolerance (docs/language-models.md). auto: from the weights of both.",
)
@click.option(
    "--genai/--no-genai", default=True, help="Also generate text from both with onnxruntime-genai, if it is installed."
)
@time_limit_option(600.0, "Time limit for one load or run.")
@quiet_option
@format_option("text", "json")
def command(original: Path, prepared: Path, quiet: bool, output_format: str, **options: Any) -> int:
    """Compare the folder PREPARED of a language model with ORIGINAL, token by token.

    \b
    dmlprep genai compare llama out --prompt "The quick brown fox" --device dml
    dmlprep genai compare llama out --text book.txt

    Both get the same tokens, as a prompt and one by one behind the cache; their logits are
    compared, the perplexity on your text, and what each writes by itself. An encoder, a vision
    model and every other model of the folder is compared on synthetic inputs.

    Exit codes: 0 within the bounds; 1 not; 2 bad input; 3 it could not run, or these tokens
    prove nothing.
    """
    told = unheard if quiet else progress_line
    proof = api.genai_compare(original, prepared, progress=told, **options)
    told(1.0, "done")
    if output_format == "json":
        print_json(proof)
    else:
        from dmlprep.cli.bars import out
        from dmlprep.report.generation import show_proof

        show_proof(proof, out(), brief=quiet)
    return proof.exit_code
