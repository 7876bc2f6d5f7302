"""What is documented is there, and what is there is documented."""

from __future__ import annotations

import re
from pathlib import Path

from dmlprep.directml.quirks import codes
from dmlprep.directml.targets import target_names
from dmlprep.passes import CATALOG, find_pass
from dmlprep.pipeline.recipe import apply_settings, builtin_names, load_recipe, make_plan
from dmlprep.record import CODES

TOP = Path(__file__).resolve().parents[1]
CODE_PAGES = sorted((TOP / "docs" / "codes").glob("DP*.md"))
PAGES = [*sorted((TOP / "docs").rglob("*.md")), TOP / "README.md"]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    pages = {p.stem for p in CODE_PAGES}
    assert set(CODES) <= pages <= set(codes())  # a quirk without a page says what it knows itself


def test_a_code_page_says_what_why_how_and_where_from() -> None:
    wrong = []
    for page in CODE_PAGES:
        text = page.read_text(encoding="utf-8")
        if not text.startswith(f"# {page.stem}: "):
            wrong.append(f"{page.name}: another title")
        if re.findall(r"^## (.+)$", text, re.MULTILINE) != ["What", "Why", "How to fix", "Source"]:
            wrong.append(f"{page.name}: other sections")
        if not all(section.strip() for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]):
            wrong.append(f"{page.name}: an empty section")
    assert wrong == []


def test_codes_named_in_the_source_exist() -> None:
    named = {
        (code, path.relative_to(TOP).as_posix())
        for path in (TOP / "dmlprep").rglob("*.py")
        for code in re.findall(r"\bDP\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert [item for item in sorted(named) if item[0] not in codes()] == []


def test_codes_named_in_the_docs_exist() -> None:
    named = {
        (code, path.name) for path in PAGES for code in re.findall(r"\bDP\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert [item for item in sorted(named) if item[0] not in codes()] == []


def test_catalog_modules_and_pages_are_the_same_passes() -> None:
    modules = {target.partition(":")[0].removeprefix("dmlprep.passes.") for target in CATALOG.values()}
    work = {"framing", "fusions", "precision"}  # what several passes do, or what is more than a pass
    folder = TOP / "dmlprep" / "passes"
    there = {
        p.stem
        for p in folder.iterdir()
        if (p.suffix == ".py" or (p / "__init__.py").exists()) and p.stem not in {"__init__", "base", "catalog", *work}
    }
    assert modules == there
    assert {p.stem for p in (folder.parents[1] / "docs" / "passes").glob("*.md")} == set(CATALOG)


def test_a_pass_is_what_the_catalog_says() -> None:
    wrong = []
    for name in CATALOG:
        cls = find_pass(name)
        if cls.name != name or not cls.summary or "\n" in cls.summary:
            wrong.append(f"{name}: its name or its summary")
        page = (TOP / "docs" / "passes" / f"{name}.md").read_text(encoding="utf-8")
        fields = cls.options_type.__struct_fields__
        wrong += [f"{name}: option {field} is not documented" for field in fields if f"`{field}`" not in page]
    assert wrong == []


def test_a_pass_has_cases() -> None:
    folder = TOP / "fixtures" / "cases"
    assert [name for name in CATALOG if not list((folder / name.replace("-", "_")).glob("*.case"))] == []


def test_every_recipe_loads_plans_and_is_described() -> None:
    described = (TOP / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in builtin_names() if name not in described] == []
    for name in builtin_names():
        recipe = load_recipe(name)
        assert recipe.doc.endswith("."), name
        assert make_plan(recipe).target.name in target_names(), name
        for target in target_names():
            assert make_plan(apply_settings(recipe, {"target": target})), (name, target)


def test_links_lead_somewhere() -> None:
    wrong = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
        files = re.findall(r"`((?:docs|dmlprep|recipes|fixtures|tests)/[\w./-]+\.(?:md|py|toml|onnx|json))`", text)
        wrong += [f"{path.name}: {link}" for link in links if not (path.parent / link).exists()]
        there = [file for file in files if not re.search(r"NAME|DP6xx", file)]
        wrong += [f"{path.name}: {file}" for file in there if not (TOP / file).exists()]
    assert wrong == []


def test_recipes_named_in_the_docs_exist() -> None:
    wrong = [
        f"{path.name}: @{name}"
        for path in PAGES
        for name in re.findall(r"(?<![\w/.])@([a-z]+(?:-[a-z0-9]+)+)\b", path.read_text(encoding="utf-8"))
        if f"@{name}" not in builtin_names()
    ]
    assert wrong == []
