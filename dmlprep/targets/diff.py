"""What changes between two releases."""

from __future__ import annotations

from dmlprep.targets.kernels import Kernel
from dmlprep.targets.target import Target

__all__ = ["compare_targets"]


def compare_targets(a: Target, b: Target) -> dict[str, list[str]]:
    """Limits and kernels that differ: ``Pad-21`` for a kernel, ``Pad-18: fuses`` for one that changed.

    Raises:
        UsageError: only opset and IR version of one of them are known.
    """
    limits = [
        f"{field} {getattr(a, field)} -> {getattr(b, field)}"
        for field in ("ort_version", "directml_version", "feature_level", "max_opset", "max_ir", "dml_opset")
        if getattr(a, field) != getattr(b, field)
    ]
    old, new = _flat(a), _flat(b)
    changed = [
        f"{name}: {', '.join(_changes(old[name], new[name]))}"
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name]
    ]
    return {
        "versions": limits,
        "kernels added": sorted(new.keys() - old.keys()),
        "kernels removed": sorted(old.keys() - new.keys()),
        "kernels changed": changed,
    }


def _flat(target: Target) -> dict[str, Kernel]:
    return {f"{op}-{since}": k for op, rows in target.tables.dml.items() for since, k in rows.items()}


def _changes(old: Kernel, new: Kernel) -> list[str]:
    found = []
    for label in sorted(old.types.keys() | new.types.keys()):
        before, after = old.types.get(label, frozenset()), new.types.get(label, frozenset())
        found += [f"{label} + {name}" for name in sorted(after - before)]
        found += [f"{label} - {name}" for name in sorted(before - after)]
    for field in ("const", "cpu_in", "cpu_out"):
        before_set, after_set = getattr(old, field), getattr(new, field)
        if before_set != after_set:
            found.append(f"{field} {sorted(before_set)} -> {sorted(after_set)}")
    for field in ("fuses", "fused_inputs", "query", "made_by"):
        if getattr(old, field) != getattr(new, field):
            found.append(f"{field} {getattr(old, field)!r} -> {getattr(new, field)!r}")
    return found
