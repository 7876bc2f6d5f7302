"""``dmlprep compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep import api
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    ADAPTER,
    METRIC,
    PATH,
    device_option,
    option,
    output_options,
    parsed,
    prepare_options,
    sizes_option,
    time_limit_option,
)
from dmlprep.cli.output import show_verdict
from dmlprep.cli.values import read_measures
from dmlprep.portable.bounds import MOST_FEEDS


@click.command("compare", cls=Command)
@click.argument("reference", type=PATH)
@click.argument("candidate", type=PATH)
@prepare_options("feeds")
@device_option("Where CANDIDATE runs; REFERENCE runs on the CPU.")
@prepare_options(*ADAPTER)
@option(
    "--tolerance NAME",
    default="auto",
    help="Named tolerance (docs/parity.md), or rel:0.001. auto: by the types of the models and the device.",
    group="Inputs and proof",
)
@option(
    "--measure OUTPUT=KIND",
    "measures",
    multiple=True,
    callback=parsed(read_measures),
    help="Kind of an output: elements, map, classes, logits or angle. Default: detected from the node before it.",
    group="Inputs and proof",
)
@prepare_options(*METRIC)
@option(
    "--open-by",
    type=click.Choice(["provider", "device", "policy"]),
    default="provider",
    help="How to select DirectML on Windows. provider: as classic apps do. device, policy: as Windows ML apps do.",
    group="Device",
    rare=True,
)
@sizes_option
@option(
    "--seeds",
    type=click.IntRange(1, MOST_FEEDS),
    default=2,
    help="Number of seeded random inputs if there is no --feeds.",
    group="Inputs and proof",
)
@time_limit_option(600.0, "Time limit for one load or run.")
@output_options("text", "json")
def command(reference: Path, candidate: Path, quiet: bool, output_format: str, **options: Any) -> int:
    """Compare the outputs of CANDIDATE with those of REFERENCE, on the same inputs.

    Exit codes: 0 all outputs are within the tolerance; 1 an output is not, or CANDIDATE does not run. 2 bad input;
    3 the comparison could not run, or these inputs prove nothing.
    """
    verdict = api.compare(reference, candidate, **options)
    show_verdict(verdict, output_format, quiet=quiet)
    return verdict.exit_code
