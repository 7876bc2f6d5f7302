"""What tests of build systems share: commands, a ``dmlprep`` that counts its runs, and the tools of build_tools.py."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "fixtures" / "models"

RECIPE = 'doc = "The least that changes a model."\n[step.pin]\n'


def load_script(name: str) -> ModuleType:
    """A module of ``scripts/``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


TOOLS = load_script("build_tools").default(os.environ.get("DMLPREP_TESTS_CACHE", ""))

needs_tools = pytest.mark.skipif(
    not TOOLS.done.exists(), reason="MSBuild and the SARIF validator are not there: python scripts/build_tools.py setup"
)


def caches(folder: Path) -> dict[str, str]:
    """Where pip and virtualenv keep things: pip's downloads are the user's, and nothing is kept among the tests."""
    users = os.environ.get("DMLPREP_TESTS_CACHE", "")
    return {"XDG_CACHE_HOME": str(folder), "PIP_CACHE_DIR": f"{users}/pip"}


@dataclass(frozen=True)
class Done:
    code: int
    out: str


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """Run a command; stdout and stderr together. ``env`` adds to the environment; an empty value takes one out."""
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env={name: value for name, value in {**os.environ, **(env or {})}.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=560,
        check=False,
    )
    return Done(done.returncode, done.stdout)


def write_feed(path: Path, seed: int) -> None:
    """A feed for the models of ``MODELS`` that take pictures: ``[1, 3, 32, 32]``."""
    values = np.random.default_rng(seed).normal(size=(1, 3, 32, 32)).astype(np.float32)
    np.savez(path, pixel_values=values)


class Counted:
    """A ``dmlprep`` for a build system, of a copy of the package, so that another version can be installed."""

    def __init__(self, folder: Path) -> None:
        self._package = folder / "site" / "dmlprep"
        shutil.copytree(ROOT / "dmlprep", self._package, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("recipes", "docs"):
            (folder / "site" / name).symlink_to(ROOT / name)
        self._runs = folder / "runs.txt"
        self.path = folder / "dmlprep"
        self.path.write_text(
            f'#!/bin/sh\necho "$@" >>"{self._runs}"\n'
            f'PYTHONPATH="{self._package.parent}" exec "{sys.executable}" -m dmlprep "$@"\n'
        )
        self.path.chmod(0o755)

    def taken(self) -> Sequence[str]:
        """The models prepared since this was asked last, by file name."""
        lines = self._runs.read_text().splitlines() if self._runs.exists() else []
        self._runs.unlink(missing_ok=True)
        words = [line.split() for line in lines if line.startswith("prepare ")]
        return sorted(Path(next(word for word in line if word.endswith(".onnx"))).name for line in words)

    def install_another(self, version: str) -> None:
        """Another version, in a file that is older than every result."""
        file = self._package / "core" / "_version.py"
        before = file.stat()
        file.write_text(f'__version__ = "{version}"\n')
        os.utime(file, (before.st_atime, before.st_mtime))
