"""The source of a module of ours as it goes to a machine without dmlprep: its imports lead to what lies beside it."""

from __future__ import annotations

import re
from importlib import resources

__all__ = ["travelling"]

_ROOMS = r"dmlprep(?:\.(?:runtime\.offsite|runtime|files|metrics|processes|record)|(?=\.(?:arrays|bounds)\b))"


def travelling(module: str, beside: str) -> bytes:
    """A module's source for another machine.

    Args:
        module: its path below ``dmlprep`` without ``.py`` (``runtime/hresult``).
        beside: where its modules are there: ``dmlprep_kit.`` for a package of this name, ``dmlprep_`` for files
            ``dmlprep_hresult.py`` and so on that lie side by side.
    """
    text = (resources.files("dmlprep") / f"{module}.py").read_text(encoding="utf-8")
    if not beside.endswith("."):
        text = re.sub(rf"^from {_ROOMS} import (\w+)$", rf"import {beside}\1 as \1", text, flags=re.MULTILINE)
    # "from dmlprep.processes import memory" has no dot at its end, nor has the package's name there.
    return re.sub(rf"\b{_ROOMS}\b(\.?)", lambda found: beside if found[1] else beside.removesuffix("."), text).encode()
