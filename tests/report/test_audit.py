"""What an audit of a page asks, in a real Chromium: contrast, names of controls, order and sight of the focus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dmlprep.record import RunError, RunRecord
from dmlprep.report.html import write_html

if sys.platform == "win32":
    pytest.skip("the browser's pipe needs POSIX", allow_module_level=True)

from tests.report.browser import Browser, browser, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

from tests.report.test_browser import full_record

CONTRAST = """(() => {
  const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const rgba = text => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  for (const one of document.querySelectorAll('details')) one.open = true;
  const low = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || node.closest('script, style, [hidden]')) continue;
    const style = getComputedStyle(node);
    if (style.visibility !== 'visible' || !node.getClientRects().length) continue;
    const ink = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgba(ink)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), bold = +style.fontWeight >= 700;
    const asked = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    if (ratio < asked) low[`${node.tagName}.${node.getAttribute('class') ?? ''} ${ink}`] = +ratio.toFixed(2);
  }
  return low;
})()"""
"""Texts below the contrast of WCAG 2.2, 1.4.3 (AA), by the colours that the browser computed."""

FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]"

NAMES = f"""(() => [...document.querySelectorAll({FOCUSABLE!r})].filter(one => one.getClientRects().length).filter(
  one => !(one.getAttribute('aria-label') || one.innerText || one.labels?.length || one.title || '').trim()
).map(one => one.outerHTML.slice(0, 80)))()"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    folder = tmp_path_factory.mktemp("audit")
    write_html(full_record(), folder / "run.html")
    with browser(folder / "profile") as one:
        yield one, folder / "run.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_text_has_the_contrast_of_aa(opened: tuple[Browser, Path], width: int, dark: bool) -> None:
    one, path = opened
    one.open(path, width=width, dark=dark, phone=width < 500)
    assert one.value(CONTRAST) == {}
    assert one.errors == []


def test_the_check_of_contrast_sees_pale_text(opened: tuple[Browser, Path]) -> None:
    one, path = opened
    one.open(path)
    one.value("document.querySelectorAll('.soft').forEach(x => x.style.color = '#999')")
    assert any("SPAN.soft" in text for text in one.value(CONTRAST))


def test_a_failed_and_a_good_headline_have_it_too(opened: tuple[Browser, Path], tmp_path: Path) -> None:
    one, _ = opened
    for number, code in enumerate((1, 0)):
        record = RunRecord(
            command="check", input="m.onnx", exit_code=code, error=RunError("it failed") if code else None
        )
        write_html(record, tmp_path / f"{number}.html")
        for dark in (False, True):
            one.open(tmp_path / f"{number}.html", dark=dark)
            assert one.value(CONTRAST) == {}


def test_the_page_says_its_language_and_its_title_and_every_control_its_name(opened: tuple[Browser, Path]) -> None:
    one, path = opened
    one.open(path)
    assert one.value("document.documentElement.lang") == "en"
    assert one.value("document.title").startswith("dmlprep: ")
    assert one.value("document.querySelectorAll('main').length") == 1
    assert one.value(NAMES) == []
    pictures = "[...document.querySelectorAll('svg, canvas')].filter(x => !x.closest('[aria-hidden=true], .legend'))"
    assert one.value(f"{pictures}.filter(x => !x.getAttribute('aria-label')).length") == 0
    levels = one.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(x => +x.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tab_goes_down_the_page_and_is_seen(opened: tuple[Browser, Path]) -> None:
    one, path = opened
    one.open(path)
    count = one.value(f"[...document.querySelectorAll({FOCUSABLE!r})].filter(x => x.getClientRects().length).length")
    one.value("document.querySelectorAll('[tabindex]').forEach(x => { if (x.tabIndex > 0) throw Error('order') })")
    seen: list[dict[str, Any]] = []
    for _ in range(min(count, 25)):
        one.press("Tab")
        seen.append(
            one.value(
                "(at => ({tag: at.tagName, top: at.getBoundingClientRect().top + scrollY,"
                " outline: parseFloat(getComputedStyle(at).outlineWidth), style: getComputedStyle(at).outlineStyle}))"
                "(document.activeElement)"
            )
        )
    assert all(at["tag"] != "BODY" for at in seen)
    assert [at for at in seen if at["style"] == "none" or at["outline"] < 1] == []
    tops = [at["top"] for at in seen]
    assert all(after >= before - 60 for before, after in pairwise(tops)), tops
