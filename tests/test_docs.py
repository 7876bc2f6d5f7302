"""What is documented is there, and what is there is documented."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmlprep.passes import CATALOG, find_pass
from dmlprep.quirks import codes
from dmlprep.recipe import apply_settings, builtin_names, load_recipe, make_plan
from dmlprep.record import CODES
from dmlprep.targets import target_names

TOP = Path(__file__).resolve().parents[1]
CODE_PAGES = sorted((TOP / "docs" / "codes").glob("DP*.md"))
DOCS = sorted((TOP / "docs").rglob("*.md"))


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    pages = {p.stem for p in CODE_PAGES}
    assert set(CODES) <= pages <= set(codes())  # a quirk without a page says what it knows itself


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda p: p.stem)
def test_a_code_page_says_what_why_how_and_where_from(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}: ")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["What", "Why", "How to fix", "Source"]
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert section.strip(), "an empty section"


def test_a_code_in_the_hundred_of_its_file() -> None:
    from dmlprep.record.codes import modelfile, opset, parity, placement, precision, quirks, recipe, runtime, simplify

    parts = {
        "0": modelfile,
        "1": opset,
        "3": simplify,
        "4": precision,
        "5": placement,
        "6": quirks,
        "7": parity,
        "8": runtime,
        "9": recipe,
    }
    for hundred, part in parts.items():
        assert all(re.fullmatch(rf"DP{hundred}\d\d", code) for code in part.ROWS)


def test_codes_named_in_the_source_exist() -> None:
    named = {
        (code, path.relative_to(TOP).as_posix())
        for path in (TOP / "dmlprep").rglob("*.py")
        for code in re.findall(r"\bDP\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert [item for item in sorted(named) if item[0] not in codes()] == []


def test_codes_named_in_the_docs_exist() -> None:
    named = {
        (code, path.name)
        for path in [*DOCS, TOP / "README.md"]
        for code in re.findall(r"\bDP\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert [item for item in sorted(named) if item[0] not in codes()] == []


def test_catalog_modules_and_pages_are_the_same_passes() -> None:
    modules = {target.partition(":")[0].removeprefix("dmlprep.passes.") for target in CATALOG.values()}
    folder = TOP / "dmlprep" / "passes"
    there = {
        p.stem
        for p in folder.iterdir()
        if (p.suffix == ".py" or (p / "__init__.py").exists()) and p.stem not in ("__init__", "base", "catalog")
    }
    assert modules == there
    assert {p.stem for p in (folder.parents[1] / "docs" / "passes").glob("*.md")} == set(CATALOG)


@pytest.mark.parametrize("name", CATALOG)
def test_a_pass_is_what_the_catalog_says(name: str) -> None:
    cls = find_pass(name)
    assert cls.name == name
    assert cls.summary
    assert "\n" not in cls.summary
    page = (TOP / "docs" / "passes" / f"{name}.md").read_text(encoding="utf-8")
    for field in cls.options_type.__struct_fields__:
        assert f"`{field}`" in page, f"option {field} of {name} is not documented"


@pytest.mark.parametrize("name", CATALOG)
def test_a_pass_has_cases(name: str) -> None:
    assert list((TOP / "fixtures" / "cases" / name.replace("-", "_")).glob("*.case"))


@pytest.mark.parametrize("name", builtin_names())
def test_every_recipe_loads_plans_and_is_described(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.doc.endswith(".")
    assert make_plan(recipe).target.name in target_names()
    assert name in (TOP / "docs" / "recipes.md").read_text(encoding="utf-8")
    for target in target_names():
        assert make_plan(apply_settings(recipe, [f'target="{target}"']))


@pytest.mark.parametrize("path", [*DOCS, TOP / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in link:
            assert (path.parent / link).exists(), link
    for named in re.findall(r"`((?:docs|dmlprep|recipes|fixtures|tests)/[\w./-]+\.(?:md|py|toml|onnx|json))`", text):
        assert "NAME" in named or (TOP / named).exists(), named


@pytest.mark.parametrize("path", [*DOCS, TOP / "README.md"], ids=lambda p: p.name)
def test_recipes_named_in_the_docs_exist(path: Path) -> None:
    for name in re.findall(r"(?<![\w/.])@([a-z]+(?:-[a-z0-9]+)+)\b", path.read_text(encoding="utf-8")):
        assert f"@{name}" in builtin_names()


def test_the_list_of_modules_is_that_of_the_docstrings() -> None:
    script = TOP / "scripts" / "module_list.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run scripts/module_list.py"
