"""Groups of commands whose first command may be left out."""

from __future__ import annotations

import click


class PackGroup(click.Group):
    """``dmlprep kit MODEL`` packs: the word ``pack`` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["pack", *args]
        return super().parse_args(ctx, args)
