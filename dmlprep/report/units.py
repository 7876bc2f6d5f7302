"""How views of a record write numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from dmlprep.record.documents import toml_string

__all__ = ["bytes_text", "toml_value"]


def bytes_text(count: int) -> str:
    """A number of bytes with as many digits as tell something (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e5 else f"{count / 1e6:.1f} MB"


def toml_value(value: Any) -> str:
    """A value as a recipe writes it; ``None``, which TOML does not have, is ``null``."""
    if isinstance(value, dict):
        rows = ", ".join(f"{key if _bare(key) else toml_string(key)} = {toml_value(v)}" for key, v in value.items())
        return f"{{ {rows} }}" if rows else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return toml_string(value)
    # TOML's own words for what is not finite.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)


def _bare(key: str) -> bool:
    return key.isascii() and key.replace("_", "").replace("-", "").isalnum()
