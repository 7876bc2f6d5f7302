"""DirectML on Windows: what the worker can say of the adapter and of the libraries."""

from __future__ import annotations

import sys

__all__ = ["adapter_facts"]


def adapter_facts() -> dict[str, str]:
    """Facts about the DirectML of this process; empty off Windows."""
    return {"platform": sys.platform}
