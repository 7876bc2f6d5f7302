"""Numbers of releases of ONNX Runtime, and ranges of them."""

from __future__ import annotations


def release_number(text: str) -> tuple[int, int]:
    """Return major and minor number of a release: ``(1, 24)`` for ``1.24`` or ``1.24.4``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def within(release: tuple[int, int], first: str, last: str | None) -> bool:
    """Return whether a release (``(1, 24)``) is from ``first`` (``1.15``) to ``last``, both included.

    ``last`` is ``None`` for a range without end.
    """
    return release_number(first) <= release and (last is None or release <= release_number(last))
