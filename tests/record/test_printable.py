"""Names as text: nothing in them acts on a terminal or ends a line, and what is shown can be told apart."""

from __future__ import annotations

import io
import json
import sys
import tomllib
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.cli.streams import Guarded
from dmlprep.core.text.documents import to_json, toml_string
from dmlprep.portable.printable import LONGEST_LINE, apart, inert, json_safe, paragraph, printable, shortened
from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunRecord, Verdict
from tests.hostile_names import COMMAND, hidden, names, nothing_acts


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/layer.3/Add é 日本 😀", "/layer.3/Add é 日本 😀"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("\u202egnp.exe\u2028", "\\u202egnp.exe\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("caf\udce9", "caf\\xe9"),  # a byte of a path that is no UTF-8
        ("half \ud83d", "half \\ud83d"),
        ("C:\\new\\table", "C:\\new\\table"),
        ("", ""),
    ],
)
def test_what_does_not_print_is_escaped_and_the_rest_stays(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_every_character_that_is_not_seen_is_escaped() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = printable(every)
    assert not any(map(hidden, shown))
    letters = [c for c in every if unicodedata.category(c)[0] in "LMN" and unicodedata.category(c) != "Mn"]
    lost = {c for c in letters if printable(c) != c}
    assert lost <= set("\u115f\u1160\u3164\uffa0")  # Hangul fillers: blank letters


def test_further_lines_are_indented_and_none_looks_like_ours() -> None:
    assert paragraph("said:\nerror: x\r\ny") == "said:\n    error: x\n    y"
    assert apart("Error: x") == "    Error: x"
    assert apart("errors: x") == "errors: x"


def test_no_line_is_a_command_to_a_ci_machine() -> None:
    assert apart("n\n::set-output name=x::y") == "n\n\\x3a:set-output name=x::y"
    assert apart("a ##vso[b]c") == "a #\\x23vso[b]c"
    assert apart("##[error]") == "#\\x23[error]"
    assert apart("##TeamCity[x]") == "#\\x23TeamCity[x]"
    assert apart("std::move ai.onnx::Add a##b") == "std::move ai.onnx::Add a##b"
    assert inert("vso[x", "a ##") == "\\x76so[x"
    assert inert(":x", " :") == "\\x3ax"
    assert inert("[x", "##vso[ ##") == "\\x5bx"
    assert inert("::Add", "ai.onnx") == "::Add"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["#", "##", "[", "::", ":", "vso", "vso[", "v", "teamcity", " ", "a", "\n"]), max_size=8)
)
def test_no_line_in_pieces_is_a_command(pieces: list[str]) -> None:
    stream = io.StringIO()
    guard = Guarded(stream)
    for piece in pieces:
        guard.write(piece)
    assert COMMAND.findall(stream.getvalue()) == []
    whole = apart("".join(pieces))
    assert COMMAND.findall(whole) == []
    assert apart(whole) == whole


def test_a_json_document_in_a_log_is_no_command() -> None:
    document = to_json({"##vso[x]": "##[error]"})
    assert COMMAND.findall(document.decode()) == []
    assert json.loads(document) == {"##vso[x]": "##[error]"}


def test_long_names_and_lines_lose_their_middle() -> None:
    name = "/".join(f"layer{i}" for i in range(1000))
    text = shortened(f"node {name} is slow")
    assert len(text) < 700
    assert text.startswith("node layer0/layer1")
    assert text.endswith("layer999 is slow")
    assert "characters)..." in text
    assert len(shortened("word " * 10_000)) == LONGEST_LINE
    assert shortened("word " * 100) == "word " * 100


@settings(max_examples=300, deadline=None)
@given(names(surrogates=True))
def test_no_name_gets_through(name: str) -> None:
    assert "\n" not in printable(name)
    assert printable(printable(name)) == printable(name)
    nothing_acts(apart(paragraph(name)))
    document = to_json({name: [name, float("nan"), float("inf")]}).decode()
    nothing_acts(document)
    back = json.loads(document, parse_constant=pytest.fail)
    ((key, (value, nan, largest)),) = back.items()
    assert (nan, largest) == (None, sys.float_info.max)
    assert key == value
    if not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in name):
        assert key == name  # JSON's escapes: the data is the same
        assert tomllib.loads(f"x = {toml_string(name)}")["x"] == name
    nothing_acts(toml_string(name))


def test_json_is_escaped_in_its_strings_alone() -> None:
    assert json_safe('{\n "a": "\x7f\u202e\U000e0041é"\n}') == '{\n "a": "\\u007f\\u202e\\udb40\\udc41é"\n}'


def test_a_record_with_numbers_that_json_lacks_is_read_back() -> None:
    outputs = [OutputMetrics("o", False, max_abs=float("inf"), error=float("inf"))]
    record = RunRecord("prepare", "a\udcff.onnx")
    record.verdicts = [
        Verdict(Check("parity", "cpu"), "failed", "r\x1b", DeviceInfo("cpu"), outputs=outputs, predicted=float("nan"))
    ]
    back = RunRecord.from_json(record.to_json())
    assert back.input == "a\\xff.onnx"
    assert back.verdicts[0].reason == "r\x1b"
    assert back.verdicts[0].outputs[0].error == sys.float_info.max
