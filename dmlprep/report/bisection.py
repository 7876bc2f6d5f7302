"""What a record says of a bisection, as text; the page draws the error along the model as well."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dmlprep.record.bisected import Bisected
from dmlprep.record.printable import printable

__all__ = ["show_bisected"]


def show_bisected(said: Bisected, console: Console) -> None:
    """The two models, other settings, what was compared and what was written."""
    console.print(Text(printable(f"{said.candidate} beside {said.reference}"), style="bold"))
    for name, outcome, text in said.settings:
        console.print(Text(printable(f"  {name}: {outcome}, {text}" if text else f"  {name}: {outcome}")))
    errors = [float("inf") if error is None else error for error in said.errors]
    beyond = sum(error > said.bound for error in errors)
    if errors:
        console.print(
            Text(f"  {len(errors)} values of {said.total_nodes} nodes compared, {beyond} beyond {said.bound:g}")
        )
    for path in said.files:
        console.print(Text(printable(f"  wrote {path}")))
