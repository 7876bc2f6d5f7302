"""Render HTML pages that load nothing from elsewhere: one style, one script, and values that are never read as HTML."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

import jinja2
from markupsafe import Markup

from dmlprep.core.text.markup import html_text

_STYLE = "page.css"


def render_page(template: str, scripts: Sequence[str], **values: object) -> str:
    """Return the page of a template: it and the scripts are files of ``report/page``; values are escaped.

    A content security policy lets only the page's own script and style run, by their digests. It allows no other file,
    no URL, and no text as HTML.
    """
    script = "\n".join(["'use strict';", "{", *map(_asset, scripts), "}"])
    style = _asset(_STYLE)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escaped,
        loader=jinja2.FunctionLoader(_asset),
    )
    return environment.get_template(template).render(
        policy=_policy(script, style), script=Markup(script), style=Markup(style), **values
    )


def _asset(name: str) -> str:
    return (resources.files("dmlprep.report") / "page" / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Return the content security policy that lets only this script and this style run."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _escaped(value: object) -> object:
    """Return a value for the page as printable, escaped text; ``Markup`` (trusted HTML) is unchanged."""
    if isinstance(value, Markup):
        return value
    return Markup(html_text(value))
