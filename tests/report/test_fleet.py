"""The views of a fleet: tables, index, SARIF, JUnit XML, annotations and issues say the same of each job."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from markdown_it import MarkdownIt

from dmlprep.core.errors import OutputError
from dmlprep.portable.printable import printable
from dmlprep.record import RunRecord, finding
from dmlprep.record.fleet import OUTCOMES, FleetRecord, JobRecord, outcome_of, worst
from dmlprep.report.azure import job_issues
from dmlprep.report.console import PlainConsole
from dmlprep.report.fleet import show_fleet
from dmlprep.report.fleet_files import (
    check_reports,
    render_index,
    render_junit,
    render_markdown,
    report_names,
    write_reports,
)
from dmlprep.report.github import job_lines

HOSTILE = "</script><b>x</b>\x1b[31m&\x00\ud800"


def _job(name: str, exit_code: int = 0, **more: object) -> JobRecord:
    said = {"error": f"{name} is wrong"} if exit_code else {"level": "good", "report": f"{name}/report.html"}
    return JobRecord(**{"name": name, "model": "m.onnx", "recipe": "@x", "exit_code": exit_code, **said, **more})


RECORD = FleetRecord(
    file="dmlprep.toml",
    version="1",
    exit_code=2,
    seconds=3.0,
    jobs=[
        _job("a", nodes=10, dml_nodes=9, level="warn", worst_error=0.5, bytes_after=2000, size="small"),
        _job("b", nodes=4, dml_nodes=4, worst_error=1e-9, bytes_after=999_999, reused=True, pins={"batch": 1}),
        _job("c", 1, report="c/report.html"),
        _job("d", 2),
        _job("e", 3),
        _job("f", 70),
    ],
)


def test_the_worst_exit_code_is_not_the_largest() -> None:
    assert list(OUTCOMES) == [70, 2, 1, 3, 0]
    assert worst([0, 3, 0]) == 3
    assert worst([0, 3, 1]) == 1
    assert worst([1, 2, 3]) == 2
    assert worst([70, 2]) == 70
    assert worst([]) == 0
    assert worst([0, 99]) == 99  # that of no command
    assert outcome_of(99) == "internal-error"


def test_fleet_json_reads_back() -> None:
    data = json.loads(RECORD.to_json())
    assert [job["outcome"] for job in data["jobs"]] == [
        "good",
        "good",
        "failed",
        "wrong-input",
        "not-run",
        "internal-error",
    ]
    assert msgspec.convert(data, FleetRecord) == RECORD


def _text(record: FleetRecord, brief: bool = False) -> str:
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=120)
    show_fleet(record, console, brief=brief)
    return stream.getvalue()


def test_the_table() -> None:
    text = _text(RECORD)
    assert "a review 9 of 10 0.5 2.0 kB 0.0" in " ".join(text.split())
    assert text.index("f: internal error: f is wrong") < text.index("c: failed: c is wrong") < text.index("e: not run")
    first = "6 jobs: 1 internal error, 1 wrong input, 1 failed, 1 not run, 1 review, 1 good (1 known from before)"
    assert text.splitlines()[0] == _text(RECORD, brief=True).splitlines()[0] == first
    good = msgspec.structs.replace(RECORD, jobs=RECORD.jobs[:2])
    assert _text(good, brief=True) == "2 jobs: 1 review, 1 good (1 known from before)\n"


def test_a_table_of_thousands_shows_the_worst() -> None:
    jobs = [*(_job(f"good{number}") for number in range(3000)), _job("bad", 1)]
    text = _text(msgspec.structs.replace(RECORD, jobs=jobs))
    assert len(text.splitlines()) < 220
    assert text.splitlines()[3].startswith("bad")
    assert "2801 more in fleet.json" in text


def test_the_index_has_every_job_and_loads_nothing() -> None:
    page = render_index(RECORD)
    assert [name for name in "abcdef" if f">{name}</" not in page] == []
    assert page.count("<tr data-word=") == 6
    assert 'href="./a/report.html"' in page
    assert 'data-value="0.9"' in page
    assert '<p class="headline bad"' in page
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src &#39;none&#39;" in page


def test_names_of_strangers_stay_text() -> None:
    job = _job(HOSTILE, 1, model=HOSTILE, report=f"javascript:alert(1)/{HOSTILE}/report.html", error=HOSTILE)
    above = _job("up", report="../../secret.html")
    script = _job("s", report="javascript:alert(1)/x.html")
    record = msgspec.structs.replace(RECORD, file=HOSTILE, jobs=[job, above, script])
    page = render_index(record)
    assert "<b>x</b>" not in page
    assert "\x1b" not in page
    assert 'href="./javascript%3Aalert' in page
    assert "secret" not in page
    xml = render_junit(record)
    assert ElementTree.fromstring(xml)[0].find("testcase").get("name", "").startswith("</script>")
    assert "\x1b" not in _text(record)


def test_junit_counts_what_did_not_run_as_an_error() -> None:
    top = ElementTree.fromstring(render_junit(RECORD))
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("6", "1", "3")
    kinds = {case.get("name"): [child.tag for child in case] for case in top.iter("testcase")}
    assert kinds == {"a": [], "b": [], "c": ["failure"], "d": ["error"], "e": ["error"], "f": ["error"]}
    assert [case.get("time") for case in top.iter("testcase")][1] == "0.000"  # kept: it took nothing now


def test_annotations_are_of_what_is_not_good() -> None:
    lines = list(job_lines(RECORD, ["models/m.onnx"] * 6))
    assert len(lines) == 4
    assert lines[0] == "::error file=models/m.onnx,title=dmlprep c%3A failed::c is wrong"


def test_all_files_are_written_and_those_of_nobody_are_not(tmp_path: Path) -> None:
    findings = [RunRecord(command="prepare", input="m.onnx", findings=[finding("DP201", "x")]) for _ in RECORD.jobs]
    check_reports(tmp_path, "", ".own")
    write_reports(tmp_path, RECORD, findings)
    assert {path.name for path in tmp_path.iterdir()} == set(report_names())
    assert len(json.loads((tmp_path / "fleet.sarif").read_text())["runs"][0]["results"]) == 6
    with pytest.raises(OutputError, match="is not of a fleet"):
        check_reports(tmp_path, "", ".own")
    check_reports(tmp_path, "3/8", ".own")
    check_reports(tmp_path, "", ".own", force=True)
    (tmp_path / ".own").mkdir()
    check_reports(tmp_path, "", ".own")
    with pytest.raises(OutputError, match="not a folder"):
        check_reports(tmp_path / "fleet.json", "", ".own")


def test_the_table_in_markdown() -> None:
    html = _rendered(render_markdown(RECORD))
    assert html.startswith("<h3>6 jobs: ")
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    cells = [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows[1:]]
    assert cells[0] == ["a", "review", "9 of 10", "0.5", "2.0 kB", "0.0"]
    assert [row[:2] for row in cells[2:]] == [
        ["c", "failed"],
        ["d", "wrong input"],
        ["e", "not run"],
        ["f", "internal error"],
    ]
    assert "<li><strong>c</strong>: c is wrong</li>" in html
    assert html.index("<strong>f</strong>: ") < html.index("<strong>c</strong>: ")  # the worst first


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "![x](http://x/y.png)", "<img src=x>", "a | b", "**b** `c` ~~d~~", "https://x.y www.x.y #1 @you", "&lt;"],
)
def test_names_are_no_markdown(text: str) -> None:
    table = render_markdown(FleetRecord(file="f", exit_code=1, jobs=[_job(text, 1, error=f"{text}\n# {text}")]))
    html = _rendered(table)
    assert set(re.findall(r"<(\w+)", html)) <= {"h3", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "strong"}
    said = " ".join(re.findall(r"<td>(.*?)</td>", html)[0].split())
    assert unescape(said) == " ".join(printable(text).split())


def test_the_table_is_bounded() -> None:
    record = FleetRecord(file="f", jobs=[_job("|" * 5000 + str(n), 1, error="*" * 9000) for n in range(3000)])
    text = render_markdown(record)
    assert len(text.encode()) < 1 << 20  # GitHub's limit
    assert text.count("2800 more in fleet.json") == 2


def _rendered(text: str) -> str:
    return str(MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"]).render(text))


def test_issues_of_azure() -> None:
    lines = list(job_issues(RECORD, [f"m/{job.model}" for job in RECORD.jobs]))
    assert lines[0] == "##vso[task.logissue type=error;sourcepath=m/m.onnx]dmlprep c: failed: c is wrong"
    assert len(lines) == 4
    hostile = FleetRecord(file="f", jobs=[_job("a]b", 1, error="100 %\n##vso[task.setvariable variable=x]y\x1b")])
    (line,) = job_issues(hostile, ["a;type=warning]\n##vso[x]"])
    assert line == (
        "##vso[task.logissue type=error;sourcepath=a%3Btype=warning%5D%0A#\\x23vso[x%5D]dmlprep a]b: failed: "
        "100 %AZP25%0A#\\x23vso[task.setvariable variable=x]y\\x1b"
    )
