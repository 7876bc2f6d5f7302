"""The commands check and explain: exit code, stdout and stderr."""

from __future__ import annotations

import json
from pathlib import Path

import click
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

from dmlprep.cli.check import command as check
from dmlprep.cli.explain import command as explain
from dmlprep.core.errors import InputError, UsageError
from dmlprep.directml.quirks import codes
from dmlprep.directml.targets import target_names
from dmlprep.report import placement_json
from dmlprep.report.pages import page
from tests.directml.placement.graphs import parsed
from tests.directml.placement.test_report import ALLOWZERO, CONV
from tests.fixtures_index import fixture
from tests.in_process import Run


def _save(folder: Path, text: str, opset: int) -> str:
    path = folder / "model.onnx"
    onnx.save(ir.to_proto(parsed(text, opset).ir), path)
    return str(path)


def _run(command: object, *arguments: str) -> Result:
    # Commands return their exit code; main() turns it into the process's.
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)  # type: ignore[arg-type]


def test_check_of_a_good_model_exits_0(tmp_path: Path) -> None:
    result = _run(check, _save(tmp_path, CONV, 17))
    assert result.return_value == 0
    assert result.stdout.splitlines()[0].endswith("model.onnx: 1 of 1 node on DirectML (ort-1.30), 1 fused graph")
    assert "on DirectML: 1 of 1 nodes (100 %)" in _run(check, str(tmp_path / "model.onnx"), "-v").stdout
    assert result.stderr == ""


def test_check_says_what_needs_the_user_in_three_lines(run: Run) -> None:
    """The verdict, the commands that help, and the target: everything else is with ``-v``."""
    gelu = run("check", fixture("opset22_cnn").path).out.splitlines()
    assert [line.split()[0] for line in gelu[1:]] == ["save", "dmlprep", "save", "dmlprep", "target"]
    assert "5 of 5 compute nodes" in gelu[1]
    assert "DP501" in run("check", fixture("opset22_cnn").path, "-v").out
    stays = run("check", fixture("detector_nms").path).out.splitlines()
    assert [line.split()[0] for line in stays[1:]] == ["save", "dmlprep", "save", "dmlprep", "warning", "target"]
    assert stays[5].startswith("warning DP502 ")
    assert "; fix: dmlprep prepare does not bring it to DirectML" in stays[5]


def test_errors_come_before_what_helps(run: Run, tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(5)]
    zeros = " ".join(f"s{n} = Reshape <allowzero = 1> (x, shape) {n} = Relu (s{n})" for n in names)
    outputs = ", ".join(f"float[3,n] {n}" for n in names)
    text = f"g (float[3,n] x) => ({outputs}) <int64[2] shape = {{3, -1}}> {{ {zeros} }}"
    shown = run("check", _save(tmp_path, text, 17)).out.splitlines()
    assert shown[1].startswith("error DP601 ")
    assert "and 2 more: allowzero=1" in shown[1]
    assert "; fix: run the fix-quirks pass" in shown[1]
    assert [line.split()[0] for line in shown[2:]] == ["save", "dmlprep", "target"]


def test_several_models_share_the_last_line(run: Run) -> None:
    shown = run("check", fixture("residual_cnn").path, fixture("detector_raw").path).out.splitlines()
    assert [line.startswith("target ") for line in shown] == [False] * (len(shown) - 1) + [True]
    assert sum(".onnx: " in line for line in shown) == 2


def test_colours_are_for_terminals_and_for_those_who_force_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fixture("detector_raw").path
    plain = run("check", model).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("check", model).out == plain  # NO_COLOR, which ``run`` sets, is stronger
    monkeypatch.delenv("NO_COLOR")
    coloured = run("check", model).out
    assert coloured.startswith(f"\x1b[32m\x1b[1m{model}\x1b[0m: ")  # green
    assert click.unstyle(coloured) == plain
    assert run("check", "missing.onnx").err.startswith("\x1b[31m\x1b[1merror: \x1b[0m")
    monkeypatch.delenv("FORCE_COLOR")
    assert run("check", model).out == plain


def test_json_of_many_targets_stays_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { a = Relu (x)  b = Neg (a)  y = Abs (b) }"
    targets = len(target_names())
    monkeypatch.setattr(placement_json, "NODES", 2 * targets)
    done = _run(check, _save(tmp_path, text, 17), "--target", "all", "--format", "json")
    found = json.loads(done.stdout)["targets"]
    assert [(len(t["nodes"]), t["nodes_left_out"]) for t in found] == [(2, 1)] * targets


