"""The index of a fleet: one HTML file with a row a job, to be sorted and filtered, and a link to each run's report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.report.fleet import counted, word_of
from dmlprep.report.rendering import render_page

_LEVELS = {"good": "passed", "look": "warning", "not run": "not-run"}


@dataclass(frozen=True)
class _Row:
    job: JobRecord
    word: str
    style: str
    link: str
    pins: str


def render_index(record: FleetRecord) -> str:
    """The index. It shows all rows without a script; the script sorts and filters them."""
    rows = [_row(job) for job in record.jobs]
    words = [row.word for row in rows]
    level = "bad" if record.exit_code not in (0, 3) else "warn" if set(words) - {"good"} else "good"
    return render_page(
        "fleet.html.jinja",
        ("fleet.js",),
        record=record,
        rows=rows,
        level=level,
        head={"bad": "failed", "warn": "look", "good": "good"}[level],
        counted=counted(record),
        words={word: words.count(word) for word in dict.fromkeys(words)},
        axes=[name for name in ("recipe", "target", "size") if len({getattr(job, name) for job in record.jobs}) > 1],
        size=bytes_text,
    )


def _row(job: JobRecord) -> _Row:
    word = word_of(job)
    pins = ", ".join(f"{name}={toml_value(value)}" for name, value in job.pins.items())
    return _Row(job, word, _LEVELS.get(word, "failed"), _link(job.report), pins)


def _link(report: str) -> str:
    """An address below the index. It begins with a dot, so that no name makes another kind of address of it."""
    parts = PurePosixPath(report).parts
    if not report or ".." in parts or PurePosixPath(report).is_absolute():
        return ""
    try:
        return "./" + "/".join(quote(os.fsencode(part), safe="") for part in parts)
    except UnicodeEncodeError:  # half a character, which no file of this system has in its name
        return ""
