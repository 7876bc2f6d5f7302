"""The page of a finding code as HTML, to unfold where the code is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from dmlprep.core.errors import DmlprepError
from dmlprep.report.pages import page


@cache
def page_html(code: str) -> Markup:
    """The page without its title; empty where there is none. Links are text: what they lead to is not in the file."""
    try:
        text = page(code)
    except DmlprepError:
        return Markup("")
    body = text.partition("\n")[2] if text.startswith("# ") else text
    return Markup(_renderer().render(body))


@cache
def _renderer() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    for part in ("link_open", "link_close"):
        made.add_render_rule(part, _nothing)
    made.add_render_rule("heading_open", _heading("<h3>"))
    made.add_render_rule("heading_close", _heading("</h3>"))
    made.add_render_rule("image", _nothing)
    return made


def _nothing(self: object, tokens: object, index: int, options: object, environment: object) -> str:
    return ""


def _heading(text: str) -> Callable[..., str]:
    def written(self: object, tokens: object, index: int, options: object, environment: object) -> str:
        return text

    return written
