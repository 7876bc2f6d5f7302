"""Names in Markdown: a parser reads each back as text or code, and as nothing else."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import example, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from dmlprep.core.text.markdown import code, table, text
from dmlprep.portable.printable import inert, printable, shortened
from tests.hostile_names import NASTY, names

_PARSER = MarkdownIt("gfm-like", {"linkify": False, "html": True})


def _inline(source: str) -> list[Token]:
    (first, inside, last) = _PARSER.parse(source)
    assert (first.type, inside.type, last.type) == ("paragraph_open", "inline", "paragraph_close"), source
    return inside.children or []


def _joined(name: str) -> str:
    return shortened(" ".join(printable(name).split()))


def _coded(name: str) -> str:
    return _joined(inert(shortened(printable(name)))) or '""'


@settings(max_examples=300, deadline=None)
@given(names(surrogates=True))
def test_text_is_text_also_where_it_begins_a_line(name: str) -> None:
    said = _joined(name)
    if not said:
        assert text(name) == ""
        return
    children = _inline(text(name))
    assert {child.type for child in children} <= {"text", "text_special"}
    assert "".join(child.content for child in children) == said


@settings(max_examples=300, deadline=None)
@given(names(surrogates=True))
def test_code_is_code(name: str) -> None:
    children = _inline(code(name))
    shown = inert(shortened(printable(name)))
    if "|" in name or not shown.strip():
        assert {child.type for child in children} <= {"text", "text_special"}
        assert "".join(child.content for child in children) == (_joined(shown) or '""')
    else:
        assert [child.type for child in children if child.content] == ["code_inline"], code(name)
        assert children[0].content == shown


@settings(max_examples=300, deadline=None)
@given(names(surrogates=True), names())
@example("\xa0", "\u3000")
def test_cells_stay_in_their_cells(one: str, other: str) -> None:
    html = _PARSER.render("\n".join(table(["a", "b"], [[text(one), code(other)], [code(one), text(other)]])))
    assert set(re.findall(r"<(\w+)", html)) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    cells = [unescape(re.sub("</?code>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", html, re.DOTALL)]
    said = [_joined(one), _coded(other), _coded(one), _joined(other)]
    assert [" ".join(cell.split()) for cell in cells] == said


@pytest.mark.parametrize("name", [*NASTY, "https://a.b", "www.a.b", "WWW.a.b", "a@b.c", "@you", "#1", "1. a", "12) a"])
def test_no_name_is_a_link_or_a_mention(name: str) -> None:
    """GitHub makes links of addresses, and mentions of names, that are not in code."""
    assert not re.search(r"(?<!\\)://|(?i:(?<!\w)www\.)|(?<!\\)[@#]", text(name))
    for source in (text(name), f"- {text(name)}", f"# {text(name)} #"):
        found = {token.type for token in _PARSER.parse(source)}
        lists = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}
        allowed = {"inline", "paragraph_open", "paragraph_close", "heading_open", "heading_close", *lists}
        assert found <= allowed, source
