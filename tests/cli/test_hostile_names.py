"""Names that would act on a terminal, through the commands: no control character leaves, and no line is forged."""

from __future__ import annotations

import io
import json
import re
import sys
import warnings
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dmlprep.cli.streams import Guarded, guarded
from dmlprep.record import RunRecord
from dmlprep.report.console import PlainConsole
from dmlprep.report.text import show_record
from tests.genai.folders import config, write_folder
from tests.hostile_names import NASTY, hidden, names, nothing_acts
from tests.in_process import Done, Run
from tests.sarif import SARIF
from tests.system import WINDOWS, not_on_windows

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_model_names = names().filter(lambda name: name.strip("\0") != "")
_few = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _model(path: Path, labels: list[str]) -> Path:
    """A small model whose every name is one of ``labels``, made to differ."""
    x, y, b, add, dim, graph = (f"{label}{number}" for number, label in enumerate(labels))
    helper_graph = helper.make_graph(
        [
            helper.make_node("Add", [x, b], [add], name=add),
            helper.make_node("HardSwish", [add], [y], name=f"{add} too"),
        ],
        graph,
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [dim, 4])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [dim, 4])],
        [helper.make_tensor(b, TensorProto.FLOAT, [4], [1, 2, 3, 4])],
        doc_string=labels[0],
    )
    proto = helper.make_model(helper_graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.producer_name = labels[0]
    onnx.save(proto, str(path))
    return path


def _sound(done: Done) -> Done:
    assert done.code in (0, 1, 2, 3), done.err
    nothing_acts(done.out)
    nothing_acts(done.err)
    assert len([line for line in done.err.splitlines() if line.startswith("error: ")]) <= 1
    assert not [line for line in done.out.splitlines() if line.casefold().startswith("error:")]
    return done


@pytest.mark.slow
@_few
@given(labels=st.lists(_model_names, min_size=6, max_size=6))
def test_of_a_model(labels: list[str], run: Run, tmp_path: Path) -> None:
    model = _model(tmp_path / "m.onnx", labels)
    _sound(run("check", model))
    _sound(run("check", "--plan", model, "--recipe", "@vision-fp16"))
    _sound(run("check", "--node", f"{labels[3]}3", model))
    assert json.loads(_sound(run("check", model, "--format", "json")).out)["format"] == 1
    jsonschema.validate(json.loads(_sound(run("check", model, "--format", "sarif")).out), SARIF)
    lines = _sound(run("check", model, "--format", "github")).out.splitlines()
    assert [line for line in lines if not re.match(r"::(error|warning|notice) file=", line)] == []


@_few
@given(labels=st.lists(names(), min_size=5, max_size=5))
def test_of_a_folder_of_a_language_model(labels: list[str], run: Run, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    made = config()
    decoder = made["model"]["decoder"]
    decoder["session_options"]["provider_options"] = [{labels[0]: {labels[1]: labels[2]}}]
    decoder["inputs"][labels[3]] = labels[4]
    made["model"] |= {labels[0]: 1, "type": labels[1]}
    (folder / "genai_config.json").write_text(json.dumps(made), encoding="utf-8")
    for form in ("text", "json", "sarif", "github"):
        _sound(run("genai", "check", folder, "--format", form))
    _sound(run("genai", "prepare", folder, "-o", tmp_path / "out", "--no-proof"))


@pytest.mark.parametrize("label", ["\x1b]0;t\x07\u202e", "a\nerror: all is lost"])
def test_of_a_model_that_is_prepared(label: str, run: Run, tmp_path: Path) -> None:
    model = _model(tmp_path / "m.onnx", [label] * 6)
    out = tmp_path / "out"
    done = _sound(run("prepare", model, "-o", out, "--device", "cpu", "--pin", f"{label}4=2"))
    assert done.code == 0, done.err
    for form in ("text", "json"):
        _sound(run("report", out / "run.json", "--format", form))
    _sound(run("report", out / "run.json", "--html", out / "run.html"))
    assert not [c for c in (out / "run.html").read_text(encoding="utf-8") if hidden(c) and c != "\n"]
    assert json.loads((out / "run.json").read_bytes())["verdicts"][0]["outputs"][0]["output"] == f"{label}1"


@not_on_windows("Windows takes none of these names for a file")
@_few
@given(
    name=names(surrogates=True).map(lambda n: n.replace("/", "").replace("\0", "")[:80]).filter(lambda n: n.strip("."))
)
def test_of_a_path(name: str, run: Run, tmp_path: Path) -> None:
    try:
        path = _model(tmp_path / f"{name.encode('utf-8', 'surrogateescape').decode('utf-8', 'ignore')}.onnx", ["x"] * 6)
    except (OSError, UnicodeEncodeError):  # half a character: no file has such a name
        return
    _sound(run("check", path))
    log = json.loads(_sound(run("check", path, "--format", "sarif")).out)
    jsonschema.validate(log, SARIF)
    if log["runs"]:
        uri = log["runs"][0]["artifacts"][0]["location"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*", uri)
        assert unquote(uri.removeprefix("file://")) == str(path)
    try:
        name.encode(sys.getfilesystemencoding(), "surrogateescape")
    except UnicodeEncodeError:
        return
    for arguments in (
        ("check", f"{name}.none"),
        ("report", name),
        ("explain", f"@{name}"),
        ("explain", f"{name}.toml"),
        ("explain", name),
        (name,),
    ):
        _sound(run(*arguments))
    _sound(run("prepare", path, "-o", tmp_path / "out", "--pin", f"{name}=2", "--set", name, "--device", "cpu"))


_record = st.fixed_dictionaries(
    {
        "command": st.sampled_from(["prepare", "check"]),
        "input": names(surrogates=True),
        "output": names(surrogates=True),
        "target": names(),
        "recipe": names(),
        "error": st.fixed_dictionaries({"what": names(), "where": names(), "fix": names(), "code": names()}),
        "exit_code": st.sampled_from([0, 1]),
        "steps": st.lists(
            st.fixed_dictionaries(
                {
                    "step": names(),
                    "outcome": st.just("changed"),
                    "seconds": st.just(1.0),
                    "nodes_before": st.just(1),
                    "nodes_after": st.just(2),
                    "bytes_before": st.just(1),
                    "bytes_after": st.just(2),
                    "options": st.dictionaries(names(), names(), max_size=2),
                }
            ),
            max_size=2,
        ),
        "findings": st.lists(
            st.fixed_dictionaries(
                {
                    "code": st.just("DP201"),
                    "severity": st.sampled_from(["error", "note"]),
                    "message": names(),
                    "node": names(),
                    "facts": st.dictionaries(names(), names(), max_size=1),
                    "remedy": names(),
                }
            ),
            max_size=2,
        ),
        "verdicts": st.lists(
            st.fixed_dictionaries(
                {
                    "check": st.fixed_dictionaries(
                        {"measure": st.just("part"), "model": names(), "part": names(), "adapter": names()}
                    ),
                    "outcome": st.just("failed"),
                    "reason": names().filter(bool),
                    "device": st.fixed_dictionaries({"name": names(), "details": st.lists(names(), max_size=2)}),
                    "tolerance": names(),
                    "outputs": st.lists(
                        st.fixed_dictionaries({"output": names(), "passed": st.just(False), "note": names()}),
                        max_size=1,
                    ),
                }
            ),
            max_size=2,
        ),
    }
)


# Not made smaller where it fails: that takes minutes.
@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(data=_record)
def test_of_a_record(data: dict[str, object]) -> None:
    import msgspec

    from dmlprep import api

    record = msgspec.convert(data, RunRecord)
    nothing_acts(api.render_record(record, "text"))
    page = api.render_record(record, "html")
    assert not [c for c in page if hidden(c) and c != "\n"]  # where a line ends means nothing there
    assert (page.count("<script"), page.count("</script")) == (2, 2)  # the nodes as JSON, and the page's own
    bare = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    text = (
        "html|head|meta|title|body|main|header|section|h1|h2|h3|h4|p|dl|dt|dd|div|span|b|br|em|code|pre|small|ul|ol|li"
    )
    more = "table|thead|tbody|tr|th|td|details|summary|button|input|canvas|svg|rect|path|text"
    known = rf"</?(!doctype|{text}|{more})\b"
    for tag in re.findall(r"<[^>]*>", bare):
        assert re.match(known, tag), tag
        assert "onmouseover" not in tag
    raw = api.render_record(record, "json")
    nothing_acts(raw)
    log = api.render_record(record, "sarif")
    nothing_acts(log)
    jsonschema.validate(json.loads(log), SARIF)
    annotations = api.render_record(record, "github")
    nothing_acts(annotations)
    assert [line for line in annotations.splitlines() if not re.match(r"::(error|warning|notice) file=", line)] == []
    built = api.render_record(record, "msbuild")
    nothing_acts(built)
    assert len(built.splitlines()) <= len(record.findings) + 1
    assert "](" not in "".join(result["message"]["text"] for result in json.loads(log)["runs"][0]["results"])
    RunRecord.from_json(raw)

    shown = io.StringIO()
    show_record(record, PlainConsole(file=shown, force_terminal=True, color_system="standard", width=200))
    nothing_acts(_COLOURS.sub("", shown.getvalue()))
    assert set(_COLOURS.findall(shown.getvalue())) & {"\x1b[35;7m", "\x1b[27m"} == set()


def test_what_others_print_is_guarded(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with guarded():
        assert isinstance(sys.stderr, Guarded)
        for name in NASTY:
            sys.stderr.write(warnings.formatwarning(name, UserWarning, "f.py", 1))
            print(name)
            print(name, file=sys.stderr)
        sys.stderr.write("err")
        sys.stderr.write("or: in two pieces\n")
        with pytest.raises(TypeError):
            sys.stderr.write(b"bytes")  # type: ignore[call-overload]
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    nothing_acts(out)
    nothing_acts(err)
    assert not [line for line in (out + err).splitlines() if line.casefold().startswith("error:")]


def test_a_guard_that_outlives_its_stream_goes_in_silence() -> None:
    """Python flushes what it disposes of; 3.13 tells what that raises."""
    stream = io.StringIO()
    guard = Guarded(stream)
    stream.close()
    guard.flush()


def test_a_stream_that_was_closed_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with guarded():
        print("gone")


def test_click_quotes_what_it_does_not_take(run: Run) -> None:
    for arguments in (("--no\nerror: forged\x1b[2J",), ("check", "--no\x1b[2J\nerror: forged"), ("check\x1b", "x")):
        done = _sound(run(*arguments))
        assert done.code == 2
        assert "\\x1b" in done.err


@pytest.mark.skipif(WINDOWS, reason="Windows takes no such name for a file")
def test_a_depfile_holds_no_name_that_would_be_a_rule(run: Run, tmp_path: Path) -> None:
    path = _model(tmp_path / "a\nall: ; touch owned\n.onnx", ["x"] * 6)
    depfile = tmp_path / "m.d"
    done = _sound(
        run("prepare", path, "-o", tmp_path / "out", "--pin", "x4=2", "--device", "cpu", "--depfile", depfile)
    )
    assert done.code == 2
    assert "a file name contains control characters" in done.err
    assert not depfile.exists()
