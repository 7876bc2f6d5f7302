"""A run record as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import jinja2

from dmlprep.files import check_output
from dmlprep.model.saving import write_file
from dmlprep.record import SEVERITIES, RunRecord
from dmlprep.record.documents import toml_value
from dmlprep.record.printable import printable
from dmlprep.record.shares import percent
from dmlprep.report.half import half_steps, modes, worst_output
from dmlprep.report.speed import bench_of, speed_rows
from dmlprep.report.units import bytes_text

__all__ = ["render_html", "write_html"]

_PLACEMENTS = (("before", "placement_before"), ("after", "placement_after"))


def render_html(record: RunRecord) -> str:
    """The record as HTML. Every name of the model is escaped: a model is hostile until checked.

    There are no scripts in it, and nothing of the record stands in an address, a style or an attribute without quotes.
    """
    bench = bench_of(record)
    page = (resources.files("dmlprep.report") / "run.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_printable
    )
    return environment.from_string(page).render(
        record=record,
        findings=sorted(record.all_findings(), key=lambda f: SEVERITIES.index(f.severity)),
        placements=[(name, record.facts[key]) for name, key in _PLACEMENTS if record.facts.get(key)],
        halves=half_steps(record),
        modes=modes(record),
        bench=bench,
        speeds=speed_rows(bench) if bench is not None else [],
        worst=worst_output,
        size=bytes_text,
        toml=toml_value,
        percent=percent,
        change=_change,
    )


def _printable(value: object) -> object:
    """What an expression of the page gives, whatever its type says of itself; where a line ends means nothing there."""
    return "\n".join(map(printable, str(value).split("\n")))


def _change(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def write_html(record: RunRecord, path: Path, *, force: bool = False) -> None:
    """Write the report, whole or not at all.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    check_output(path, force=force)
    write_file(path, render_html(record).encode())
