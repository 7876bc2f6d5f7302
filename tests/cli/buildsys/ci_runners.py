"""Stand-ins for GitHub's runner and Azure's agent: they run the scripts of ``action.yml`` and ``azure/dmlprep.yml``.

Of expressions they know what these files use. What ``uses:`` and ``task:`` name is not run, only written down.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cli.buildsys.tools import ROOT

ACTION, TEMPLATE = ROOT / "action.yml", ROOT / "azure" / "dmlprep.yml"

needs_bash = (sys.platform == "win32" or shutil.which("bash") is None, "needs bash")

_PYTHON = """#!/bin/sh
# A Python whose environments have dmlprep.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "{here}/python" "$3/bin/python"
elif [ "$1 $2" = "-m pip" ]; then
    echo "$@" >>"{here}/pip.txt"
else
    PYTHONPATH="{root}" exec "{python}" "$@"
fi
"""


@dataclass
class Step:
    """A step that was reached: its name, exit code (0 where it is not run here), and the output of a script."""

    name: str
    code: int = 0
    out: str = ""
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Ended:
    """A job that has ended: the steps, the first code that was not 0, and what was set."""

    steps: list[Step]
    code: int
    outputs: dict[str, str]
    summary: str

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]


def load(path: Path) -> dict[str, Any]:
    """A file of YAML."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def python_in(folder: Path) -> Path:
    """A folder with a ``python`` that makes environments without installing."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "python"
    program.write_text(_PYTHON.format(here=folder, root=ROOT, python=sys.executable))
    program.chmod(0o755)
    return folder


def _bash(script: str, folder: Path, environment: Mapping[str, str], file: Path) -> tuple[int, str]:
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    return done.returncode, done.stdout


def _judged(condition: str, value: Callable[[str], str], names: str) -> bool:
    """A condition in which ``names`` are paths of values, and the rest is Python's but for ``&&`` and ``||``."""
    text = re.sub(names, lambda found: repr(value(found.group())), condition)
    functions = {
        "and_": lambda *all_: all(all_),
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "true": "True",
    }
    text = re.sub(r"\band\(", "and_(", text).replace("&&", " and ").replace("||", " or ")
    return bool(eval(text, {"__builtins__": {}}, functions))


