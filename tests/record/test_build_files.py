"""Names in HTML, XML and the files of build systems: each system's own parser reads the same name back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from dmlprep.core.text.build_files import cmake_argument, msbuild_text, yaml_string
from dmlprep.core.text.markup import html_text, xml_text, xml_value
from dmlprep.portable.printable import printable, shortened
from tests.hostile_names import COMMAND, NASTY, hidden, names, nothing_acts

_MORE = (
    "plain",
    "a-b_c.d/e",
    "batch=1",
    "a\\b",
    "\\",
    "@V@",
    "${V}",
    "$ENV{HOME}",
    "a b",
    "#c",
    "(",
    'q"',
    "",
    "a\\;b",
)


@settings(max_examples=100, deadline=None)
@given(names(surrogates=True))
def test_html_and_xml_read_back(name: str) -> None:
    for written in (html_text(name), xml_text(name), xml_value(name)):
        assert COMMAND.findall(f"<b>{written}</b>") == []
        assert not any(map(hidden, written))
        assert not set(written) & set("<>\"'")
    lines = [shortened(printable(line)) for line in name.split("\n")]
    assert unescape(html_text(name)) == "\n".join(lines)
    for written, read in ((xml_text(name), printable(name)), (xml_value(name), _in_xml(name))):
        element = ElementTree.fromstring(f'<a b="{written}">{written}</a>')
        assert element.attrib["b"] == read
        assert element.text == (read or None)


def _in_xml(name: str) -> str:
    return "".join(
        c if re.match("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", c) else printable(c) for c in name
    )


@settings(max_examples=100, deadline=None)
@given(names())
def test_msbuild_unescapes_the_same_name(name: str) -> None:
    read = ElementTree.fromstring(f'<a b="{msbuild_text(name)}" />').attrib["b"]
    assert not set(read) & set("$@;?*()'")
    assert re.findall("%(?![0-9A-F]{2})", read) == []
    assert re.sub("%([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), read) == _in_xml(name)


@settings(max_examples=100, deadline=None)
@given(names(surrogates=True))
def test_yaml_is_a_scalar_of_one_line(name: str) -> None:
    written = yaml_string(name)
    nothing_acts(written)
    if written.startswith('"'):
        assert not any(map(hidden, written))
        plain = re.sub(r"\\U([0-9a-f]{8})", lambda found: json.dumps(chr(int(found[1], 16)))[1:-1], written)
        if not re.search("[\0\ud800-\udfff]", name):
            assert json.loads(plain) == name
    else:
        assert re.fullmatch("[A-Za-z_.][A-Za-z0-9_./-]*", written)
    assert yaml_string("no") == '"no"'


@pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
def test_cmake_reads_the_same_arguments(tmp_path: Path) -> None:
    lines = ["cmake_minimum_required(VERSION 3.20)", "set(V owned)", "function(show)"]
    lines += ["cmake_parse_arguments(PARSE_ARGV 0 arg METRIC MODEL PINS)", "foreach(pin IN LISTS arg_PINS)"]
    lines += ['list(APPEND all --pin "${pin}")', "endforeach()", "foreach(one IN LISTS all)"]
    lines += ['file(APPEND "${CMAKE_CURRENT_LIST_DIR}/read" "${one}\\n")', "endforeach()"]
    lines += ['file(APPEND "${CMAKE_CURRENT_LIST_DIR}/read" "${arg_MODEL}${arg_METRIC}\\n")', "endfunction()"]
    expected = []
    for name in (*NASTY, *_MORE):
        try:
            word, pin = cmake_argument(name), cmake_argument(f"{name}=1")
        except ValueError:
            assert printable(name) != name or re.search(r"[;\[\]]|\\$|##|(?<!\S)::", name), name
            continue
        lines.append(f"show(MODEL {word} PINS {pin} a=2)")
        expected += ["--pin", f"{name}=1", "--pin", "a=2", f"{name}FALSE"]
    assert len(expected) > 60
    (tmp_path / "a.cmake").write_text("\n".join(lines), encoding="utf-8")
    subprocess.run(["cmake", "-P", str(tmp_path / "a.cmake")], check=True, timeout=60)
    assert (tmp_path / "read").read_text(encoding="utf-8").split("\n") == [*expected, ""]
