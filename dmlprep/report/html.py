"""Show a run record as one HTML file that loads nothing from elsewhere.

The ribbon (all nodes in a row, by the place where they run) and the charts need no script. The script adds the graph,
and reacts to pointer and keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from dmlprep.core.errors import DmlprepError
from dmlprep.core.files import check_output
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.sizes import bytes_text
from dmlprep.portable.printable import printable, quoted, shortened
from dmlprep.portable.shares import percent
from dmlprep.record import CODES, SEVERITIES, Finding, RunRecord, Severity
from dmlprep.record.nodes import NAME_LENGTH, NodeTable, NodeTables, Reason
from dmlprep.record.run_record import headline
from dmlprep.report.charts import blocks_along, change, error_rows, errors_along, profile_along, step_bars
from dmlprep.report.fp16 import HalfStep, half_steps, modes, worst_output
from dmlprep.report.opportunities import gain_text
from dmlprep.report.pages import page
from dmlprep.report.rendering import render_page
from dmlprep.report.ribbon import kinds, ribbon
from dmlprep.report.speed import PART_COLUMNS, bound_notes, part_rows, speed_rows

_SCRIPTS = ("model.js", "ribbon.js", "layout.js", "drawing.js", "saving.js", "graph.js", "page.js")
_ROWS = 200
"""The most rows of a table on the page. The record has all."""

_COLUMNS = ("total", "roles", "operator", "reason", "type", "partition", "inputs", "graph", "module", "place")
_TEXTS = ("operators", "types", "graphs", "modules", "places")
_LETTERS = {"dml": "d", "single": "s", "cpu": "c"}


@dataclass(frozen=True)
class _Group:
    """The findings of one severity and code; ``page`` is the explanation of the code as HTML."""

    code: str
    title: str
    severity: str
    findings: list[Finding]
    page: Markup


def render_html(record: RunRecord) -> str:
    """Return the record as an HTML page. All texts of the record are escaped, because a model may be hostile.

    Scripts, styles, URLs and unquoted attributes contain no text of the record. The nodes are in a block of JSON that
    no name can end.
    """
    half = bool(half_steps(record))
    facts, tables, bench, bisected = record.facts, record.facts.nodes, record.facts.bench, record.facts.bisection
    placements = (("before", facts.placement_before), ("after", facts.placement_after), ("as it is", facts.placement))
    return render_page(
        "page.html.jinja",
        _SCRIPTS,
        record=record,
        headline=headline(record),
        origin=facts.origin,
        payload=Markup(payload(tables, half=half, start=headline_node(record))),
        ribbons=_ribbons(record, half),
        has_nodes=tables is not None,
        placements=[(name, one) for name, one in placements if one is not None],
        half=half,
        halves=[(h, _figures(record, h)) for h in half_steps(record)],
        modes=modes(record),
        errors=error_rows(record),
        bars=step_bars(record),
        bisected=bisected,
        compared=list(zip(bisected.values, bisected.places, bisected.errors, strict=True)) if bisected else [],
        error_along=errors_along(bisected) if bisected is not None else None,
        memory=facts.memory,
        bench=bench,
        speeds=speed_rows(bench) if bench is not None else [],
        bound_notes=bound_notes(bench) if bench is not None else [],
        parts=[row for one in bench.models for row in part_rows(one)] if bench is not None else [],
        part_columns=PART_COLUMNS,
        groups=_groups(record),
        opportunities=facts.opportunities,
        gain=gain_text,
        rows=_ROWS,
        worst=worst_output,
        size=bytes_text,
        toml=toml_value,
        percent=percent,
        change=change,
    )


def headline_node(record: RunRecord) -> tuple[int, int] | None:
    """Return the node that the headline is about, as its table (0 or 1) and its number there; ``None`` without one.

    It is the node of an error, otherwise the first compute node on the CPU, otherwise the node of a warning.
    """
    tables = record.facts.nodes
    if tables is None:
        return None
    last, table = (0, tables.before) if tables.after is None else (1, tables.after)
    roles = enumerate(zip(table.providers, table.roles, strict=True))
    on_cpu = ((last, index) for index, role in roles if role == ("c", "c"))
    return next(chain(_named(tables, record, "error"), on_cpu, _named(tables, record, "warning")), None)


def _named(tables: NodeTables, record: RunRecord, severity: Severity) -> Iterator[tuple[int, int]]:
    """Yield the places of the nodes that findings of a severity name, as ``headline_node`` returns them."""
    for one in record.all_findings():
        name = shortened(printable(one.node), NAME_LENGTH)
        for which, table in ((1, tables.after), (0, tables.before)):
            if one.node and one.severity == severity and table is not None and name in table.names:
                yield which, table.names.index(name)


def payload(tables: NodeTables | None, *, half: bool, start: tuple[int, int] | None = None) -> str:
    """Return the nodes of the models as JSON for the page's script; ``{}`` without nodes.

    The JSON contains no ``<``, ``>`` and ``&``, and names are printable.

    Args:
        half: whether the run has FP16 steps.
        start: the node that is chosen first, as its table and its number there.
    """
    if tables is None:
        return "{}"
    data = [_table(tables.before, "before" if tables.after else "nodes", half=half)]
    if tables.after is not None:
        data.append(_table(tables.after, "after", half=half))
    text = json.dumps({"tables": data, "start": start}, separators=(",", ":"), ensure_ascii=False)
    return quoted(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(table: NodeTable, label: str, *, half: bool) -> dict[str, object]:
    shared, rest = _behind_one_another(map(printable, table.names))
    crossings = table.crossings
    return {
        "label": label,
        "shared": shared,
        "names": rest,
        "kinds": "".join(_LETTERS[kind] for kind in kinds(table, half=half)),
        "reasons": list(map(_why, table.reasons)),
        "notFused": table.not_fused,
        **{name: getattr(table, name) for name in _COLUMNS},
        **{name: list(map(printable, getattr(table, name))) for name in _TEXTS},
        "crossings": {
            "values": list(map(printable, crossings.values)),
            **{name: getattr(crossings, name) for name in ("to", "producer", "consumer", "nbytes")},
        },
    }


def _why(reason: Reason) -> str:
    """Return a reason in words, with its code; empty for a node that DirectML runs, which needs no reason."""
    words = reason.text or (CODES[reason.code].title if reason.code in CODES else "")
    return "" if reason.code == "DP500" else printable(f"{words} ({reason.code})".strip())


def _behind_one_another(names: Iterable[str]) -> tuple[str, list[str]]:
    """Compress a list of names: return how many first characters each shares with the name before, and the rests.

    The counts are one text, separated by spaces. Names of neighbouring nodes often have a common beginning. Only ASCII
    counts as shared, because JavaScript counts some other characters twice.
    """
    shared, rest, last = [], [], ""
    for name in names:
        count = 0
        for ours, theirs in zip(name, last, strict=False):
            if ours != theirs or not ours.isascii():
                break
            count += 1
        shared.append(str(count))
        rest.append(name[count:])
        last = name
    return " ".join(shared), rest


def _ribbons(record: RunRecord, half: bool) -> list[object]:
    tables = record.facts.nodes
    if tables is None:
        return []
    if tables.after is None:
        name = "nodes"
        if record.command == "prepare":  # a model that was refused was placed once
            name = "before and after" if record.facts.placement_after is not None else "before"
        return [ribbon(tables.before, name, half=half)]
    return [ribbon(tables.before, "before", half=half), ribbon(tables.after, "after", half=half)]


def _figures(record: RunRecord, half: HalfStep) -> list[tuple[str, object]]:
    tables = record.facts.nodes
    blocks = blocks_along(half, tables.before if tables else None, half.tolerance)
    profile = profile_along(half.facts.profile) if half.facts.profile else None
    titles = ("Error of each block with only this block in FP16", "Largest magnitude that each node makes, in FP32")
    return [(title, figure) for title, figure in zip(titles, (blocks, profile), strict=True) if figure is not None]


def _groups(record: RunRecord) -> list[_Group]:
    """Return the findings of a record, grouped by severity and code; the severest come first."""
    findings = sorted(record.all_findings(), key=lambda f: (SEVERITIES.index(f.severity), f.code))
    groups = []
    for (severity, code), run in groupby(findings, key=lambda f: (f.severity, f.code)):
        title = CODES[code].title if code in CODES else ""
        groups.append(_Group(code, title, severity, list(run), page_html(code)))
    return groups


@cache
def page_html(code: str) -> Markup:
    """Return the documentation page of a finding code as HTML, without its title; empty if there is none.

    Links become plain text.
    """
    try:
        text = page(code)
    except DmlprepError:
        return Markup("")
    body = text.partition("\n")[2] if text.startswith("# ") else text
    return Markup(_renderer().render(body))


@cache
def _renderer() -> MarkdownIt:
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    written = {"link_open": "", "link_close": "", "image": "", "heading_open": "<h3>", "heading_close": "</h3>"}
    for part, html in written.items():
        renderer.add_render_rule(part, lambda *_, html=html: html)
    return renderer


def write_html(record: RunRecord, path: Path, *, force: bool = False) -> None:
    """Write the record as an HTML file, atomically; ``force``: replace an existing file.

    Raises:
        OutputError: the file exists and ``force`` is False, or it cannot be written.
    """
    check_output(path, force=force)
    write_file(path, render_html(record).encode(), force=force)
