"""Write the files that a fleet has for all its jobs: ``fleet.json``, an HTML index, SARIF, JUnit XML, and Markdown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from dmlprep.core.errors import OutputError
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.markdown import Markdown, table, text
from dmlprep.core.text.sizes import bytes_text
from dmlprep.portable.printable import printable
from dmlprep.record import RunRecord
from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.record.run_record import WORDS, Level
from dmlprep.report.fleet import COLUMNS, counted, numbers_of, worst_first

_ROWS = 200
_NAME, _REASON = 200, 600
"""The most characters of a name and of a reason in Markdown, before they are escaped, which at most doubles them."""

_LEVELS = {"good": "passed", "review": "warning", "not run": "not-run"}
"""Map from the word for a job's outcome to its CSS class on the index page; other words get ``failed``."""

_ALIGN = ("---", "---", "--:", "--:", "--:", "--:")


def report_names(shard: str = "") -> tuple[str, str, str, str, str]:
    """Return the file names of the record, the HTML index, SARIF, JUnit XML and the Markdown table.

    ``shard``: the part of the fleet, such as ``1/3``; it becomes a part of the names. Empty for a whole fleet.
    """
    part = f"-{shard.replace('/', '-of-')}" if shard else ""
    return f"fleet{part}.json", f"index{part}.html", f"fleet{part}.sarif", f"junit{part}.xml", f"fleet{part}.md"


def check_reports(out: Path, shard: str, own: str, *, force: bool = False) -> None:
    """Check, before the work, that the reports may be written into the folder ``out``.

    Args:
        own: name of the subfolder that every fleet's output has. If it exists, a fleet wrote the files.
        force: replace files in any case.

    Raises:
        OutputError: ``out`` is not a folder, or has a file of such a name that no fleet wrote.
    """
    if os.path.lexists(out) and not os.path.isdir(out):
        raise OutputError("not a folder", where=str(out), fix="pass a folder with -o")
    if force or os.path.isdir(out / own):
        return
    for name in report_names(shard):
        if os.path.lexists(out / name):
            fix = "choose another folder with -o, or pass --force to replace it"
            raise OutputError("the file exists, and is not of a fleet", where=str(out / name), fix=fix)


def write_reports(out: Path, record: FleetRecord, findings: Sequence[RunRecord]) -> None:
    """Write all five reports into the folder ``out``, each atomically; ``fleet.json`` comes last.

    ``findings``: for each job, a run record with its findings, for SARIF.

    Raises:
        OutputError: a file cannot be written.
    """
    from dmlprep.report import sarif

    json, html, log, junit, summary = (out / name for name in report_names(record.shard))
    write_file(html, render_index(record).encode())
    write_file(log, sarif.render(list(findings)))
    write_file(junit, render_junit(record))
    write_file(summary, render_markdown(record).encode())
    write_file(json, record.to_json())  # the last: if it exists, the others do too


def render_markdown(record: FleetRecord) -> str:
    """Return the record as GitHub Flavored Markdown: counts, a table of jobs, and reasons. Names are escaped.

    GitHub accepts 1 MiB of summary for each step (GitHub Docs, "Workflow commands for GitHub Actions"), so the numbers
    of rows and characters are limited.
    """
    part = f", part {text(record.shard)}" if record.shard else ""
    lines = [f"### {text(counted(record), _REASON)}{part}", ""]
    jobs = worst_first(record.jobs) if len(record.jobs) > _ROWS else record.jobs
    if jobs:
        lines += table(COLUMNS, map(_cells, jobs[:_ROWS]), _ALIGN)
        lines += ["", *_more(len(jobs))]
    wrong = [job for job in worst_first(record.jobs) if job.exit_code]
    if wrong:
        lines += [f"- **{text(job.name, _NAME)}**: {text(job.error, _REASON)}" for job in wrong[:_ROWS]]
        lines += ["", *_more(len(wrong))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _cells(job: JobRecord) -> list[Markdown]:
    verdict = text(job.word) if job.word == "good" else Markdown(f"**{text(job.word)}**")
    return [text(job.name, _NAME), verdict, *map(text, numbers_of(job))]


def _more(count: int) -> list[str]:
    return [f"{count - _ROWS} more in fleet.json", ""] if count > _ROWS else []


def render_junit(record: FleetRecord) -> bytes:
    """Return the record as JUnit XML in UTF-8, with a test case for each job.

    The form is that of Jenkins' xunit plugin (its schema ``junit-10.xsd``), which GitLab, Azure Pipelines and GitHub's
    actions for test reports read. A job whose check did not run is an error, not a skipped case: readers of the file
    count skipped cases as good.
    """
    failed = [job for job in record.jobs if job.outcome == "failed"]
    errors = [job for job in record.jobs if job.exit_code and job.outcome != "failed"]
    counts = {
        "name": printable(record.file),
        "tests": str(len(record.jobs)),
        "failures": str(len(failed)),
        "errors": str(len(errors)),
        "time": f"{record.seconds:.3f}",
    }
    top = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(top, "testsuite", {**counts, "skipped": "0"})
    for job in record.jobs:
        _case(suite, job)
    ElementTree.indent(top)
    text: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return text.replace(b"##", b"#&#35;") + b"\n"  # in the log of a CI machine ``##[`` is a command


def _case(suite: ElementTree.Element, job: JobRecord) -> None:
    seconds = 0.0 if job.reused else job.seconds
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": printable(job.model), "name": printable(job.name), "time": f"{seconds:.3f}"}
    )
    if not job.exit_code:
        return
    kind = "failure" if job.outcome == "failed" else "error"
    wrong = ElementTree.SubElement(case, kind, {"type": job.outcome, "message": printable(job.error)})
    wrong.text = printable(job.summary or job.error)


class _Row(NamedTuple):
    job: JobRecord
    word: str
    style: str
    link: str
    pins: str


def render_index(record: FleetRecord) -> str:
    """Return the HTML page that lists all jobs. A script sorts and filters the rows; without it, all are shown."""
    from dmlprep.report.rendering import render_page

    rows = [_row(job) for job in record.jobs]
    words = [row.word for row in rows]
    level: Level = "bad" if record.exit_code not in (0, 3) else "warn" if set(words) - {"good"} else "good"
    return render_page(
        "fleet.html.jinja",
        ("fleet.js",),
        record=record,
        rows=rows,
        level=level,
        head=WORDS[level],
        counted=counted(record),
        words={word: words.count(word) for word in dict.fromkeys(words)},
        axes=[name for name in ("recipe", "target", "size") if len({getattr(job, name) for job in record.jobs}) > 1],
        size=bytes_text,
    )


def _row(job: JobRecord) -> _Row:
    pins = ", ".join(f"{name}={toml_value(value)}" for name, value in job.pins.items())
    return _Row(job, job.word, _LEVELS.get(job.word, "failed"), _link(job.report), pins)


def _link(report: str) -> str:
    """Return the relative URL of a job's report; empty without a report, or if its path leaves the folder.

    The URL begins with a dot, so that a file name cannot form a URL of another scheme.
    """
    parts = PurePosixPath(report).parts
    if not report or ".." in parts or PurePosixPath(report).is_absolute():
        return ""
    try:
        return "./" + "/".join(quote(os.fsencode(part), safe="") for part in parts)
    except UnicodeEncodeError:  # half a character, which no file of this system has in its name
        return ""
