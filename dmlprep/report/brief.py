"""The text with ``-q``: one line for a good result, otherwise its problems."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dmlprep.portable.printable import printable
from dmlprep.record import RunRecord
from dmlprep.record.run_record import brief_line
from dmlprep.report.text import show_findings, show_verdicts


def show_briefly(record: RunRecord, console: Console) -> None:
    """Print a record of ``prepare``: one line, or the errors of the model."""
    if record.exit_code == 0:
        console.print(Text(brief_line(record)))
        return
    show_findings([one for one in record.findings if one.severity == "error"], console)
    for step in record.steps:
        show_findings([one for one in step.findings if one.severity == "error"], console)
    show_verdicts([one for one in record.verdicts if one.decides and one.outcome != "passed"], console)
    console.print(Text(f"{printable(record.input)}: nothing was written"))
