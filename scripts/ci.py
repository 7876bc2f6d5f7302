"""Run every check of a release in stages, and print one table of what passed, failed, and did not run.

    python scripts/ci.py                 all stages, in the order of the table
    python scripts/ci.py lint suite      these stages

Exit codes: 0 all passed; 1 a stage failed; 3 a stage did not run, and ``.ci/not_run.toml`` does not expect that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SHARES = 4
"""Half cores, of two cores. A stage that waits for Wine or for one process takes few, so that another one can run."""


_QUIET = 60
"""Seconds after which a line lists the running stages. The output of a stage appears when the stage ends."""


@dataclass(frozen=True)
class Stage:
    """One row of the table.

    Attributes:
        commands: run one after another, until one fails. ``{python}`` is this interpreter's path, ``{bin}`` its folder,
            ``{scratch}`` an empty folder of the stage, ``{report}`` the file for a JUnit report.
        needs: commands that fetch requirements, with their limits in seconds. If one fails, the stage is "NOT RUN",
            with the last line that it printed.
        after: the stage that must have passed before.
        shares: how many of ``SHARES`` it takes.
        environment: variables for its commands.
        switch: an environment variable that must be 1, and the reason why the stage is off by default.
        counts: it writes a JUnit report.
    """

    name: str
    commands: tuple[str, ...]
    needs: tuple[tuple[float, str], ...] = ()
    after: str = ""
    shares: int = SHARES
    environment: dict[str, str] = field(default_factory=dict)
    switch: tuple[str, str] | None = None
    counts: bool = True


_TESTS = "{python} -m pytest -q -n 3 --durations=20 --durations-min=5 --junitxml {report} -o junit_family=xunit2"

STAGES = (
    # The newest release, and the last of onnxruntime-directml, which most cases of quirks need.
    Stage(
        "runtime",
        (),
        ((1200, "{bin}/dmlprep runtime install"), (300, "{bin}/dmlprep runtime install --release 1.24.4")),
        shares=1,
        counts=False,
    ),
    Stage("lint", ("{bin}/ruff check .", "{bin}/ruff format --check .", "{bin}/mypy"), shares=1, counts=False),
    # The README's first command, on this checkout: the main job, end to end, on a machine without the DirectML runtime.
    Stage(
        "readme",
        (
            "{bin}/dmlprep prepare fixtures/models/residual_cnn.onnx -o {scratch}/out --recipe @vision-fp16"
            " --pin batch=1",
            "test -s {scratch}/out/model.onnx",
            "test -s {scratch}/out/run.json",
        ),
        shares=1,
        environment={"XDG_CACHE_HOME": "{scratch}"},
        counts=False,
    ),
    # Sphinx treats a warning as an error: for example, a link or an anchor that leads nowhere.
    Stage(
        "site",
        ("{python} -m pytest -q --docs --junitxml {report} tests/test_site.py",),
        ((600, "{python} -m pip install -q -e .[docs]"),),
        shares=1,
    ),
    Stage("suite", (_TESTS,)),
    Stage("slow", (f"{_TESTS} --slow -m 'slow and not dml and not builds and not docs'",)),
    # A fixed share of the long runs of docs/fuzzing.md: the same inputs each time.
    Stage(
        "fuzz",
        (
            "{python} -W ignore -m tests.fuzz --seed 1 --inputs 500 --jobs 2 --onnx-models 100"
            " --findings {scratch}/findings",
        ),
        counts=False,
    ),
    Stage("directml", (f"{_TESTS} -n 2 --dist worksteal --dml --slow -m dml",), after="runtime", shares=2),
    # CPython for Windows with the real DirectML, in the Wine of `dmlprep runtime install`.
    Stage(
        "windows",
        ("{python} scripts/windows.py test -j 2 --junitxml {report}",),
        ((900, "{python} scripts/windows.py setup"),),
        after="runtime",
        shares=2,
    ),
    Stage(
        "builds",
        (f"{_TESTS} -n 2 --builds --slow -m builds",),
        ((600, "{python} scripts/build_tools.py setup"), (600, "{python} -m pip install -q build pre-commit")),
        shares=2,
    ),
    Stage(
        "tutorial",
        ("{python} -m pytest -q --docs --junitxml {report} tests/test_tutorial.py",),
        ((1800, "{python} -m pip install -q -e .[docs]"),),
        switch=("DMLPREP_CI_TUTORIAL", "it downloads torch: gigabytes"),
    ),
)


@dataclass(frozen=True)
class Result:
    """The outcome of one stage.

    Attributes:
        verdict: ``passed``, ``failed`` or ``NOT RUN``.
        reason: why it did not run.
        counts: tests that passed, failed and were skipped, if any ran.
    """

    stage: str
    verdict: str
    seconds: float = 0.0
    reason: str = ""
    counts: tuple[int, int, int] | None = None

    def row(self) -> str:
        """Return its line of the table."""
        counts = self.counts or ("", "", "")
        numbers = "".join(f"{count:>9}" for count in counts)
        return f"{self.stage:<10}{self.verdict:<9}{numbers}{self.seconds:>8.0f} s  {self.reason}".rstrip()


HEAD = f"{'stage':<10}{'verdict':<9}{'passed':>9}{'failed':>9}{'skipped':>9}{'time':>10}"


def counted(report: Path) -> tuple[int, int, int] | None:
    """Return the counts of a JUnit report; ``None`` if it is missing or truncated."""
    try:
        suites = list(ElementTree.parse(report).iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return None
    total, bad, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    return total - bad - skipped, bad, skipped


def _command(text: str, environment: dict[str, str], limit: float | None = None) -> tuple[int, str]:
    """Run a shell command; return its exit code (124: timeout) and its output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            text, shell=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


