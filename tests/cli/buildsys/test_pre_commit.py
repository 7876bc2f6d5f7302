"""pre-commit itself runs the hook in a git repository."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from dmlprep.pipeline.project.snippets import snippet
from tests.cli.buildsys.tools import MODELS, ROOT, Done, caches, run

_HOOKS = ROOT / ".pre-commit-hooks.yaml"
_CONFIG = """repos:
  - repo: {repository}
    rev: {revision}
    hooks:
      - id: dmlprep-check
        {more}
"""

needs_pre_commit = pytest.mark.skipif(
    importlib.util.find_spec("pre_commit") is None or not shutil.which("git"), reason="pip install pre-commit; and git"
)


class _Repositories:
    """The repository with the hook, and one that uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {
            "PRE_COMMIT_HOME": str(path / "cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(path),
            **caches(path / "xdg"),
        }
        for role in ("AUTHOR", "COMMITTER"):
            self.env |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@example.com"}
        self.hooks, self.user = path / "hooks", path / "user"
        for folder in (self.hooks, self.user):
            folder.mkdir()
            self.git("init", "-q", cwd=folder)

    def git(self, *arguments: str, cwd: Path) -> Done:
        done = run("git", *arguments, cwd=cwd, env=self.env)
        assert done.code == 0, done.out
        return done

    def commit(self, folder: Path) -> str:
        self.git("add", "-A", cwd=folder)
        self.git("commit", "-q", "--no-verify", "-m", "a commit", cwd=folder)
        return self.git("rev-parse", "HEAD", cwd=folder).out.strip()

    def use(self, revision: str, more: str = "") -> None:
        text = _CONFIG.format(repository=self.hooks, revision=revision, more=more)
        (self.user / ".pre-commit-config.yaml").write_text(text)
        self.git("add", "-A", cwd=self.user)

    def pre_commit(self, *arguments: str, env: dict[str, str] | None = None) -> Done:
        line = [sys.executable, "-m", "pre_commit", *arguments]
        return run(*line, cwd=self.user, env={**self.env, **(env or {})})


def _models(repositories: _Repositories) -> None:
    shutil.copyfile(MODELS / "residual_cnn.onnx", repositories.user / "good.onnx")
    (repositories.user / "notes.txt").write_text("no model")


def _judged(repositories: _Repositories, env: dict[str, str] | None = None) -> None:
    done = repositories.pre_commit("run", env=env)
    assert done.code == 0, done.out
    assert "check ONNX models for DirectML" in done.out
    assert "Passed" in done.out
    (repositories.user / "bad.onnx").write_text("no model")
    shutil.copyfile(MODELS / "quantized_cnn.onnx", repositories.user / "quantized.onnx")
    repositories.git("add", "-A", cwd=repositories.user)
    done = repositories.pre_commit("run", env=env)
    assert done.code == 1
    assert "Failed" in done.out
    assert "bad.onnx" in done.out
    assert "DP001" in done.out


@pytest.mark.builds
@needs_pre_commit
@pytest.mark.slow
def test_the_hook_with_the_dmlprep_that_is_there(tmp_path: Path) -> None:
    repositories = _Repositories(tmp_path)
    shutil.copyfile(_HOOKS, repositories.hooks / _HOOKS.name)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dmlprep"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dmlprep "$@"\n')
    program.chmod(0o755)

    repositories.use(repositories.commit(repositories.hooks), "language: system")
    _models(repositories)
    repositories.git("add", "-A", cwd=repositories.user)
    _judged(repositories, {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"})


@pytest.mark.builds
@needs_pre_commit
@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_the_hook_as_pre_commit_installs_it(tmp_path: Path) -> None:
    repositories = _Repositories(tmp_path)
    for name in ("dmlprep", "recipes", "docs"):
        shutil.copytree(ROOT / name, repositories.hooks / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", _HOOKS.name):
        shutil.copyfile(ROOT / name, repositories.hooks / name)
    repositories.use(repositories.commit(repositories.hooks))
    _models(repositories)
    repositories.git("add", "-A", cwd=repositories.user)
    done = repositories.pre_commit("install-hooks", env={"PYTHONPATH": ""})
    assert done.code == 0, done.out
    _judged(repositories, {"PYTHONPATH": ""})


@pytest.mark.builds
def test_the_pre_commit_hook_takes_every_file_at_once(tmp_path: Path) -> None:
    (hook,) = re.findall(r"^  entry: dmlprep (.*)$", _HOOKS.read_text(), re.MULTILINE)
    shutil.copyfile(MODELS / "residual_cnn.onnx", tmp_path / "add.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    command = [sys.executable, "-m", "dmlprep", *hook.split()]
    assert run(*command, "add.onnx", "add.onnx", cwd=tmp_path).code == 0
    done = run(*command, "text.onnx", "add.onnx", cwd=tmp_path)
    assert done.code == 2
    assert "DP001" in done.out
    assert "add.onnx: 22 of 22 nodes on DirectML" in done.out


@pytest.mark.builds
@needs_pre_commit
@pytest.mark.slow
def test_what_init_prints_is_a_hook_that_runs(tmp_path: Path) -> None:
    """``dmlprep init --for pre-commit``, pasted as it is: the hook of the page as well."""
    repositories = _Repositories(tmp_path)
    text = snippet("pre-commit", [], "")
    page = (ROOT / "docs" / "build-systems.md").read_text(encoding="utf-8")
    assert f"```yaml\n{text.partition(chr(10))[2]}```" in page
    (repositories.user / ".pre-commit-config.yaml").write_text(text)
    _models(repositories)
    repositories.git("add", "-A", cwd=repositories.user)
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "dmlprep"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dmlprep "$@"\n')
    program.chmod(0o755)
    _judged(repositories, env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
