"""``dmlprep completion``, and the answers that a shell asks for at each press of Tab."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click
from click.shell_completion import get_completion_class, shell_complete

from dmlprep.cli.help import Command
from dmlprep.cli.output import echo, echo_page

VARIABLE = "_DMLPREP_COMPLETE"
"""The variable that a shell sets for a completion."""

_SHELLS = ("bash", "zsh", "fish", "powershell")

_PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/dmlprep"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/dmlprep.fish"),
}
"""The folder from which a shell loads completions: a variable, its default below the home folder, the file in it."""

_BY_HAND = {
    "zsh": 'eval "$(dmlprep completion zsh)"     # at the end of ~/.zshrc',
    "powershell": "dmlprep completion powershell | Out-String | Invoke-Expression     # in the file $PROFILE",
}


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.option("--install", is_flag=True, help="Install the script in the folder that the shell reads (bash and fish).")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(shell: str, install: bool, force: bool) -> int:
    """Print a script for Tab completion of commands, options, recipes and targets.

    \b
    dmlprep completion bash --install
    dmlprep completion zsh >> ~/.zshrc

    Exit codes: 0 printed or written; 2 the file exists already (--force replaces it).
    """
    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(click.get_current_context().find_root().command, {}, "dmlprep", VARIABLE).source()
    if not install:
        echo_page(text)
        return 0
    if shell not in _PLACES:
        echo(f"{shell} has no folder for completions; add this line:")
        echo(_BY_HAND[shell])
        return 0
    from dmlprep.core.files import check_output
    from dmlprep.core.files.writing import write_file

    variable, default, name = _PLACES[shell]
    path = Path(os.environ.get(variable) or Path.home() / default) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    check_output(path, force=force)
    write_file(path, text.encode("utf-8"), force=force)
    echo(f"wrote {path}; new shells complete dmlprep")
    return 0


def answer(cli: click.Command) -> NoReturn:
    """Print the completions that a shell requests, and exit. It must be fast: it runs at each press of Tab."""
    instruction = os.environ.get(VARIABLE, "")
    try:
        code = shell_complete(cli, {}, "dmlprep", VARIABLE, instruction)
    except Exception:  # no output is better than a message in the middle of a command that is being typed
        code = 1
    sys.exit(code)
