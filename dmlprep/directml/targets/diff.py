"""What changes between two releases."""

from __future__ import annotations

from collections.abc import Mapping

from dmlprep.directml.targets.kernels import Kernel
from dmlprep.directml.targets.target import Target


def compare_targets(a: Target, b: Target) -> dict[str, list[str]]:
    """Limits and kernels that differ: ``Pad-21`` for a kernel, ``Pad-18: fuses`` for one that changed.

    Raises:
        UsageError: only opset and IR version of one of them are known.
    """
    limits = [
        f"{field} {getattr(a, field)} -> {getattr(b, field)}"
        for field in ("package", "ort_version", "directml_version", "feature_level", "max_opset", "max_ir", "dml_opset")
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
        "CPU kernels added": sorted(_cpu(b).keys() - _cpu(a).keys()),
        "CPU kernels removed": sorted(_cpu(a).keys() - _cpu(b).keys()),
        "CPU kernels changed": [
            f"{name}: {', '.join(_types(_cpu(a)[name], _cpu(b)[name]))}"
            for name in sorted(_cpu(a).keys() & _cpu(b).keys())
            if _cpu(a)[name] != _cpu(b)[name]
        ],
    }


def _cpu(target: Target) -> dict[str, dict[str, frozenset[str]]]:
    return {f"{op}-{row.since}": row.types for op, rows in target.tables.cpu.items() for row in rows}


def _flat(target: Target) -> dict[str, Kernel]:
    return {f"{op}-{since}": k for op, rows in target.tables.dml.items() for since, k in rows.items()}


def _types(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> list[str]:
    found = []
    for label in sorted(old.keys() | new.keys()):
        before, after = old.get(label, frozenset()), new.get(label, frozenset())
        found += [f"{label} + {name}" for name in sorted(after - before)]
        found += [f"{label} - {name}" for name in sorted(before - after)]
    return found


def _changes(old: Kernel, new: Kernel) -> list[str]:
    found = _types(old.types, new.types)
    for field in ("const", "cpu_in", "cpu_out"):
        before_set, after_set = getattr(old, field), getattr(new, field)
        if before_set != after_set:
            found.append(f"{field} {sorted(before_set)} -> {sorted(after_set)}")
    for field in ("fuses", "fused_inputs", "query", "made_by"):
        if getattr(old, field) != getattr(new, field):
            found.append(f"{field} {getattr(old, field)!r} -> {getattr(new, field)!r}")
    return found
