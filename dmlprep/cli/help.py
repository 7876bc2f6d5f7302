"""Commands whose help has its options in groups; a command of many options shows the rare ones with ``--help-all``."""

from __future__ import annotations

from typing import Any

import click
from click.types import OptionHelpExtra

from dmlprep.cli.output import echo_page
from dmlprep.core.text.sizes import count_text

MOST_OPTIONS = 15
"""Largest number of options that ``--help`` of one command shows."""

_GROUPS = ("", "Pictures", "Audio and text", "Inputs and proof", "Device", "Speed", "Output")
"""Groups of options, in the order of the help; options without a group come first."""

_ONE_LIST = 8
"""Largest number of options that are one list without groups."""

_LARGEST_BOUND = 100
"""Largest upper bound of a number that the help shows: larger bounds only keep out mistakes."""


class GroupedOption(click.Option):
    """An option with its place in the help.

    Args:
        group: heading in the help; empty for the first list.
        rare: True if ``--help`` of a command with many options leaves it out.
    """

    def __init__(self, *args: Any, group: str = "", rare: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.group, self.rare = group, rare
        if isinstance(self.type, click.IntRange | click.FloatRange):  # instead of click's INTEGER RANGE
            self.metavar = self.metavar or "N"

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return the default and the range for the help, without the range if its upper bound is large."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.type, click.IntRange | click.FloatRange) and (self.type.max or 0) > _LARGEST_BOUND:
            extra.pop("range", None)
        return extra


def _show_all(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    if chosen and not context.resilient_parsing:
        context.meta[__name__] = True
        echo_page(f"{context.get_help()}\n")
        context.exit()


class Command(click.Command):
    """A command whose ``--help`` shows at most ``MOST_OPTIONS`` options, and ``--help-all`` all of them, in groups."""

    def __init__(self, *, params: list[click.Parameter], **more: Any) -> None:
        every = GroupedOption(
            ["--help-all"],
            is_flag=True,
            hidden=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options and exit.",
        )
        super().__init__(params=[*params, every], **more)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups; the last line counts the rare ones that are left out."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not one.hidden]
        in_full = __name__ in ctx.meta or len(options) <= MOST_OPTIONS
        shown = [one for one in options if in_full or not getattr(one, "rare", False)]
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for one in shown:
            group = getattr(one, "group", "") if len(shown) > _ONE_LIST else ""  # click's own --help has none
            groups[group] += [record] if (record := one.get_help_record(ctx)) is not None else []
        width = min(30, max(len(flags) for rows in groups.values() for flags, _ in rows))  # 30: of click's lists
        for name, rows in groups.items():
            if rows:
                with formatter.section(name or "Options"):
                    formatter.write_dl([(flags.ljust(width), text) for flags, text in rows])
        if len(shown) < len(options):
            formatter.write_paragraph()
            more = count_text(len(options) - len(shown), "more option")
            formatter.write(f"{more}: {ctx.command_path} --help-all\n")


class Group(click.Group):
    """A group of such commands, listed in the order of their definition."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)
