"""All quirks from the modules of this folder. The modules are imported at first use."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import msgspec

from dmlprep.directml.quirks.quirk import Quirk
from dmlprep.record import CODES, Code

_MACHINERY = frozenset({"catalog", "declaring", "editing", "find", "layer_norms", "page", "patterns", "quirk"})
"""Modules of this folder that declare no quirk. Every other module declares one or more, as constants."""


@lru_cache(maxsize=1)
def quirks() -> tuple[Quirk, ...]:
    """Every known quirk: modules in the order of their first codes, the quirks of a module in the module's order."""
    here = Path(__file__).parent
    measured = msgspec.json.decode((here / "measured.json").read_bytes(), type=dict[str, tuple[str, ...]])
    names = {module.name for module in pkgutil.iter_modules([str(here)])} - _MACHINERY
    modules = [vars(import_module(f"dmlprep.directml.quirks.{name}")).values() for name in sorted(names)]
    declared = [[value for value in values if isinstance(value, Quirk)] for values in modules]
    ordered = [quirk for group in sorted(declared, key=lambda group: group[0].code) for quirk in group]
    return tuple(replace(quirk, measured_on=measured.get(quirk.key, quirk.measured_on)) for quirk in ordered)


@lru_cache(maxsize=1)
def codes() -> dict[str, Code]:
    """Finding code -> title, severity and remedy, for all codes of ``record`` and all codes that quirks declare."""
    return dict(sorted({**{q.code: q.code_row for q in quirks()}, **CODES}.items()))


def code_row(code: str) -> Code:
    """Return title, severity and remedy of a finding code.

    Quirks are imported only if ``record`` does not have the code.

    Raises:
        KeyError: there is no such code.
    """
    return CODES[code] if code in CODES else codes()[code]
