"""``dmlprep target``."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.api.devices import compare_targets, known_faults
from dmlprep.cli.options import option, output_options, targets
from dmlprep.cli.output import echo, echo_lines, print_json
from dmlprep.core.errors import UsageError

if TYPE_CHECKING:
    from dmlprep.api.types import Target


@click.group("target")
def command() -> None:
    """List, show and compare DirectML releases."""


@command.command("list")
@output_options("text", "json")
def list_(quiet: bool, output_format: str) -> int:
    """List the releases that dmlprep knows, oldest first: what they load, their source, and their support."""
    releases = [target for kind in ("windows", "onnxruntime", "windowsml") for target in api.list_targets(kind)]
    if output_format == "json":
        print_json(list(map(_facts, releases)))
        return 0
    if quiet:
        echo_lines(t.name for t in releases)
        return 0
    head = ("target", "ONNX Runtime", "DirectML", "opset <=", "IR <=", "DirectML opset", "package")
    row = "{:<14} {:<13} {:<9} {:>8} {:>6} {:>15}  {}"
    echo(row.format(*head))
    for t in releases:
        best = "unknown" if t.opset_only else str(t.dml_opset)
        versions = (t.ort_version or "-", t.directml_version or "-", t.max_opset, t.max_ir, best)
        echo(row.format(t.name, *versions, t.package or "Windows"))
    echo("packages, the oldest Windows for each, and its fixes:")
    for t in {t.package: t for t in releases}.values():
        echo(f"  {t.package or 'Windows'}: {t.windows}; {t.served}")
    echo(f"latest is {api.find_target().name}, the newest release of ONNX Runtime with DirectML")
    return 0


def _facts(target: Target) -> dict[str, object]:
    return {
        "name": target.name,
        "title": target.title,
        "onnxruntime": target.ort_version,
        "package": target.package,
        "windows": target.windows,
        "served": target.served,
        "carries": target.carries,
        "directml": target.directml_version,
        "feature_level": target.feature_level,
        "max_opset": target.max_opset,
        "max_ir": target.max_ir,
        "directml_opset": target.dml_opset,
        "opset_only": target.opset_only,
    }


@command.command("show")
@click.argument("name", shell_complete=targets)
@option("--op OPERATOR", help="Show only the kernels of one operator (Conv, com.microsoft::Gelu).")
@output_options("text", "json")
def show(name: str, op: str | None, quiet: bool, output_format: str) -> int:
    """Show the release NAME: versions, limits, kernels, FP16 faults, sources."""
    target = api.find_target(name)
    kernels = {} if target.opset_only else _kernels(target, op)
    quirks, faults = known_faults(target)
    faults = [fault for fault in faults if op is None or op in fault.ops]
    if output_format == "json":
        print_json(
            {
                **_facts(target),
                "options": list(target.options),
                "sources": list(target.sources),
                "kernels": kernels,
                "quirks": [{name: getattr(one, name) for name in _QUIRK} for one in quirks],
                "fp16_faults": [{key: getattr(one, name) for key, name in _FAULT.items()} for one in faults],
            }
        )
        return 0
    if quiet:
        echo(f"{target.name}: {target.title}, opset up to {target.max_opset}, IR up to {target.max_ir}")
        return 0
    echo(f"{target.name}: {target.title}")
    if target.ort_version:
        level = target.feature_level or "unknown"
        echo(f"ONNX Runtime {target.ort_version}, DirectML {target.directml_version}, feature level {level}")
    echo(f"package: {target.package or 'Windows'}, from {target.windows} on; {target.served}")
    echo(f"loads opset <= {target.max_opset}, IR <= {target.max_ir}")
    if not target.opset_only:
        rows = sum(map(len, kernels.values()))
        echo(f"DirectML kernels: {rows} versions of {len(kernels)} operators; known quirks: {len(quirks)}")
        _show_kernels(kernels, with_types=op is not None)
        echo(f"FP16 faults known: {len(faults)}")
        echo_lines(f"  {one.id} ({one.when}; {one.outcome}; {one.confidence}): {one.why}" for one in faults)
    if target.options:
        echo(f"options: {', '.join(target.options)}")
    echo_lines(["sources:", *(f"  {source}" for source in target.sources)])
    return 0


_QUIRK = ("id", "code", "outcome", "confidence")

_FAULT = {
    "id": "id",
    "operators": "ops",
    **{name: name for name in ("outcome", "when", "limits", "why", "confidence", "measured_on", "sources")},
}
"""Attributes of a fault, by their names in JSON."""


def _kernels(target: Target, op: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return DirectML's kernels by operator; only those of ``op`` if it is set, possibly none.

    Raises:
        UsageError: neither DirectML nor the CPU provider knows ``op``.
    """
    table = target.tables.dml
    if op is not None and op not in table and op not in target.tables.cpu:
        close = get_close_matches(op, {**table, **target.tables.cpu}, 3)
        raise UsageError(f"unknown operator {op!r}", fix=f"close: {', '.join(close)}" if close else "see --help")
    return {
        key: [
            {
                "since_version": k.since,
                "types": {label: sorted(names) for label, names in k.types.items()},
                "constant_cpu_inputs": sorted(k.const),
                "fuses": k.fuses,
                "fused_inputs": k.fused_inputs,
                "query": k.query,
                "made_by": k.made_by,
            }
            for k in table.get(key, {}).values()
        ]
        for key in ([op] if op else sorted(table))
    }


def _show_kernels(kernels: dict[str, list[dict[str, Any]]], *, with_types: bool) -> None:
    for key, versions in kernels.items():
        echo(f"  {key}: {', '.join(str(k['since_version']) for k in versions) or 'none'}")
        for k in versions if with_types else ():
            types = "; ".join(f"{label}: {' '.join(names)}" for label, names in k["types"].items())
            echo(f"    {k['since_version']}: {types}" + (f"; {k['query']}" if k["query"] else ""))


@command.command("diff")
@click.argument("a")
@click.argument("b")
@output_options("text", "json")
def diff(a: str, b: str, quiet: bool, output_format: str) -> int:
    """Show the changes from release A to release B."""
    changes = compare_targets(a, b)
    if output_format == "json":
        print_json({"from": a, "to": b, **changes})
        return 0
    if quiet:
        echo("; ".join(f"{key}: {len(value)}" for key, value in changes.items() if value) or "no differences")
        return 0
    for key, value in changes.items():
        echo(f"{key}: {', '.join(value) if value else 'nothing'}")
    return 0
