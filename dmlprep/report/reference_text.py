"""Show recipes and DirectML releases as text, from the data that ``explain --format json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.sizes import count_text
from dmlprep.record.run_record import target_text

_WIDTH = 100

_RELEASES = "{:<14} {:<13} {:<9} {:>8} {:>6} {:>15}  {}"


def recipe_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a recipe as lines: its steps with all options, and its proof."""
    lines = [f"{data['recipe']}: {data['doc']}", f"target {target_text(data['target'], data['target_reason'])}"]
    for number, step in enumerate(data["steps"], 1):
        lines.append(f"{number}. {step['step']}: {step['summary']}")
        lines += [f"     {name} = {toml_value(value)}" for name, value in step["options"].items()]
    parity = data["parity"]
    proofs = ["parity on the CPU"] if parity["cpu"] else []
    if parity["cpu"] and parity["fp16_emulation"] != "off" and any(step["pass"] == "fp16" for step in data["steps"]):
        proofs.append(f"the FP16 emulation ({parity['fp16_emulation']})")
    if parity["dml"] != "off":
        proofs.append(f"parity on DirectML ({parity['dml']})")
    return [*lines, f"then: {', '.join(proofs) or 'no proof'}; tolerance {parity['tolerance']}"]


def list_recipes(recipes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the built-in recipes as lines, two for each."""
    width = max(map(len, recipes))
    lines = []
    for name, one in recipes.items():
        lines += [f"{name:<{width}}  {one['doc']}", f"{'':<{width}}  steps: {', '.join(one['steps']) or 'none'}"]
    return lines


def list_releases(releases: Sequence[Mapping[str, Any]], latest: str, default: str, reason: str) -> list[str]:
    """Return all releases as a table, then the Windows and the support of each package, the latest and the default."""
    head = ("target", "ONNX Runtime", "DirectML", "opset <=", "IR <=", "DirectML opset", "package")
    lines = [_RELEASES.format(*head)]
    for one in releases:
        best = "unknown" if one["opset_only"] else str(one["directml_opset"])
        versions = (one["onnxruntime"] or "-", one["directml"] or "-", one["max_opset"], one["max_ir"], best)
        lines.append(_RELEASES.format(one["name"], *versions, one["package"] or "Windows"))
    lines.append("packages, the oldest Windows for each, and its fixes:")
    for one in {one["package"]: one for one in releases}.values():
        lines.append(f"  {one['package'] or 'Windows'}: {one['windows']}; {one['served']}")
    lines.append(f"latest is {latest}, the newest release of ONNX Runtime with DirectML")
    return [*lines, f"the default here is {default}: {reason}"]


def release_lines(data: Mapping[str, Any], *, with_types: bool) -> list[str]:
    """Return one release as lines: versions, limits, kernels, FP16 faults, sources.

    ``with_types``: True to show the element types of each kernel.
    """
    lines = [f"{data['name']}: {data['title']}"]
    if data["onnxruntime"]:
        level = data["feature_level"] or "unknown"
        lines.append(f"ONNX Runtime {data['onnxruntime']}, DirectML {data['directml']}, feature level {level}")
    lines.append(f"package: {data['package'] or 'Windows'}, from {data['windows']} on; {data['served']}")
    lines.append(f"loads opset <= {data['max_opset']}, IR <= {data['max_ir']}")
    if not data["opset_only"]:
        kernels, faults = data["kernels"], data["fp16_faults"]
        count = f"{count_text(sum(map(len, kernels.values())), 'version')} of {count_text(len(kernels), 'operator')}"
        lines.append(f"DirectML kernels: {count}; known quirks: {len(data['quirks'])}")
        for name, versions in kernels.items():
            lines.append(f"  {name}: {', '.join(str(k['since_version']) for k in versions) or 'none'}")
            lines += map(_kernel, versions) if with_types else ()
        lines.append(f"FP16 faults known: {len(faults)}")
        lines += (f"  {f['id']} ({f['when']}; {f['outcome']}; {f['confidence']}): {f['why']}" for f in faults)
    lines += [f"options: {', '.join(data['options'])}"] if data["options"] else []
    return [*lines, "sources:", *(f"  {source}" for source in data["sources"])]


def _kernel(kernel: Mapping[str, Any]) -> str:
    types = "; ".join(f"{label}: {' '.join(names)}" for label, names in kernel["types"].items())
    return f"    {kernel['since_version']}: {types}" + (f"; {kernel['query']}" if kernel["query"] else "")


def difference_lines(changes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the differences of two releases as lines, by kind; kinds without a difference are left out."""
    lines = []
    for kind, texts in changes.items():
        if texts:
            lines.append(f"{kind}: {len(texts)}")
            each = texts if any("," in text or " " in text for text in texts) else wrap(", ".join(texts), _WIDTH)
            lines += [f"  {text}" for text in each]
    return lines or ["no differences"]
