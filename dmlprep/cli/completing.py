"""Words that complete the value of an option."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from dmlprep.api.devices import target_names
from dmlprep.api.recipes import recipe_names


def targets(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of DirectML releases."""
    names = ["latest", *target_names()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def recipes(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in recipes; files where the word does not begin like one."""
    if incomplete and not incomplete.startswith("@"):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in recipe_names() if name.startswith(incomplete)]
