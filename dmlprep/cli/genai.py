"""``dmlprep genai``: folders of language models for onnxruntime-genai."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "prepare": ("dmlprep.cli.genai_prepare", "Make a folder ready for DirectML, prove it, and write it."),
    "check": ("dmlprep.cli.genai_check", "Show the problems of a folder, and which nodes DirectML runs."),
    "compare": ("dmlprep.cli.genai_compare", "Compare a prepared folder with its original, token by token."),
}
"""Command of the group -> module with an object ``command``, and its line in the help."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command


@click.group("genai", cls=_LazyGroup)
def command() -> None:
    """Prepare, check and compare language models for onnxruntime-genai (docs/language-models.md)."""
