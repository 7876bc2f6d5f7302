"""Words that complete the value of an option."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

__all__ = ["recipes", "targets"]


def targets(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of DirectML releases."""
    from dmlprep.targets import target_names

    names = ["latest", *target_names()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def recipes(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in recipes; files where the word does not begin like one."""
    from dmlprep.recipe import builtin_names

    if incomplete and not incomplete.startswith("@"):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in builtin_names() if name.startswith(incomplete)]