def run(stage: Stage, scratch: Path, say: Callable[[str], None]) -> Result:
    """Fetch the requirements of the stage, run its commands, and print their output."""
    began = time.monotonic()
    report = scratch / "report.xml"
    places = {"python": sys.executable, "bin": str(BIN), "scratch": str(scratch), "report": str(report)}
    environment = {**os.environ, **{name: text.format(**places) for name, text in stage.environment.items()}}

    def ended(verdict: str, reason: str = "") -> Result:
        return Result(stage.name, verdict, time.monotonic() - began, reason, counted(report) if stage.counts else None)

    if stage.switch is not None and os.environ.get(stage.switch[0]) != "1":
        return ended("NOT RUN", f"{stage.switch[1]}; {stage.switch[0]}=1 runs it")
    for limit, line in stage.needs:
        code, text = _command(line.format(**places), environment, limit)
        if code:
            lines = [one for one in text.splitlines() if one.strip()] or [f"exit code {code}"]
            say(f"== {stage.name}: {line} ended with {code}\n{text}")
            return ended("NOT RUN", next((one for one in lines if one.startswith("error")), lines[-1]))
    for line in stage.commands:
        code, text = _command(line.format(**places), environment)
        say(f"== {stage.name}: {line.split(' ', 1)[0].format(**places)} ended with {code}\n{text}")
        if code:
            return ended("failed")
    result = ended("passed")
    if stage.counts and (result.counts is None or not sum(result.counts[:2])):
        return ended("failed", "no test ran")
    return result


def _waits(stage: Stage, running: Iterable[Stage]) -> bool:
    """Return whether the stage that must pass before this one still runs."""
    return any(one.name == stage.after for one in running)


def run_all(stages: Sequence[Stage], say: Callable[[str], None]) -> list[Result]:
    """Run stages in their order, in parallel as far as the cores allow."""
    waiting, free, results = list(stages), SHARES, []
    running: dict[Future[Result], Stage] = {}
    folder = Path(tempfile.mkdtemp(prefix="dmlprep-ci-"))
    try:
        with ThreadPoolExecutor(SHARES) as pool:
            while waiting or running:
                while waiting and waiting[0].shares <= free and not _waits(waiting[0], running.values()):
                    stage = waiting.pop(0)
                    if bad := next(
                        (one for one in results if one.stage == stage.after and one.verdict != "passed"), None
                    ):
                        results.append(
                            Result(stage.name, "NOT RUN", reason=f"{bad.stage}: {bad.reason or bad.verdict}")
                        )
                        continue
                    scratch = folder / stage.name
                    scratch.mkdir()
                    running[pool.submit(run, stage, scratch, say)] = stage
                    free -= stage.shares
                if not running:
                    continue
                done = wait(running, timeout=_QUIET, return_when=FIRST_COMPLETED).done
                if not done:
                    say(f"== running: {', '.join(stage.name for stage in running.values())}")
                for future in done:
                    free += running.pop(future).shares
                    results.append(future.result())
                    say(f"== {results[-1].row()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def exit_code(results: Sequence[Result], expected: dict[str, str]) -> int:
    """Return the exit code for these results. ``expected`` has the stages that may be skipped, with the reason."""
    if any(one.verdict == "failed" for one in results):
        return 1
    return 3 if any(one.verdict == "NOT RUN" and one.stage not in expected for one in results) else 0


def chosen(names: Sequence[str]) -> list[Stage]:
    """Return the stages with these names, all without any.

    Raises:
        ValueError: no stage has one of the names.
    """
    if unknown := set(names) - {stage.name for stage in STAGES}:
        raise ValueError(f"unknown stage {min(unknown)}: choose from {', '.join(stage.name for stage in STAGES)}")
    needed = {stage.after for stage in STAGES if stage.name in names}
    return [stage for stage in STAGES if not names or stage.name in {*names, *needed}]


def expected_not_run() -> dict[str, str]:
    """Return the stages that may be skipped, with the reasons."""
    return tomllib.loads((ROOT / ".ci" / "not_run.toml").read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run the stages of CI, and print a table.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(stage.name for stage in STAGES))
    try:
        stages = chosen(parser.parse_args(list(arguments)).stages)
    except ValueError as error:
        parser.error(str(error))
    results = run_all(stages, lambda text: print(text, flush=True))
    expected = expected_not_run()
    order = [stage.name for stage in STAGES]
    print("\n".join([HEAD, *(one.row() for one in sorted(results, key=lambda one: order.index(one.stage)))]))
    for one in results:
        if one.verdict == "NOT RUN" and one.stage not in expected:
            print(f"error: the stage {one.stage} did not run: {one.reason}")
    return exit_code(results, expected)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
