"""The type of one row of the table of codes."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Code"]


class Code(NamedTuple):
    """Title of a few words, severity by default, general remedy."""

    title: str
    severity: Literal["note", "warning", "error"]
    remedy: str = ""