def test_fail_on_cpu_exits_1_and_names_the_node(tmp_path: Path) -> None:
    path = _save(tmp_path, CONV, 22)
    assert _run(check, path).return_value == 0
    for options in [], ["-q"], ["-v"], ["--format", "json"], ["--target", "all"]:
        failed = _run(check, path, "--fail-on-cpu", *options)
        assert failed.return_value == 1
        in_text = options[:1] in ([], ["-q"], ["-v"])  # the verdict, once
        assert ("first c" in failed.stdout.partition("\n")[0], "first c" in failed.stderr) == (in_text, not in_text)


def test_fail_on_cpu_lets_shape_arithmetic_be(tmp_path: Path) -> None:
    text = "g (float[n] x) => (int64[2] y) <int64[1] k = {3}> { s = Shape (x)  y = Concat <axis = 0> (s, k) }"
    assert _run(check, _save(tmp_path, text, 17), "--fail-on-cpu").return_value == 0


def test_fail_on_cpu_sees_the_gelu_trap(tmp_path: Path) -> None:
    text = (
        "g (float[2,4] x) => (float[2,4] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}> "
        "{ d = Div (x, r)  e = Erf (d)  a = Add (e, one)  m = Mul (x, a)  y = Mul (m, half) }"
    )
    assert _run(check, _save(tmp_path, text, 20), "--fail-on-cpu").return_value == 1


def test_a_quirk_exits_1(tmp_path: Path) -> None:
    result = _run(check, _save(tmp_path, ALLOWZERO, 17))
    assert result.return_value == 1
    assert "error DP601 r: allowzero=1 with shape [3, -1]" in result.stdout


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_stdout_holds_the_document_and_nothing_else(tmp_path: Path, form: str) -> None:
    result = _run(check, _save(tmp_path, CONV, 22), "--format", form, "--fail-on-cpu")
    assert result.return_value == 1
    assert json.loads(result.stdout)


def test_several_models_are_each_checked(tmp_path: Path) -> None:
    good, bad = _save(tmp_path, CONV, 17), tmp_path / "bad.onnx"
    bad.write_text("no model")
    result = _run(check, good, str(bad), good, "--format", "json")
    assert result.return_value == 2
    assert "bad.onnx: the file is not an ONNX model" in result.stderr
    assert [m["model"] for m in json.loads(result.stdout)["models"]] == [good, good]


def test_all_targets(tmp_path: Path) -> None:
    result = _run(check, _save(tmp_path, CONV, 17), "--target", "all")
    assert result.return_value == 0
    assert result.stdout.splitlines()[-1] == "all compute runs on DirectML from ort-1.15 on"


def test_check_never_edits(tmp_path: Path) -> None:
    path = Path(_save(tmp_path, ALLOWZERO, 17))
    before = path.read_bytes()
    _run(check, str(path))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["missing.onnx"], InputError),
        (["MODEL", "--target", "ort-9"], UsageError),
        (["MODEL", "--target", "winml-11", "--fail-on-cpu"], UsageError),
        (["MODEL", "--target", "all", "--verify"], UsageError),
    ],
)
def test_bad_arguments_are_errors(tmp_path: Path, arguments: list[str], error: type[Exception]) -> None:
    path = _save(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu (x) }", 11)
    result = _run(check, *[path if a == "MODEL" else a for a in arguments])
    assert isinstance(result.exception, error)


def test_a_release_of_opset_only(tmp_path: Path) -> None:
    path = tmp_path / "old.onnx"
    model = parsed("g (float[2] x) => (float[2] y) { y = Relu (x) }", 11)
    model.ir.ir_version = 6
    onnx.save(ir.to_proto(model.ir), path)
    first = _run(check, str(path), "--target", "winml-11").stdout.splitlines()[0]
    assert first == f"{path}: winml-11 loads the model; its kernels are unknown"
    result = _run(check, str(path), "--target", "winml-11", "-v")
    assert result.return_value == 0
    assert "Windows 11" in result.stdout


