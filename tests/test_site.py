"""The site of the documentation: what the reference has to list, and the build itself (``pytest --docs``)."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmlprep import api
from dmlprep.cli.commands import COMMANDS
from dmlprep.core import errors

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_the_reference_has_every_function_and_every_error() -> None:
    page = (DOCS / "reference" / "api.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. autofunction:: (\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(name for name in api.__all__ if inspect.isfunction(getattr(api, name)))
    assert ".. automodule:: dmlprep.core.errors\n   :members:" in page
    assert [name for name in errors.__all__ if not getattr(errors, name).__doc__] == []


def test_a_docstring_says_every_argument_and_what_comes_back() -> None:
    wrong = []
    for name in api.__all__:
        function = getattr(api, name)
        if not inspect.isfunction(function):
            continue
        text = inspect.getdoc(function) or ""
        signature = inspect.signature(function)
        said = {word for row in re.findall(r"^    ([a-z_, ]+): ", text, re.MULTILINE) for word in row.split(", ")}
        wrong += [f"{name}: {argument}" for argument in signature.parameters if argument not in said]
        if signature.return_annotation not in ("None", "Iterator[None]", "str") and "Returns:" not in text:
            wrong.append(f"{name}: what it returns")
    assert wrong == []


def test_every_option_has_a_help() -> None:
    """The reference of the command line is made of them."""
    import click

    from dmlprep.cli.main import cli

    def options(command: click.Command, name: str) -> list[str]:
        context = click.Context(command)
        wrong = [f"{name} {o.opts[0]}" for o in command.params if isinstance(o, click.Option) and not o.help]
        if not (command.help or command.short_help):
            wrong.append(name)
        if isinstance(command, click.Group):
            for word in command.list_commands(context):
                inner = command.get_command(context, word)
                assert inner is not None
                wrong += options(inner, f"{name} {word}")
        return wrong

    assert options(cli, "dmlprep") == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning, as of a link or anchor that leads nowhere, fails."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", str(DOCS), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.mark.docs
def test_no_page_needs_the_network(site: Path) -> None:
    loads = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']*""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 150
    found = {(page.name, one) for page in pages for one in loads.findall(page.read_text(encoding="utf-8"))}
    styles = [sheet.name for sheet in site.rglob("*.css") if re.search(r"url\(['\"]?https?:", sheet.read_text("utf-8"))]
    assert (found, styles) == (set(), [])


@pytest.mark.docs
def test_the_reference_is_made_of_the_code(site: Path) -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (site / "reference" / "commands").glob("*.html")}
    assert pages.keys() == COMMANDS.keys()
    assert [name for name, page in pages.items() if f'id="dmlprep-{name}"' not in page] == []
    assert "dmlprep-prepare-pin" in pages["prepare"]  # the anchor of an option
    functions = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [name for name in api.__all__ if name[0].islower() and f'id="dmlprep.{name}"' not in functions] == []
    assert 'href="#dmlprep.record.RunRecord"' in functions  # a type in a signature leads to its place


@pytest.mark.docs
def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    """Sphinx checks those of Markdown; this also those that it made."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in texts.items()}
    wrong = []
    for page, text in texts.items():
        for link in set(re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', text)):
            file, _, anchor = link.partition("#")
            if "://" in file or file.startswith("mailto:"):
                continue
            to = (page.parent / file).resolve() if file else page
            if not to.exists() or (anchor and to in anchors and anchor not in anchors[to]):
                wrong.append(f"{page.name}: {link}")
    assert wrong == []
