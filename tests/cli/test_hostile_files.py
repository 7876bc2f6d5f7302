"""A model with hostile names through the commands that write: both streams, and every file, are judged."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.record import Finding, RunError, RunRecord
from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.report.fleet_files import write_reports
from tests.hostile_names import COMMAND, NASTY, document_is_plain, hidden, nothing_acts
from tests.in_process import Done, Run
from tests.system import WINDOWS

_NAMES = (
    "n\n::set-output name=x::forged ##vso[task.setvariable variable=x]forged",
    "a ##[error]forged\x1b[2J\u202e\n# heading\n<img src=x onerror=alert(1)> [click](https://evil.example) `|`",
    "error: forged ${X} $(X) %41 ; & ' \" \\ ]]> --> ##teamcity[x]",
)

_XML = (".xml", ".targets", ".csproj", ".nuspec", ".psmdcp", ".rels")
_BINARY = (".onnx", ".npz", ".npy", ".data", ".sig")


def _model(path: Path, factor: float = 1.0) -> Path:
    """A small model with each of the names in turn; its free dimension begins with the first."""
    dim, x, y, b, add = (f"{_NAMES[number % 3]}{number}" for number in range(5))
    graph = helper.make_graph(
        [
            helper.make_node("Add", [x, b], [add], name=add, doc_string=x),
            helper.make_node("HardSwish", [add], [y], name=f"{_NAMES[0]} too"),
        ],
        x,
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [dim, 4])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [dim, 4])],
        [helper.make_tensor(b, TensorProto.FLOAT, [4], [factor * value for value in (1, 2, 3, 4)])],
        doc_string=y,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=y)
    helper.set_model_props(proto, {x: y})
    onnx.save(proto, str(path))
    return path


def _foreign(path: Path, label: str) -> Path:
    """A model with an operator and a domain of such names."""
    graph = helper.make_graph(
        [helper.make_node(label, ["x"], ["y"], domain=f"{label}d")],
        label,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(f"{label}d", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def _sound(done: Done, *codes: int) -> Done:
    assert done.code in (codes or (0,)), done.err
    for text in (done.out, done.err):
        nothing_acts(text)
        assert not [line for line in text.splitlines() if re.match(r"\s{0,3}error: forged", line)]
    return done


def _judge(folder: Path) -> int:
    """Judge every file below a folder; the number of texts."""
    texts = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".nupkg", ".zip"):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder / f"in {path.stem}")
            texts += _judge(folder / f"in {path.stem}")
        elif path.is_file() and path.suffix not in _BINARY and path.name != "printable.py":
            _judge_text(path.suffix, path.read_text(encoding="utf-8"))
            texts += 1
    return texts


def _judge_text(suffix: str, text: str) -> None:
    assert {c for c in text if hidden(c) and c not in "\n\t"} == set()
    assert COMMAND.findall(text) == []
    assert not re.findall("^error: forged", text, re.MULTILINE)
    if suffix == ".md":
        document_is_plain(text)
    elif suffix in (".json", ".sarif"):
        json.loads(text)
    elif suffix in _XML:
        ElementTree.fromstring(text.encode())
    elif suffix == ".toml":
        tomllib.loads(text)
    elif suffix == ".py":
        ast.parse(text)
    elif suffix == ".html":
        assert not re.search(r"<img|<a href|</script>\s*<script>alert", text)


@pytest.mark.parametrize("label", _NAMES)
def test_operators_of_such_names(label: str, run: Run, tmp_path: Path) -> None:
    model = _foreign(tmp_path / "f.onnx", label)
    for form in ("text", "json", "sarif", "github"):
        _sound(run("check", model, "--format", form), 0, 1)
    _sound(run("prepare", model, "-o", tmp_path / "none", "--device", "cpu"), 1, 3)


@pytest.mark.slow
def test_every_command_and_every_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, other = _model(tmp_path / "m.onnx"), _model(tmp_path / "o.onnx", 1.5)
    pin = f"{_NAMES[0]}0=2"
    for form in ("text", "json", "sarif", "github"):
        _sound(run("check", model, "--format", form))
    _sound(run("check", "--plan", model))
    _sound(run("check", "--node", f"{_NAMES[1]}4", model))
    out = ("--device", "cpu", "--pin", pin, "--set", "parity.seeds=1")
    _sound(run("prepare", model, "-o", "out", *out, "--depfile", "out.d"))
    _sound(run("prepare", model, "-o", "built", *out, "--format", "msbuild"))
    for form in ("text", "json", "github"):
        _sound(run("report", "out/run.json", "--format", form))
    _sound(run("report", "out/run.json", "--html", "out/run.html"))
    _sound(run("compare", model, other, "--size", pin), 1)
    _sound(run("bisect", model, other, "-o", "found", "--size", pin), 1)
    for language in ("cpp", "csharp", "node", "python"):
        _sound(run("package", "out", "-o", language, "--for", language, "--unproven"))
        _sound(run("package", "verify", language))
    _sound(run("package", "nupkg", "cpp", "-o", ".", "--id", "A.B", "--version", "1.0", "--authors", "A & ##[x]"))
    _sound(run("kit", "pack", "out/model.onnx", "-o", "kit.zip"))
    for build in ("cmake", "msbuild", "hatch", "github"):
        _sound(run("init", "m.onnx", "--yes", "--force", "--for", build))
    assert _judge(tmp_path) > 60


@pytest.mark.parametrize("label", NASTY)
def test_reports_of_a_fleet(label: str, tmp_path: Path) -> None:
    said = {"error": label, "summary": label, "recipe": label, "target": label, "size": label, "devices": [label]}
    jobs = [
        JobRecord(**{"name": f"{label}{code}", "model": label, "exit_code": code, **said}) for code in (0, 1, 2, 70)
    ]
    record = RunRecord("check", label, findings=[Finding("DP201", "error", label, label)], error=RunError(label))
    write_reports(tmp_path, FleetRecord(file=label, jobs=jobs, exit_code=1), [record])
    assert _judge(tmp_path) == 5


@pytest.mark.skipif(WINDOWS, reason="Windows has no such name of a file")
@pytest.mark.parametrize("label", _NAMES)
def test_a_path_in_an_error(label: str, run: Run, tmp_path: Path) -> None:
    for words in ("check", "check --plan", "report", "check --node x", "kit pack -o k.zip"):
        done = _sound(run(*words.split(), tmp_path / f"{label.replace('/', '')}.onnx"), 2)
        assert done.err.count("error: ") >= 1
