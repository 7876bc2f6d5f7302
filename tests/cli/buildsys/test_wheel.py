"""The built wheel holds all that the tree holds, and works without the tree."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from dmlprep.core._version import __version__
from tests.cli.buildsys.tools import MODELS, RECIPE, ROOT, Done, caches, run


def _in_the_tree() -> set[str]:
    """What the wheel must hold, by its path there."""
    found = {p.relative_to(ROOT).as_posix(): p for p in (ROOT / "dmlprep").rglob("*") if p.is_file()}
    names = {name for name in found if "__pycache__" not in name}
    names |= {f"dmlprep/pipeline/recipe/builtin/{p.name}" for p in (ROOT / "recipes").iterdir()}
    pages = (page for folder in ("codes", "passes") for page in (ROOT / "docs" / folder).iterdir())
    return names | {f"dmlprep/record/pages/{page.parent.name}/{page.name}" for page in pages}


def test_the_wheel_holds_what_the_tree_holds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = _in_the_tree()
    about = {name for name in names if name.startswith(f"dmlprep-{__version__}.dist-info/")}
    assert names - about == expected
    for kind in (".cmake", ".targets", ".jinja", ".json", ".toml", ".md"):
        assert any(name.endswith(kind) for name in expected), kind
    assert {name.rpartition("/")[2] for name in about} >= {"METADATA", "RECORD", "LICENSE", "entry_points.txt"}


def test_the_wheel_is_the_same_each_time(wheel: Path, tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    assert done.code == 0, done.out
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.builds
@pytest.mark.slow
def test_what_the_wheel_installs_works_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are those of the environment of the tests."""
    site = tmp_path / "site"
    done = run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        site,
        wheel,
        cwd=tmp_path,
        env=caches(tmp_path),
    )
    if "No module named pip" in done.out:
        pytest.skip("this Python has no pip")
    assert done.code == 0, done.out

    def python(*arguments: str | Path) -> Done:
        done = run(sys.executable, *arguments, cwd=tmp_path, env={"PYTHONPATH": str(site)})
        assert done.code == 0, done.out
        return done

    assert Path(python("-c", "import dmlprep; print(dmlprep.__file__)").out.strip()).is_relative_to(site)
    assert "@vision-fp16" in python("-m", "dmlprep", "explain", "recipes").out
    assert "# fp16: " in python("-m", "dmlprep", "explain", "fp16").out
    assert "# DP201" in python("-m", "dmlprep", "explain", "DP201").out
    assert "ort-1.24" in python("-m", "dmlprep", "explain", "targets").out
    for system, file in (("cmake", "dmlprep-config.cmake"), ("msbuild", "dmlprep.targets")):
        assert (Path(python("-m", "dmlprep.cli.buildsys", system).out.strip()) / file).exists()
    (tmp_path / "tiny.toml").write_text(RECIPE)
    model = MODELS / "residual_cnn.onnx"
    out = tmp_path / "out"
    python("-m", "dmlprep", "prepare", model, "-o", out, "--recipe", "tiny.toml", "--pin", "batch=1", "--device", "cpu")
    python("-m", "dmlprep", "report", out / "run.json", "--html", tmp_path / "run.html")
    assert "<html" in (tmp_path / "run.html").read_text(encoding="utf-8")
    python("-m", "dmlprep", "kit", "pack", out / "model.onnx", "-o", tmp_path / "kit.zip")
    assert os.path.getsize(tmp_path / "kit.zip")


@pytest.mark.builds
@pytest.mark.slow
def test_a_fresh_environment_installs_it_with_all_that_it_needs(wheel: Path, index: None, tmp_path: Path) -> None:
    """``pip install dmlprep-*.whl``, and then the first command of the README, its report, and what is in the wheel."""
    home = tmp_path / "fresh"
    environment = {**caches(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": ""}
    made = run(sys.executable, "-m", "venv", home, cwd=tmp_path)
    assert made.code == 0, made.out
    programs = home / ("Scripts" if sys.platform == "win32" else "bin")
    done = run(programs / "python", "-m", "pip", "install", "-q", wheel, cwd=tmp_path, env=environment)
    assert done.code == 0, done.out

    def dmlprep(*arguments: str | Path) -> str:
        done = run(programs / "dmlprep", *arguments, cwd=tmp_path, env=environment)
        assert done.code == 0, done.out
        return done.out

    (tmp_path / "model.onnx").write_bytes((MODELS / "residual_cnn.onnx").read_bytes())
    page = tmp_path / "report.html"
    said = dmlprep(
        "prepare", "model.onnx", "-o", "out", "--recipe", "@vision-fp16", "--pin", "batch=1", "--html", page, "-q"
    )
    assert "proved on the CPU" in said
    text = page.read_text(encoding="utf-8")
    for asset in ("page.css", "graph.js", "ribbon.js"):
        assert (ROOT / "dmlprep" / "report" / "page" / asset).read_text(encoding="utf-8").strip() in text, asset
    assert "DP710" in text
    assert "_dmlprep_completion" in dmlprep("completion", "bash")
    assert "# DP201" in dmlprep("explain", "DP201")
    assert len(dmlprep("explain", "recipes", "-q").split()) == len(list((ROOT / "recipes").glob("*.toml")))
    assert "1 model" in dmlprep("init", "model.onnx", "--yes", "-q")
    assert "no problems" in dmlprep("doctor", "--no-dml", "-q")
