"""What a test needs to know of the system it runs on."""

from __future__ import annotations

import ctypes
import sys

import pytest

__all__ = ["WINDOWS", "WINE", "break_off", "needs_links", "not_on_windows", "tells_time"]

WINDOWS = sys.platform == "win32"

WINE = WINDOWS and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version") if sys.platform == "win32" else False
"""Whether this Windows is Wine's."""


def not_on_windows(reason: str) -> pytest.MarkDecorator:
    """Skip a test on Windows, by what Windows does not have."""
    return pytest.mark.skipif(WINDOWS, reason=reason)


def _links() -> bool:
    """Whether a program may make symbolic links, and they are links afterwards."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as name:
        link = Path(name) / "link"
        try:
            link.symlink_to(Path(name) / "target")
        except (OSError, NotImplementedError):
            return False
        return link.is_symlink()


needs_links = pytest.mark.skipif(not _links(), reason="symbolic links: Wine and plain users of Windows make none")

tells_time = pytest.mark.skipif(WINE, reason="Wine gives the caller's own processor time for that of others")
break_off = pytest.mark.skipif(WINE, reason="Wine delivers neither Ctrl-C nor Ctrl-Break")
