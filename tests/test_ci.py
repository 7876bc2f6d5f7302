"""The stages of CI: what they print, and how they end; and which tests a change asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import fast
from tests.cli.buildsys.tools import ROOT, load_script

ci = load_script("ci")

_REPORT = '<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1"/></testsuites>'


def _stage(name: str, *commands: str, **more: object) -> object:
    return ci.Stage(name, commands, shares=1, **({"counts": False} | more))


def _run(*stages: object) -> tuple[dict[str, object], str]:
    printed: list[str] = []
    results = ci.run_all(stages, printed.append)
    return {one.stage: one for one in results}, "\n".join(printed)


@pytest.mark.skipif(sys.platform == "win32", reason="the stages are lines of a POSIX shell")
def test_stages_pass_fail_or_do_not_run() -> None:
    results, printed = _run(
        _stage("good", "echo fine", "test -d {scratch}"),
        _stage("bad", "echo wrong; exit 3", "echo never"),
        _stage("missing", "true", needs=((9, "echo first; echo error: no network; false"),)),
        _stage("late", "true", needs=((0.2, "sleep 9"),)),
        _stage("unasked", "true", switch=("DMLPREP_NO_SUCH_SWITCH", "it is long")),
    )
    verdicts = {name: (one.verdict, one.reason) for name, one in results.items()}
    assert verdicts == {
        "good": ("passed", ""),
        "bad": ("failed", ""),
        "missing": ("NOT RUN", "error: no network"),
        "late": ("NOT RUN", "exit code 124"),
        "unasked": ("NOT RUN", "it is long; DMLPREP_NO_SUCH_SWITCH=1 runs it"),
    }
    assert "fine" in printed
    assert "never" not in printed


@pytest.mark.skipif(sys.platform == "win32", reason="the stages are lines of a POSIX shell")
def test_a_stage_waits_for_the_one_that_it_needs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    results, _ = _run(
        _stage("first", f"sleep 0.3; touch {made}"),
        _stage("second", f"test -e {made}", after="first"),
        _stage("broken", "true", needs=((9, "echo error: no mirror; false"),)),
        _stage("late", "true", after="broken"),
    )
    assert results["second"].verdict == "passed"
    assert (results["late"].verdict, results["late"].reason) == ("NOT RUN", "broken: error: no mirror")


@pytest.mark.skipif(sys.platform == "win32", reason="the stages are lines of a POSIX shell")
def test_a_stage_of_tests_needs_a_report_with_tests() -> None:
    results, _ = _run(
        _stage("counted", f"echo '{_REPORT}' > {{report}}", counts=True),
        _stage("empty", 'echo \'<testsuite tests="2" skipped="2"/>\' > {report}', counts=True),
        _stage("silent", "true", counts=True),
    )
    assert (results["counted"].verdict, results["counted"].counts) == ("passed", (2, 2, 1))
    assert (results["empty"].verdict, results["empty"].reason) == ("failed", "no test ran")
    assert (results["silent"].verdict, results["silent"].reason) == ("failed", "no test ran")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ({"suite": "passed"}, 0),
        ({"suite": "passed", "tutorial": "NOT RUN"}, 0),
        ({"suite": "passed", "windows": "NOT RUN"}, 3),
        ({"suite": "failed", "windows": "NOT RUN"}, 1),
    ],
)
def test_only_an_expected_stage_may_be_left_out(verdicts: dict[str, str], code: int) -> None:
    results = [ci.Result(stage, verdict) for stage, verdict in verdicts.items()]
    assert ci.exit_code(results, {"tutorial": "gigabytes"}) == code


def test_stages_are_chosen_by_their_names() -> None:
    assert ci.chosen([]) == list(ci.STAGES)
    assert [stage.name for stage in ci.chosen(["site", "lint"])] == ["lint", "site"]
    assert [stage.name for stage in ci.chosen(["windows"])] == ["runtime", "windows"]
    with pytest.raises(ValueError, match="unknown stage lnit"):
        ci.chosen(["lnit"])
    with pytest.raises(SystemExit) as ended:
        ci.main(["lnit"])
    assert ended.value.code == 2


def test_stages_that_may_be_left_out_exist() -> None:
    names = {stage.name for stage in ci.STAGES}
    assert set(ci.expected_not_run()) <= names
    assert len(names) == len(ci.STAGES)


def test_ci_runs_the_second_command_of_the_readme() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    install, tests = commands[1].rsplit(" && ", 1)
    assert install in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    (suite,) = (stage for stage in ci.STAGES if stage.name == "suite")
    assert suite.commands[0].startswith(tests.replace(".venv/bin/python", "{python}"))


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("dmlprep/passes/pin/sizes.py", "tests/passes/pin"),
        ("dmlprep/passes/fp16.py", "tests/passes"),
        ("dmlprep/portable/measure.py", "tests/kit"),
        ("tests/kit/test_verify.py", "tests/kit/test_verify.py"),
        ("docs/start.md", "tests/test_docs.py"),
    ],
)
def test_a_change_asks_for_the_tests_of_its_room(path: str, asked: str) -> None:
    names = fast.chosen([path])
    assert asked in names
    assert set(fast.ALWAYS) <= set(names)
    assert all((ROOT / name).exists() for name in names)


def test_every_room_has_tests() -> None:
    rooms = {path.parent.name for path in (ROOT / "dmlprep").glob("*/__init__.py")}
    assert all(fast.chosen([f"dmlprep/{room}/some.py"]) != sorted(fast.ALWAYS) for room in rooms)


def test_a_folder_is_run_once() -> None:
    names = fast.chosen(["dmlprep/passes/fp16.py", "dmlprep/passes/pin/sizes.py"])
    assert [name for name in names if name.startswith("tests/passes")] == ["tests/passes"]
    assert not [Path(name) for name in names if not name.startswith("tests")]
