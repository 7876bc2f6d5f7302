"""What the documentation tells a reader to type is there: commands, their options, recipes, Python."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

import dmlprep
from dmlprep.cli.commands import COMMANDS
from dmlprep.cli.main import cli
from dmlprep.core.errors import DmlprepError
from dmlprep.passes import CATALOG, find_pass
from dmlprep.pipeline.recipe import ParitySettings, make_plan, parse_recipe

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> Iterator[str]:
    yield from re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def _commands(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for span in re.findall(r"`(dmlprep [^`]+)`", text):
        yield re.sub(r"\s+", " ", span)
    for line in text.splitlines():
        if found := re.match(r"(?:\$ |\s{4,})(dmlprep .*)", line):
            yield found[1]


def _unknown(line: str) -> list[str]:
    """Words of a command line that dmlprep does not know: a command, or an option of it."""
    words = shlex.split(re.sub(r"[\[\]]", " ", line.partition("   #")[0].partition(" ...")[0]), comments=True)[1:]
    command: click.Command = cli
    flags = {name: isinstance(o, click.Option) and o.is_flag for o in cli.params for name in o.opts}
    while words and words[0] in flags:  # options before the command
        words = words[1 if flags[words[0]] else 2 :]
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        return [words[0]]
    while isinstance(command, click.Group) and words:
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            # dmlprep kit MODEL packs
            command = command.commands.get("pack", command)
            break
        command, words = inner, words[1:]
    known = {name for option in command.params for name in option.opts} | {"--help", "-h"}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


def test_a_command_and_its_options_exist() -> None:
    lines = [(page, line) for page in PAGES for line in dict.fromkeys(_commands(page))]
    assert [(page.name, line, unknown) for page, line in lines if (unknown := _unknown(line))] == []


def test_recipes_on_a_page_are_recipes() -> None:
    wrong = []
    blocks = [(page, text) for page in PAGES for text in _blocks(page, "toml") if "[step" in text]
    for page, text in blocks:
        try:
            make_plan(parse_recipe(text if "doc =" in text else f'doc = "d"\n{text}', page.name))
        except DmlprepError as error:
            wrong.append(str(error))
    assert wrong == []


def test_python_on_a_page_uses_what_is_there() -> None:
    named = [
        (page.name, node.attr)
        for page in PAGES
        for text in _blocks(page, "python")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dmlprep"
    ]
    assert [pair for pair in named if pair[1] not in dmlprep.__all__] == []


def _listed(text: str) -> dict[str, str]:
    """Field -> default, of the tables of a page."""
    found: dict[str, str] = {}
    for row in re.findall(r"^\| (`[a-z0-9_`, ]+`) \| ([^|]*) \|", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([a-z0-9_]+)`", row[0]), row[1].strip("` "))
    return found


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("recipes.md", ParitySettings),
        *((f"passes/{name}.md", find_pass(name).options_type) for name in CATALOG),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_a_page_lists_the_fields_and_their_defaults(page: str, table: type[msgspec.Struct]) -> None:
    """A field, or a default, that changes in the code has to change on its page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    listed = _listed(text.partition("## `[parity]`")[2] or text)
    fields = {f.name: f for f in msgspec.structs.fields(table)}
    assert set(listed) >= set(fields)
    for field, said in listed.items():
        if field not in fields:
            continue
        default = fields[field].default
        if default is msgspec.NODEFAULT:
            default = fields[field].default_factory()  # type: ignore[operator]
        assert (None if said == "none" else tomllib.loads(f"v = {said}")["v"]) == default


def test_fields_named_in_docs_and_messages_exist() -> None:
    """``step.fp16.islands``, ``parity.seeds``: as docs, errors and findings tell a user to write them."""
    fields = {f"step.{name}.{f.name}" for name in CATALOG for f in msgspec.structs.fields(find_pass(name).options_type)}
    fields |= {f"parity.{f.name}" for f in msgspec.structs.fields(ParitySettings)}
    places = [*PAGES, *sorted((ROOT / "dmlprep").rglob("*.py"))]
    named = [
        (word, place.name)
        for place in places
        for word in re.findall(
            r"(?<![\w./])(?:step\.[a-z0-9-]+|parity)\.[a-z_]+(?![\w(]|\.)", place.read_text(encoding="utf-8")
        )
        if not word.endswith((".md", ".py")) and not word.startswith(("step.fold-again", "step.facts."))
    ]
    assert len(named) > 30
    assert [pair for pair in named if pair[0] not in fields] == []