class GitHub:
    """A job on GitHub's runner that has one step, the action."""

    def __init__(self, folder: Path, work: Path, path: Path | None = None) -> None:
        self._folder, self._work, self._path = folder, work, path
        self.action = load(ACTION)

    def run(self, **inputs: str) -> Ended:
        """Run the action; ``python_version`` is the input ``python-version``."""
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        known = {name: row.get("default", "") for name, row in self.action["inputs"].items()}
        assert set(given) <= set(known)
        values = {f"inputs.{name}": value for name, value in {**known, **given}.items()}
        values |= {"runner.os": "Linux", "github.run_id": "7", "github.run_attempt": "1"}
        temporary = self._work / "temp"
        temporary.mkdir(parents=True, exist_ok=True)
        steps: list[Step] = []
        summary, code = temporary / "summary.md", 0
        summary.write_text("")
        for number, step in enumerate(self.action["runs"]["steps"]):
            if not self._wanted(step.get("if", ""), values, failed=bool(code)):
                continue
            if "uses" in step:
                steps.append(Step(step["name"], given=self._filled(step["with"], values)))
                continue
            outputs = temporary / f"outputs{number}"
            outputs.write_text("")
            environment = {
                **self._filled(step.get("env", {}), values),
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_ACTION_PATH": str(ROOT),
                "RUNNER_TEMP": str(temporary),
                "RUNNER_OS": "Linux",
                "PATH": f"{self._path}{os.pathsep}{os.environ['PATH']}" if self._path else os.environ["PATH"],
            }
            assert step["shell"] == "bash"
            ended, out = _bash(step["run"], self._folder, environment, temporary / "step.sh")
            steps.append(Step(step["name"], ended, out))
            code = code or ended
            for line in outputs.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                values[f"steps.{step['id']}.outputs.{name}"] = value
        results = {name: self._text(row["value"], values) for name, row in self.action["outputs"].items()}
        return Ended(steps, code, results, summary.read_text(encoding="utf-8"))

    def _wanted(self, condition: str, values: Mapping[str, str], *, failed: bool) -> bool:
        always = "always()" in condition
        if failed and not always:
            return False
        text = condition.replace("always()", "True") or "True"
        return _judged(text, lambda name: values.get(name, ""), r"\b(?:inputs|steps|runner|github)(?:\.[\w-]+)+")

    def _filled(self, table: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
        return {name: self._text(text, values) for name, text in table.items()}

    def _text(self, text: str, values: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: values.get(found[1], ""), text)


class Azure:
    """A job of Azure's agent that has the template's steps."""

    def __init__(self, folder: Path, work: Path, path: Path) -> None:
        self._folder, self._work, self._path = folder, work, path
        self.template = load(TEMPLATE)

    def run(self, **parameters: str | bool) -> Ended:
        known = {row["name"]: row.get("default", "") for row in self.template["parameters"]}
        assert set(parameters) <= set(known)
        given = {name: str(value) for name, value in {**known, "folder": str(self._folder), **parameters}.items()}
        for row in self.template["parameters"]:
            if row["type"] == "boolean":  # which text holds as True or False
                given[row["name"]] = given[row["name"]].capitalize()
        variables = {"Agent.OS": "Linux", "Build.BuildId": "7"}
        temporary = self._work / "temp"
        temporary.mkdir(parents=True, exist_ok=True)
        steps: list[Step] = []
        summary, code = "", 0
        for step in self.template["steps"]:
            condition = self._expanded(step.get("condition", "succeeded()"), given)
            if not self._wanted(condition, variables, failed=bool(code)):
                continue
            if "task" in step:
                filled = {n: self._macros(self._expanded(t, given), variables) for n, t in step["inputs"].items()}
                steps.append(Step(step["displayName"], given=filled))
                continue
            assert "${{" not in step["bash"]
            assert "$(dmlprep" not in step["bash"]
            environment = {
                **{n: self._macros(self._expanded(t, given), variables) for n, t in step.get("env", {}).items()},
                "AGENT_TEMPDIRECTORY": str(temporary),
                "AGENT_OS": "Linux",
                "PATH": f"{self._path}{os.pathsep}{os.environ['PATH']}",
            }
            ended, out = _bash(step["bash"], self._folder, environment, temporary / "step.sh")
            steps.append(Step(step["displayName"], ended, out))
            code = code or ended
            for name, value in re.findall(r"^##vso\[task\.setvariable variable=(\w+);isOutput=true\](.*)$", out, re.M):
                variables[f"{step['name']}.{name}"] = value
            for path in re.findall(r"^##vso\[task\.uploadsummary \](.*)$", out, re.M):
                summary += Path(path).read_text(encoding="utf-8")
        results = {name.removeprefix("dmlprep."): value for name, value in variables.items() if "dmlprep." in name}
        return Ended(steps, code, results, summary)

    def _wanted(self, condition: str, variables: Mapping[str, str], *, failed: bool) -> bool:
        text = condition.replace("succeededOrFailed()", "True").replace("succeeded()", str(not failed))
        return _judged(
            text.replace("', true)", "', 'True')"),
            lambda name: variables.get(name.partition("'")[2].partition("'")[0], ""),
            r"variables\['[\w.]+'\]",
        )

    def _expanded(self, text: str, given: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ parameters\.(\w+) \}\}", lambda found: given[found[1]], text)

    def _macros(self, text: str, variables: Mapping[str, str]) -> str:
        return re.sub(r"\$\(([\w.]+)\)", lambda found: variables.get(found[1], found[0]), text)