def test_explain_releases() -> None:
    assert "ort-1.24" in _run(explain, "targets").stdout
    listed = {one["name"]: one for one in json.loads(_run(explain, "targets", "--format", "json").stdout)}
    assert listed["ort-1.30"]["package"] == "onnxruntime-windowsml"
    assert listed["windowsml-2.5"]["carries"] == "ort-1.28"
    assert "latest is ort-1.30, the newest release of ONNX Runtime with DirectML" in _run(explain, "targets").stdout
    shown = _run(explain, "latest", "--op", "Conv").stdout
    assert "  Conv: 1, 11\n" in shown
    assert "DirectML kernels: 2 versions of 1 operator;" in shown
    assert "sources:" in shown
    assert json.loads(_run(explain, "winml-11", "--format", "json").stdout)["opset_only"] is True


def test_explain_the_difference_of_releases() -> None:
    lines = _run(explain, "ort-1.20", "1.21").stdout.splitlines()
    assert "kernels added: 9" in lines
    assert any("Pad-21" in line for line in lines)
    assert max(map(len, lines)) < 200
    assert _run(explain, "1.24", "ort-1.24").stdout == "no differences\n"


def test_explain_a_code_or_a_step() -> None:
    assert _run(explain, "dp501").stdout.startswith("# DP501")
    assert _run(explain, "501").stdout == _run(explain, "DP501").stdout
    for name in json.loads(_run(explain, "passes", "--format", "json").stdout):
        assert _run(explain, name).stdout.startswith(f"# {name}: ")
    listed = _run(explain, "codes", "-q").stdout.split()
    assert listed == sorted(codes())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["DP999"], "unknown code 'DP999'"),
        (["fp61"], "did you mean 'fp16'?"),
        (["vision-fp16"], "did you mean '@vision-fp16'"),
        (["xyz"], "write a code (DP501)"),
        (["latest", "--op", "Convv"], "did you mean 'Conv'"),
        (["fp16", "--op", "Conv"], "'fp16' is not a release"),
        (["latest", "ort-9"], "unknown target 'ort-9'"),
        (["latest", "1.24", "--op", "Conv"], "needs a single release"),
        (["latest", "--force"], "--force needs --out"),
    ],
)
def test_what_cannot_be_explained(arguments: list[str], says: str) -> None:
    result = _run(explain, *arguments)
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)


def test_every_code_of_placement_has_a_page() -> None:
    wrong = []
    for code in (code for code in codes() if code.startswith(("DP5", "DP6"))):
        text = page(code)
        if not text.startswith(f"# {code}: {codes()[code].title}\n"):
            wrong.append(f"{code}: its title")
        for section in ("## What\n", "## Why\n", "## How to fix\n", "## Source\n"):
            if not text.split(section)[1].split("\n## ")[0].strip():
                wrong.append(f"{code}: {section.strip()} is empty")
    assert wrong == []


def test_explain_a_node(tmp_path: Path) -> None:
    path = _save(tmp_path, CONV, 22)
    text = _run(check, "--node", "c", path).stdout
    assert "DirectML has 1, 11; the node has version 22" in text
    assert "-> the CPU: DP501" in text
    good = _run(check, "--node", "c", _save(tmp_path, CONV, 17)).stdout
    assert "-> DirectML: DP500" in good
    assert "in fused partition 0" in good
    missing = _run(check, "--node", "cc", path)
    assert isinstance(missing.exception, UsageError)
    assert "close: c" in missing.exception.fix


def test_the_advice_for_a_node_is_that_of_check(tmp_path: Path) -> None:
    path = _save(tmp_path, CONV, 22)
    [advice] = [one.strip() for one in _run(check, path, "-v").stdout.splitlines() if "brings it to DirectML" in one]
    assert f"   fix: {advice}" in _run(check, "--node", "c", path).stdout.splitlines()
    path = str(fixture("detector_nms").path)
    [found] = [f for f in json.loads(_run(check, path, "--format", "json").stdout)["findings"] if f["code"] == "DP502"]
    assert f"   fix: {found['remedy']}" in _run(check, "--node", found["node"], path).stdout.splitlines()


@pytest.mark.parametrize(
    "more", [["--verify"], ["--vram", "4GB"], ["--target", "all"], ["--format", "sarif"], ["other.onnx"]]
)
def test_what_does_not_fit_a_node(more: list[str], tmp_path: Path) -> None:
    result = _run(check, _save(tmp_path, CONV, 22), "--node", "c", *more)
    assert isinstance(result.exception, UsageError)
    assert "--node" in str(result.exception)
