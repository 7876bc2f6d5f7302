"""Every example in the docstrings of the public functions and on the pages is run."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest

import dmlprep
from dmlprep import api
from tests.fixtures_index import fixture
from tests.genai.proof.decoders import Weights, grouped
from tests.genai.proof.decoders import folder as write
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here

TOP = Path(__file__).resolve().parents[2]
MODEL = fixture("residual_cnn").path
SHOWN = {
    name: one for name in api.__all__ if name[0].islower() and ">>>" in ((one := getattr(api, name)).__doc__ or "")
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it: a model, its result in ``out``, a project file; a language model and its result."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(MODEL, folder / "model.onnx")
    dmlprep.prepare(folder / "model.onnx", out=folder / "out", pins={"batch": 1}, device="cpu")
    write(folder / "llama", grouped(Weights.made()), shared=True)
    write(folder / "llama-dml", grouped(Weights.made(), "float16"), shared=True)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    shutil.copytree(prepared, place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-runtime"))
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_of_a_docstring_shows_what_comes_out(name: str, folder: Path) -> None:
    if name == "prepare_project":
        dmlprep.init_project("model.onnx")
    (test,) = doctest.DocTestFinder(recurse=False).find(SHOWN[name], name, globs={"dmlprep": dmlprep})
    done = doctest.DocTestRunner(verbose=False).run(test)
    assert (done.failed, done.attempted > 0) == (0, True)


def test_what_most_users_call_has_an_example() -> None:
    assert {"check", "plan_model", "prepare", "compare", "bisect", "explain", "render_record"} <= set(SHOWN)


def _pages() -> dict[str, list[str]]:
    found = {}
    for page in [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]:
        if page.name == "tutorial.md":  # it needs torch; tests/test_tutorial.py runs it
            continue
        text = page.read_text(encoding="utf-8")
        if blocks := re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            found[page.relative_to(TOP).as_posix()] = blocks
    return found


PAGES = _pages()

CONTEXT = {
    "docs/lower-one-more-operator.md": "import numpy as np\n",
}
"""What the file has around the part that a page shows."""

ELSEWHERE = {"onnxruntime_genai", "app.dmlprep_model"}
"""Packages of apps: what imports them is compiled only."""


@pytest.mark.parametrize("page", PAGES)
def test_python_on_a_page_runs(page: str, folder: Path) -> None:
    """The blocks of a page are one program, in a folder with a model."""
    shutil.rmtree("out")
    shutil.copy("model.onnx", "large.onnx")
    known = {"dmlprep": dmlprep, "__name__": "page"}
    for block in PAGES[page]:
        code = f"from __future__ import annotations\n{CONTEXT.get(page, '')}{block}"
        if "from __future__" in block:
            code = block
        compiled = compile(code, page, "exec", dont_inherit=True)
        if not ELSEWHERE & set(compiled.co_names):  # of an app, with a model of its own
            exec(compiled, known)
