"""The options ``--bucket-...`` of ``dmlprep prepare``: choose a few sizes from a log of requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dmlprep import api
from dmlprep.cli.options import PATH, fit_mode, option
from dmlprep.cli.output import echo, print_json
from dmlprep.cli.values import Number
from dmlprep.core.text.shell import word
from dmlprep.core.text.sizes import count_text
from dmlprep.portable.bounds import MOST_BUCKETS, MOST_SIZE
from dmlprep.portable.shares import percent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dmlprep.api.types import Cover, Sizes

F = TypeVar("F", bound="Callable[..., Any]")

_MOST_WASTE = 1e6

_ONLY_LOG = ("waste", "count", "multiple", "dims", "list_only")


@dataclass(frozen=True)
class Chosen:
    """The buckets that cover a log; ``names`` are their dimensions."""

    sizes: Sizes
    cover: Cover

    @property
    def buckets(self) -> list[dict[str, int]]:
        """The sizes of each bucket, by dimension."""
        return [dict(zip(self.sizes.names, one.sizes, strict=True)) for one in self.cover.buckets]

    def show(self) -> None:
        """Print the buckets as a table."""
        sizes, cover, texts = self.sizes, self.cover, self._texts()
        echo(f"{count_text(sizes.requests, 'request')} of {count_text(len(sizes.counts), 'size')}")
        echo()
        width = max(len("bucket"), *map(len, texts))
        echo(f"{'bucket':{width}}  requests  padded to")
        for text, one in zip(texts, cover.buckets, strict=True):
            echo(f"{text:{width}}  {one.requests:8}  {one.waste:9.2f}")
        echo()
        quality = "this is optimal" if cover.optimal else "a better set might exist"
        padding = f"{percent(cover.waste - 1)} on average and {percent(cover.worst - 1)} at most"
        echo(f"{count_text(len(texts), 'bucket')}: padding adds {padding}; {quality}")

    def show_list(self, output_format: str, *, quiet: bool) -> None:
        """Print the buckets, and the options ``--bucket`` for them, as text or JSON; ``quiet``: the options alone."""
        sizes = self.sizes
        if output_format == "json":
            counts = {"requests": sizes.requests, "distinct": len(sizes.counts)}
            print_json({"dimensions": sizes.names, **counts, "cover": self.cover})
            return
        if not quiet:
            self.show()
        echo(" ".join(f"--bucket {word(text)}" for text in self._texts()))

    def _texts(self) -> list[str]:
        return [",".join(f"{name}={size}" for name, size in one.items()) for one in self.buckets]


_OPTIONS = (
    option(
        "--bucket-log FILE",
        "log",
        type=PATH,
        help="Choose a few buckets that cover all sizes in this log (docs/buckets.md).",
    ),
    option(
        "--bucket-waste RATIO",
        "waste",
        type=Number(1, _MOST_WASTE),
        help="Limit of padding: elements after padding, divided by elements requested.  [default: 1.3]",
        rare=True,
    ),
    option(
        "--bucket-count N",
        "count",
        type=click.IntRange(1, MOST_BUCKETS),
        help="Choose at most N buckets with the least padding, instead of --bucket-waste.",
        rare=True,
    ),
    option(
        "--bucket-multiple N",
        "multiple",
        type=click.IntRange(1, MOST_SIZE),
        default=1,
        help="Round sizes up to multiples of N, for models that halve their input several times.",
        rare=True,
        show_default=False,
    ),
    option(
        "--bucket-dim NAME",
        "dims",
        multiple=True,
        help="Read only this dimension from each line. Repeatable.",
        rare=True,
    ),
    option(
        "--bucket-list",
        "list_only",
        is_flag=True,
        help="Print the buckets for the log, and prepare nothing.",
        rare=True,
    ),
)


def bucket_log_options(function: F) -> F:
    """Add ``--bucket-log`` and the options that belong to it."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def choose_buckets(log: Path | None, options: dict[str, Any]) -> Chosen | None:
    """Return the buckets for a log; ``None`` without a log. The options of the log are removed from ``options``.

    Raises:
        UsageError: an option needs a log; or as in ``dmlprep.cover_sizes``.
        InputError: the log cannot be read.
    """
    fit_mode("--bucket-log", log is not None, needs=_ONLY_LOG, excludes=("buckets",))
    waste, count, multiple, dims = (options.pop(name) for name in _ONLY_LOG[:-1])
    if log is None:
        return None
    sizes = api.read_sizes(log, dims=dims)
    return Chosen(sizes, api.cover_sizes(sizes, waste=waste, count=count, multiple=multiple))
