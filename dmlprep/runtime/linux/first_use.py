"""Remember facts of earlier downloads, and compare later downloads with them.

The facts are the date of the newest release file of each suite (a Debian release), and the digests of package files.
``runtime remove`` deletes both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime

from dmlprep.runtime.linux.layout import Layout, read_json, write_json


def suites_seen(layout: Layout) -> dict[str, datetime]:
    """Return the date of the newest release file that this installation used, by suite."""
    dates = {}
    for suite, text in _part(layout, "suites").items():
        with contextlib.suppress(ValueError):
            when = datetime.fromisoformat(text)
            if when.tzinfo is not None:
                dates[suite] = when
    return dates


def remember_suites(layout: Layout, dates: Mapping[str, datetime]) -> None:
    """Save the ``dates`` of release files with a verified signature, by suite."""
    _keep(layout, "suites", {suite: when.isoformat() for suite, when in dates.items()})


def file_seen(layout: Layout, name: str) -> str:
    """Return the SHA-256 of the package file of this name that was installed before; empty if there was none."""
    return _part(layout, "files").get(name, "")


def remember_file(layout: Layout, name: str, sha256: str) -> None:
    """Remember the digest of an installed package file, for comparison at the next install."""
    _keep(layout, "files", {name: sha256})


def _part(layout: Layout, part: str) -> dict[str, str]:
    rows = read_json(layout.history).get(part)
    return {str(key): str(value) for key, value in rows.items()} if isinstance(rows, dict) else {}


def _keep(layout: Layout, part: str, more: Mapping[str, str]) -> None:
    write_json(layout.history, {**read_json(layout.history), part: {**_part(layout, part), **more}})
