"""What a notebook shows of a run: the headline, the placement before and after, and the verdicts; no script.

The HTML report (``dmlprep.render_record(record, "html")``) has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlprep.core.text.markup import html_text
from dmlprep.record.headline import Outcome, Run, headline

_COLOURS = {"good": "#1a7f37", "warn": "#b07400", "bad": "#cf222e"}
_OUTCOMES = {"passed": "good", "failed": "bad"}
_VERDICTS = 20


def notebook_html(run: Run, name: str) -> str:
    """Return a few lines of HTML about a run of the model ``name``; every text is escaped."""
    told = headline(run)
    parts = [
        f"<div><b>dmlprep {html_text(run.command)}</b> <code>{html_text(name)}</code><br>",
        f'<b style="color:{_COLOURS[told.level]}">{told.word}</b> {html_text(told.text)}',
        *_placements(run),
        *(_verdict(one) for one in run.verdicts[:_VERDICTS]),
        "</div>",
    ]
    return "".join(parts)


def _placements(run: Run) -> Iterator[str]:
    before, after = run.facts.placement_before, run.facts.placement_after
    if before is None or after is None:
        return
    yield "<table><tr><th></th><th>on DirectML</th><th>fused partitions</th><th>crossings</th></tr>"
    for key, placed in (("before", before), ("after", after)):
        cells = (f"{placed.dml_nodes} of {placed.nodes}", placed.partitions, placed.crossings)
        yield f"<tr><td>{key}</td>{''.join(f'<td>{html_text(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _verdict(one: Outcome) -> str:
    colour = _COLOURS[_OUTCOMES.get(one.outcome, "warn")]
    return f'{html_text(str(one.check))}: <b style="color:{colour}">{html_text(one.outcome)}</b><br>'
