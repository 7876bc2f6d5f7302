"""How Sphinx makes the site of these pages. CONTRIBUTING.md says how to build it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sphinx.util.nodes import make_refnode

import dmlprep
from dmlprep.directml.quirks import codes
from dmlprep.passes import CATALOG, find_pass
from dmlprep.pipeline.options import OPTIONS, PrepareOptions

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "dmlprep"
author = "The dmlprep developers"
copyright = author
version = release = dmlprep.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]

myst_heading_anchors = 4  # the anchors that GitHub gives to headings

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
napoleon_use_ivar = True
python_display_short_literal_types = True

html_theme = "furo"
html_title = f"dmlprep {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

exclude_patterns = ["conf.py"]

_HUNDREDS = {
    "0": "the model's file",
    "1": "opset and IR version",
    "2": "dimensions",
    "3": "simplify, fuse, frame",
    "4": "precision",
    "5": "placement",
    "6": "what DirectML fails on or computes wrongly",
    "7": "parity",
    "8": "runtime, packages, environment",
    "9": "recipes and project files",
}


def _pages_as_links(lines: list[str]) -> None:
    """Docstrings and help name pages as the repository has them (docs/parity.md); here they are links."""
    lines[:] = [re.sub(r"\bdocs/([\w/-]+)\.md(?:#[\w-]+)?", r":doc:`/\1`", line) for line in lines]


def _docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Links to pages; and no type of what is returned but that of the signature: it is prose that has a colon."""
    if obj is PrepareOptions:
        lines += [f"* ``{option}``: {one.help}" for option, one in OPTIONS.items()]
    _pages_as_links(lines)
    for row, line in enumerate(lines):
        if line.startswith(":rtype: ") and (returns := [i for i in range(row) if lines[i].startswith(":returns: ")]):
            lines[returns[-1]] = lines[returns[-1]].replace(
                ":returns: ", f":returns: {line.removeprefix(':rtype: ')}: ", 1
            )
            lines[row] = ""


def _help(app: Sphinx, context: object, lines: list[str]) -> None:
    """The text of ``--help`` is plain: a star in it (``models/*.onnx``) is a star; examples and options are code."""
    escaped_lines: list[str] = []
    for line in lines:
        if line.startswith("| "):  # what click leaves as it is
            if not (escaped_lines and escaped_lines[-1].startswith("   ")):
                escaped_lines += [".. code-block:: text", ""]
            escaped_lines.append(f"   {line[2:].strip()}")
        elif line.startswith("..") or "``" in line:
            escaped_lines.append(line)
        else:
            escaped = re.sub(r"(?<!\*)\*(?!\*)", r"\\*", line)
            escaped_lines.append(re.sub(r"(?<![\w`-])(--?[a-z][\w-]*)", r"``\1``", escaped))
    lines[:] = escaped_lines
    _pages_as_links(lines)


def _type_by_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """The type that an annotation names without its module, where exactly one of this name is on a page."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].rpartition(".")[2]
    matches = env.domains.python_domain.find_obj(env, None, None, target, None, searchmode=1)
    if len(matches) != 1:
        return None
    name, entry = matches[0]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)


def _codes() -> str:
    """All finding codes by their hundred, as tables."""
    text = ""
    for hundred, title in _HUNDREDS.items():
        text += f"\n## DP{hundred}xx: {title}\n\n| code | severity | |\n|---|---|---|\n"
        rows = sorted((code, row) for code, row in codes().items() if code[2] == hundred)
        text += "".join(f"| [{code}](../codes/{code}.md) | {row.severity} | {row.title} |\n" for code, row in rows)
    return text


def _steps() -> str:
    """All steps, as a table."""
    rows = (f"| [{name}](../passes/{name}.md) | {find_pass(name).summary} |\n" for name in CATALOG)
    return "| step | what it does |\n|---|---|\n" + "".join(rows)


def _source(app: Sphinx, page: str, source: list[str]) -> None:
    """Tables of what the code knows, and the way back from the page of a code."""
    if page.startswith("codes/"):
        # In the side bar of every page, these 150 would make the site thrice as large.
        source[0] = f"---\norphan: true\n---\n\n{source[0]}\n[All codes](../reference/codes.md)\n"
    elif page == "reference/codes":
        source[0] += _codes()
    elif page == "reference/steps":
        source[0] += _steps()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what Sphinx calls."""
    app.connect("source-read", _source)
    app.connect("autodoc-process-docstring", _docstring, priority=600)  # after napoleon
    app.connect("sphinx-click-process-description", _help)
    app.connect("sphinx-click-process-options", _help)
    app.connect("missing-reference", _type_by_name)
    return {"parallel_read_safe": True}
