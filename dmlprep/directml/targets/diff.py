"""Compare two releases: their versions, limits and kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from dmlprep.directml.targets.kernels import Kernel
from dmlprep.directml.targets.target import Target

T = TypeVar("T")


def compare_targets(a: Target, b: Target) -> dict[str, list[str]]:
    """Group of changes -> the changes from target ``a`` to target ``b``, one text each.

    The groups: ``versions`` (``max_opset 21 -> 22``), and ``kernels`` and ``CPU kernels``, each followed by ``added``
    or ``removed`` (``Pad-21``) or ``changed`` (``Pad-18: fuses False -> True``). A group without changes is empty.

    Raises:
        UsageError: one of them has a known opset and IR version only.
    """
    limits = [
        f"{field} {getattr(a, field)} -> {getattr(b, field)}"
        for field in ("package", "ort_version", "directml_version", "feature_level", "max_opset", "max_ir", "dml_opset")
        if getattr(a, field) != getattr(b, field)
    ]
    dml = _compared("kernels", _flat(a), _flat(b), _changes)
    return {"versions": limits, **dml, **_compared("CPU kernels", _cpu(a), _cpu(b), _types)}


def _compared(
    what: str, old: Mapping[str, T], new: Mapping[str, T], changes: Callable[[T, T], list[str]]
) -> dict[str, list[str]]:
    changed = [name for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    return {
        f"{what} added": sorted(new.keys() - old.keys()),
        f"{what} removed": sorted(old.keys() - new.keys()),
        f"{what} changed": [f"{name}: {', '.join(changes(old[name], new[name]))}" for name in changed],
    }


def _cpu(target: Target) -> dict[str, dict[str, frozenset[str]]]:
    return {f"{op}-{row.since}": row.types for op, rows in target.tables.cpu.items() for row in rows}


def _flat(target: Target) -> dict[str, Kernel]:
    return {f"{op}-{since}": k for op, rows in target.tables.dml.items() for since, k in rows.items()}


def _types(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> list[str]:
    changes = []
    for label in sorted(old.keys() | new.keys()):
        before, after = old.get(label, frozenset()), new.get(label, frozenset())
        changes += [f"{label} + {name}" for name in sorted(after - before)]
        changes += [f"{label} - {name}" for name in sorted(before - after)]
    return changes


def _changes(old: Kernel, new: Kernel) -> list[str]:
    changes = _types(old.types, new.types)
    for field in ("const", "cpu_in", "cpu_out"):
        if getattr(old, field) != getattr(new, field):
            changes.append(f"{field} {sorted(getattr(old, field))} -> {sorted(getattr(new, field))}")
    for field in ("fuses", "fused_inputs", "query", "made_by"):
        if getattr(old, field) != getattr(new, field):
            changes.append(f"{field} {getattr(old, field)!r} -> {getattr(new, field)!r}")
    return changes
