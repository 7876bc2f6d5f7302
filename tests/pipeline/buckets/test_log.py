"""Logs of sizes, and the command that reads them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.core.errors import InputError
from dmlprep.pipeline.buckets import read_log
from tests.fixtures_index import fixture
from tests.in_process import Run


def _log(folder: Path, text: str) -> Path:
    path = folder / "sizes.log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "height=480 width=640\n\n# noon\nwidth=640, height=480\nheight=32 width=32\n",
        '{"height": 480, "width": 640}\n{"width": 640, "height": 480}\n{"height": 32, "width": 32}',
        "height,width\r\n480,640\r\n480, 640\r\n32,32\r\n",
    ],
)
def test_three_forms_say_the_same(text: str, tmp_path: Path) -> None:
    found = read_log(_log(tmp_path, text))
    assert (found.names, found.counts, found.requests) == (("height", "width"), {(480, 640): 2, (32, 32): 1}, 3)


def test_named_dimensions_are_read_among_others(tmp_path: Path) -> None:
    text = "12:00 GET /up ms=12 height=480 width=640\n12:01 GET /up ms=9.5 height=32 width=32\n"
    found = read_log(_log(tmp_path, text), ["width", "height"])
    assert (found.names, found.counts) == (("width", "height"), {(640, 480): 1, (32, 32): 1})
    rows = read_log(_log(tmp_path, '{"height": 8, "user": "x"}\n'), ["height"])
    assert rows.counts == {(8,): 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it contains no sizes"),
        ("height=480\nwidth=2\n", ":2: the size of 'height' is missing"),
        ("height=480\nheight=2 width=2\n", ":2: 'width' is not a dimension of the lines above"),
        ("height=480 hello\n", "'hello' is not a size"),
        ("height=0\n", "'0' is not a size of 'height'"),
        ("height=-4\n", "'-4' is not a size of 'height'"),
        ("height=99999999999\n", "is not a size of 'height'"),
        ("height=4 height=5\n", "'height' has two sizes"),
        ('{"height": true}\n', "'True' is not a size of 'height'"),
        ('{"height": 4.5}\n', "'4.5' is not a size of 'height'"),
        ('{"height": \n', "not a JSON object"),
        ("{" * 3000, "not a JSON object"),
        ("a,a\n1,2\n", "neither a list of names"),
        ("a,b\n1\n", "1 cells, and the first one 2 names"),
        ("height=" + "1" * 5000, "more than 4096 characters"),
        (" ".join(f"d{n}=1" for n in range(9)), "9 dimensions are too many"),
    ],
)
def test_a_wrong_log_is_told_by_its_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        read_log(_log(tmp_path, text))
    assert says in str(told.value)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(InputError):
        assert read_log(path).requests > 0


def test_the_command_prints_options_for_prepare(tmp_path: Path, run: Run) -> None:
    log = _log(tmp_path, "height=480 width=640\nheight=500 width=640\nheight=1024 width=1024\n")
    choose = ("prepare", "--bucket-list", "--bucket-log", log)
    done = run(*choose, "--bucket-count", "2", "--bucket-multiple", "64")
    assert done.code == 0, done.err
    assert "3 requests of 3 sizes" in done.out
    assert "2 buckets: padding adds 1.7 % on average and 6.7 % at most; a better set might exist" in done.out
    options = done.out.splitlines()[-1].replace('"', "")  # a shell of Windows takes a comma as its own
    assert options == "--bucket height=512,width=640 --bucket height=1024,width=1024"
    assert run(*choose, "-q").out.count("--bucket ") == 2
    made = json.loads(run(*choose, "--bucket-waste", "1", "--format", "json").out)
    assert (made["dimensions"], made["cover"]["waste"], len(made["cover"]["buckets"])) == (["height", "width"], 1, 3)
    both = run(*choose, "--bucket-waste", "2", "--bucket-count", "2")
    assert (both.code, "remove one of the two" in both.err) == (2, True)
    assert run("prepare", "--bucket-list", "--bucket-log", tmp_path / "none.log").code == 2
    assert "--bucket-count needs --bucket-log" in run("prepare", "m.onnx", "--bucket-count", "2").err
    assert "--diff has no effect with --bucket-list" in run(*choose, "--diff", tmp_path).err
    assert run(*choose, "--format", "github").code == 2
    assert "--bucket has no effect with --bucket-log" in run(*choose, "--bucket", "height=2").err


def test_prepare_chooses_the_buckets_and_writes_them(tmp_path: Path, run: Run) -> None:
    log = _log(tmp_path, "batch=3\nbatch=4\nbatch=4\nbatch=9\n")
    prepare = ("prepare", fixture("residual_cnn").path, "--device", "cpu", "--bucket-log", log, "--bucket-count", "2")
    done = run(*prepare, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert done.out.startswith("4 requests of 3 sizes\n\nbucket")
    assert "this is optimal\n\nbucket batch4:" in done.out
    written = json.loads((tmp_path / "out/buckets.json").read_bytes())
    assert [one["sizes"] for one in written["buckets"]] == [{"batch": 4}, {"batch": 9}]
    records = json.loads(run(*prepare, "-o", tmp_path / "other", "--format", "json").out)
    assert [Path(one["output"]).name for one in records] == ["batch4.onnx", "batch9.onnx"]
