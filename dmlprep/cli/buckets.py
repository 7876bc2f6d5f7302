"""``dmlprep buckets``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmlprep import api
from dmlprep.cli.options import PATH, option, output_options
from dmlprep.cli.output import echo, print_json
from dmlprep.cli.values import Number
from dmlprep.core.text.shell import word
from dmlprep.core.text.sizes import count_text
from dmlprep.portable.bounds import MOST_BUCKETS, MOST_SIZE
from dmlprep.portable.shares import percent

if TYPE_CHECKING:
    from dmlprep.api.types import Cover, Sizes

_MOST_WASTE = 1e6


@click.command("buckets")
@click.argument("log", type=PATH)
@option(
    "--waste RATIO",
    type=Number(1, _MOST_WASTE),
    help="Limit of padding: elements after padding, divided by elements requested.  [default: 1.3]",
)
@option(
    "--count N",
    type=click.IntRange(1, MOST_BUCKETS),
    help="Choose at most N buckets with the least padding, instead of --waste.",
)
@option(
    "--multiple N",
    type=click.IntRange(1, MOST_SIZE),
    default=1,
    help="Round sizes up to multiples of N, for models that halve their input several times.",
    show_default=False,
)
@option("--dim NAME", "dims", multiple=True, help="Dimension to read from each line. Repeatable; others are ignored.")
@output_options("text", "json")
def command(
    log: Path,
    waste: float | None,
    count: int | None,
    multiple: int,
    dims: tuple[str, ...],
    quiet: bool,
    output_format: str,
) -> int:
    """Find the few sizes for prepare --bucket that cover all sizes in LOG (docs/buckets.md).

    LOG has one request per line: height=480 width=640, or a JSON object, or CSV with a first line of names.

    \b
    dmlprep buckets sizes.log                       few buckets, padding to at most 1.3 times
    dmlprep buckets sizes.log --count 3             three buckets that pad little
    dmlprep buckets sizes.log --count 3 --multiple 64

    Exit codes: 0 buckets were found; 2 bad log, or even 64 buckets pad more than --waste allows.
    """
    sizes = api.read_sizes(log, dims=dims)
    cover = api.cover_sizes(sizes, waste=waste, count=count, multiple=multiple)
    options = [",".join(f"{n}={s}" for n, s in zip(sizes.names, one.sizes, strict=True)) for one in cover.buckets]
    if output_format == "json":
        print_json(
            {"dimensions": sizes.names, "requests": sizes.requests, "distinct": len(sizes.counts), "cover": cover}
        )
        return 0
    if not quiet:
        _show(sizes, cover, options)
    echo(" ".join(f"--bucket {word(one)}" for one in options))
    return 0


def _show(sizes: Sizes, cover: Cover, options: list[str]) -> None:
    echo(f"{sizes.requests} requests of {count_text(len(sizes.counts), 'size')}")
    echo()
    width = max(len("bucket"), *map(len, options))
    echo(f"{'bucket':{width}}  requests  padded to")
    for text, one in zip(options, cover.buckets, strict=True):
        echo(f"{text:{width}}  {one.requests:8}  {one.waste:9.2f}")
    echo()
    quality = "this is optimal" if cover.optimal else "a better set might exist"
    padding = f"{percent(cover.waste - 1)} on average and {percent(cover.worst - 1)} at most"
    echo(f"{count_text(len(options), 'bucket')}: padding adds {padding}; {quality}")
