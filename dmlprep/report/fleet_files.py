"""What a fleet leaves in its folder for all jobs: ``fleet.json``, an index, SARIF, JUnit XML, and a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dmlprep.core.errors import OutputError
from dmlprep.core.files.writing import write_file
from dmlprep.record import RunRecord
from dmlprep.record.fleet import FleetRecord


def report_names(shard: str = "") -> tuple[str, str, str, str, str]:
    """Names of the record, the index, SARIF, JUnit XML and the table in Markdown; a part (``3/8``) has its number."""
    part = f"-{shard.replace('/', '-of-')}" if shard else ""
    return f"fleet{part}.json", f"index{part}.html", f"fleet{part}.sarif", f"junit{part}.xml", f"fleet{part}.md"


def check_reports(out: Path, shard: str, own: str, *, force: bool = False) -> None:
    """Fail before the work where files of these names are there that no fleet wrote.

    Args:
        own: name of the folder that a fleet makes in ``out``.

    Raises:
        OutputError: they are, or ``out`` is no folder.
    """
    if os.path.lexists(out) and not os.path.isdir(out):
        raise OutputError("this is no folder", where=str(out), fix="name a folder with -o")
    if force or os.path.isdir(out / own):
        return
    for name in report_names(shard):
        if os.path.lexists(out / name):
            fix = "choose another folder with -o, or pass --force to replace it"
            raise OutputError("the file exists, and no fleet wrote it", where=str(out / name), fix=fix)


def write_reports(out: Path, record: FleetRecord, findings: Sequence[RunRecord]) -> None:
    """Write all five, each whole or not at all.

    Args:
        findings: of each job, its record with its findings.

    Raises:
        OutputError: one cannot be written.
    """
    from dmlprep.report import sarif
    from dmlprep.report.fleet_html import render_index
    from dmlprep.report.fleet_markdown import render_markdown
    from dmlprep.report.junit import render_junit

    json, html, log, junit, table = (out / name for name in report_names(record.shard))
    write_file(html, render_index(record).encode())
    write_file(log, sarif.render(list(findings)))
    write_file(junit, render_junit(record))
    write_file(table, render_markdown(record).encode())
    write_file(json, record.to_json())  # the last: who finds it finds the others
