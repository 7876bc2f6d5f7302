"""The report in a real Chromium: nothing is cut off, nothing complains, the keys work, and print has all of it."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dmlprep
from dmlprep.record import Check, OutputMetrics, RunRecord, StepRecord, Verdict, finding
from dmlprep.record.nodes import CrossingTable, NodeTables, Reason
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.run_record import RunFacts
from dmlprep.report.fleet_files import render_index
from dmlprep.report.html import write_html
from tests.fixtures_index import fixture
from tests.report.test_fleet import RECORD as FLEET
from tests.report.test_half import FACTS
from tests.report.test_pictures import table

if sys.platform == "win32":
    pytest.skip("the browser's pipe needs POSIX", allow_module_level=True)

from tests.report.browser import Browser, browser, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

HOSTILE = "/block.0/</script><script>document.title='gone'</script>"
LONG = "/block.1/" + "averylongname" * 12


def full_record(count: int = 40) -> RunRecord:
    letters = "".join("c" if i % 13 == 5 else "d" for i in range(count))
    names = [f"/block.{i // 10}/part_{i % 3}/node_{i}" for i in range(count)]
    names[5], names[18] = HOSTILE, LONG
    crossed = CrossingTable(2, [HOSTILE, "y"], "cd", "4 5", "5 6", "4096 1000000")
    floats = "".join("s" if i % 7 == 3 else "h" for i in range(count))
    reasons = {
        "reasons": [Reason("DP500", ""), Reason("DP502", "DirectML has no kernel for this operator")],
        "reason": " ".join(str(int(letter == "c")) for letter in letters),
    }
    fused = "0 " * 5 + "-1 " + "1 " * (count - 6)
    after = table(letters, floats, names=names, crossings=crossed, partition=fused, **reasons)
    before = table("d" * count, "s" * count)
    outputs = [OutputMetrics("scores" * 9, True, 1e-3, 1e-3, 0.999, error=1e-3, bound=1e-2, noise=1e-6)]
    summary = PlacementFacts(
        nodes=count, dml_nodes=letters.count("d"), crossings=2, partitions=2, crossing_bytes=1_000_000
    )
    return RunRecord(
        command="prepare",
        input=f"models/{LONG}.onnx",
        output="out/model.onnx",
        steps=[
            StepRecord("pin", "changed", 0.5, count, count, 10_000_000, 10_000_000, options={"sizes": {"batch": 1}}),
            StepRecord("fp16", "changed", 1.5, count, count, 10_000_000, 5_000_000, facts=FACTS),
        ],
        verdicts=[Verdict(Check("parity", "cpu"), "passed", outputs=outputs, feeds=2, tolerance="fp16-cpu " * 9)],
        findings=[finding("DP502", f"1 node on the CPU: {HOSTILE}", node=HOSTILE, severity="warning")],
        facts=RunFacts(placement_before=summary, placement_after=summary, nodes=NodeTables(before, after)),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    folder = tmp_path_factory.mktemp("report")
    write_html(full_record(), folder / "run.html")
    with browser(folder / "profile") as opened:
        yield opened, folder / "run.html"


def _says(one: Browser, selector: str) -> str:
    return str(one.value(f"document.querySelector({selector!r})?.innerText ?? ''"))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (320, True)])
def test_nothing_is_cut_off_and_nothing_complains(page: tuple[Browser, Path], width: int, dark: bool) -> None:
    one, path = page
    one.open(path, width=width, dark=dark, phone=width < 500)
    assert one.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    wide = "[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.parentElement.clientWidth + 1).length"
    assert one.value(wide) == 0
    assert one.errors == []
    assert one.requests == []
    assert one.value("document.title").startswith("dmlprep: ")


def test_the_worst_news_has_its_colour_and_its_word(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    assert one.value("document.querySelector('.headline').className") == "headline warn"
    assert "on the CPU" in _says(one, ".headline")
    assert one.value("document.querySelectorAll('.ribbon rect.cpu').length") >= 3


def test_keys_walk_the_ribbon_and_open_a_node(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    for _ in range(30):
        one.press("Tab")
        if one.value("document.activeElement.dataset.table") == "1":
            break
    assert one.value("document.activeElement.className") == "ribbon"
    one.press("c")  # the next node on the CPU
    told = _says(one, ".tip")
    assert HOSTILE in told
    assert "on CPU" in told
    assert "6" in one.value("document.activeElement.getAttribute('aria-valuenow')")
    one.press("ArrowRight")
    assert "node_6" in _says(one, ".tip")
    assert "float16[1]" in one.value("document.activeElement.getAttribute('aria-valuetext')")
    one.press("c")
    one.press("Enter")
    assert one.value("document.activeElement.id") == "canvas"
    assert LONG in _says(one, "#about")
    assert "CPU" in _says(one, "#about .pill")
    one.press("ArrowRight")
    one.press("+")
    one.press("0")
    assert one.errors == []


def test_the_graph_opens_at_the_node_of_the_headline(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    assert "1 node on the CPU" in _says(one, "body")
    about = _says(one, "#about")
    assert HOSTILE in about
    assert "DirectML has no kernel for this operator (DP502)" in about


def test_pointing_says_why_in_words(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    box = "document.querySelectorAll('.ribbon')[1].getBoundingClientRect()"
    x, y, width = one.value(f"[{box}.x, {box}.y, {box}.width]")
    for at, words in (
        (5, "why: DirectML has no kernel for this operator (DP502)"),
        (6, "on DirectML\nfused partition: 1"),
    ):
        one.point(x + width * (at + 0.5) / 40, y + 20)
        assert words in _says(one, ".tip")
        assert "DP500" not in _says(one, ".tip")
    one.value("document.getElementById('canvas').scrollIntoView()")
    box = "document.getElementById('canvas').getBoundingClientRect()"
    x, y, width, height = one.value(f"[{box}.x, {box}.y, {box}.width, {box}.height]")
    one.point(x + width / 2, y + height / 2)  # the chosen node is in the middle
    assert HOSTILE in _says(one, ".tip")


def test_the_modules_are_below_the_ribbon_in_the_colour_of_their_worst_node(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    parts = "[...document.querySelectorAll('.modules')].map(m => [...m.children].map(p => [p.innerText, p.className]))"
    before, after = one.value(parts)
    assert before == [[f"block.{number}", "single"] for number in range(4)]
    assert after == [["block.0", "cpu"], ["block.1", "cpu"], ["block.2", "single"], ["block.3", "cpu"]]
    one.value("document.querySelectorAll('.modules')[0].children[2].click()")
    assert _says(one, "#about").startswith("block.2\nnodes\n10\non DirectML\n10\nof them in FP32\n10")
    assert _says(one, "#tables [aria-pressed=true]") == "before"


def test_the_graph_is_saved_as_svg_and_png(page: tuple[Browser, Path], tmp_path: Path) -> None:
    one, path = page
    one.open(path)
    picture = one.download("document.getElementById('svg').click()", tmp_path)
    assert picture.suffix == ".svg"
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("Conv") == 40
    assert texts.count("CPU") == 3
    png = one.download("document.getElementById('png').click()", tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    assert [width, height] == [2 * int(root.attrib[side]) for side in ("width", "height")]
    assert (one.errors, one.requests) == ([], [])


def test_search_finds_a_node(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    one.value("document.getElementById('search').focus()")
    one.ask("Input.insertText", text="NODE_17")
    assert one.value("document.querySelectorAll('#found button').length") == 1
    one.press("Enter")
    assert "node_17" in _says(one, "#about")


def test_the_switch_between_light_and_dark(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = one.value(colour)
    one.value("document.getElementById('theme').click()")
    dark = one.value(colour)
    assert light != dark
    one.open(path, dark=True)
    assert one.value(colour) == dark


def test_without_a_script_the_pictures_are_there(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        one.load(path)
        assert one.value("document.querySelectorAll('.ribbon rect.dml').length") > 5
        assert one.value("document.getElementById('graph').hidden && document.getElementById('theme').hidden")
    finally:
        one.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_the_policy_lets_no_text_become_html(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    refused = "(() => { try { document.body.insertAdjacentHTML('beforeend', '<i>') } catch (e) { return e.name } })()"
    assert one.value(refused) == "TypeError"
    one.value(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://example.invalid/a.png'}))"
    )
    assert any("Content Security Policy" in text for text in one.errors)


def test_a_small_model_is_printed_on_two_pages(page: tuple[Browser, Path], tmp_path: Path) -> None:
    one, _ = page
    path = fixture("residual_cnn").path
    run = dmlprep.prepare(path, out=tmp_path / "out", recipe="@vision-fp16", device="cpu", pins={"batch": 1})
    assert [one.outcome for one in run.verdicts] == ["passed", "passed"]
    write_html(run, tmp_path / "run.html")
    one.open(tmp_path / "run.html")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", one.printed())) <= 2


def test_print_opens_everything(page: tuple[Browser, Path]) -> None:
    one, path = page
    one.open(path)
    one.value(
        "addEventListener('beforeprint', () => {"
        " window.closedInPrint = document.querySelectorAll('details:not([open])').length })"
    )
    assert len(one.printed()) > 20_000
    assert one.value("window.closedInPrint") == 0
    assert one.value("document.querySelectorAll('details:not([open])').length") > 0  # closed again


def test_five_thousand_nodes_open_and_stay_small(page: tuple[Browser, Path], tmp_path: Path) -> None:
    """How long it takes is measured in ``tests/benchmarks/report_page.py``."""
    one, _ = page
    write_html(full_record(5000), tmp_path / "large.html")
    assert (tmp_path / "large.html").stat().st_size < 1_500_000
    one.open(tmp_path / "large.html")
    assert one.errors == []
    assert "5,000 nodes" in _says(one, ".caption")
    assert HOSTILE in _says(one, "#about")


def test_the_index_of_a_fleet_is_sorted_and_filtered(page: tuple[Browser, Path], tmp_path: Path) -> None:
    one, _ = page
    index = tmp_path / "index.html"
    index.write_text(render_index(FLEET), encoding="utf-8")
    for width in (1280, 390):
        one.open(index, width=width, phone=width < 500)
        assert one.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert (one.errors, one.requests) == ([], [])
    one.open(index)
    shown = "[...document.querySelectorAll('#jobs tbody tr:not([hidden]) td:first-child')].map(c => c.innerText[0])"
    assert one.value(shown) == list("abcdef")
    click = "[...document.querySelectorAll('{}')].find(b => b.textContent.startsWith('{}')).click()"
    one.value(click.format("th button", "worst error"))
    assert one.value(shown) == list("bacdef")  # jobs without a number come last
    one.value(click.format("th button", "worst error"))
    assert one.value(shown) == list("abcdef")
    one.value(click.format("#tools button", "failed"))
    assert one.value(shown) == ["c"]
    assert _says(one, "#shown") == "1 of 6 jobs"
    one.value(click.format("#tools button", "all"))
    one.value("document.getElementById('search').focus()")
    one.ask("Input.insertText", text="D is wrong")
    assert one.value(shown) == ["d"]
    assert one.errors == []
