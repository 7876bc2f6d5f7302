"""Show an outlook, the predicted effect of ``prepare``, for ``check --plan``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from dmlprep.core.text.sizes import bytes_text
from dmlprep.portable.shares import percent
from dmlprep.record import StepRecord
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.outlook import Fate, Outlook, prepare_command
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.run_record import target_text

_SHOWN = 12
_CHOSEN = {"placement": ", which keeps the most nodes on DirectML", "option": ", set in the step", "target": ""}


def in_one_line(outlook: Outlook, model: str) -> str:
    """Return one line: the number of nodes on DirectML after ``prepare``, or the reason why it refuses the model."""
    best = outlook.best
    after = best.after
    if after is None:
        return f"{model}: prepare would refuse it: {best.refused}"
    parts = [f"{after.dml_nodes} of {after.nodes} nodes on DirectML after {outlook.recipe} ({outlook.target})"]
    parts += [_copies(after.crossings)] if after.crossings else []
    parts += [f"free sizes: {outlook.pins}"] if outlook.pins else []
    return f"{model}: {', '.join(parts)}"


def in_full(outlook: Outlook, model: str, more: Sequence[str] = ()) -> list[str]:
    """Return the lines of ``check --plan``: sizes, steps, placement, memory, moved and staying nodes, the command.

    ``more``: the last words of the command.
    """
    lines = [f"{model}: opset {outlook.before.opset}, recipe {outlook.recipe}"]
    lines += [f"target {target_text(outlook.target, outlook.target_reason)}"]
    lines += _sizes(outlook)
    lines += ["", "steps:"]
    for number, step in enumerate(outlook.best.steps, 1):
        lines += _step(number, step, outlook.best)
    if outlook.refused:
        return [*lines, "", f"prepare would refuse this model: {outlook.refused}"]
    lines += ["", *_placements(outlook)]
    lines += [memory_line(outlook.best.memory)] if outlook.best.memory is not None else []
    lines += _groups("moves to DirectML:", (f for f in outlook.best.fates if f.step), lambda f: f"by step {f.step}")
    lines += _groups("stays on the CPU (no option moves it to DirectML):", outlook.best.staying, lambda f: f.reason)
    lines += _half(outlook)
    target = "" if outlook.target_reason else outlook.target
    return [*lines, "", f"run: {prepare_command(model, outlook, target=target, more=more)}"]


def _sizes(outlook: Outlook) -> list[str]:
    if not outlook.free:
        return []
    lines = ["free sizes (DirectML does not fuse nodes that depend on them):"]
    for name, places in list(outlook.free.items())[:_SHOWN]:
        lines.append(f"  {name}" if name in places else f"  {name} ({', '.join(places)})")
    if outlook.example is None:
        return [*lines, "pass each one with --pin NAME=SIZE or --pin INPUT:AXIS=SIZE"]
    if outlook.example.refused:
        return [*lines, f"{outlook.pins} does not work: {outlook.example.refused}"]
    return [*lines, f"the lines below use {outlook.pins} as an example: choose your own sizes"]


def _step(number: int, step: StepRecord, outlook: Outlook) -> list[str]:
    nodes = f"{step.nodes_before} -> {step.nodes_after} nodes" if step.outcome == "changed" else step.outcome
    line = f"  {number}. {step.step}: {nodes}"
    if step.facts.opset_chosen_by:
        why = _CHOSEN.get(outlook.opset_chosen_by, "")
        stays = outlook.opset_before == outlook.opset_after
        line += f"; opset {outlook.opset_before} {'stays' if stays else f'-> {outlook.opset_after}'}{why}"
    notes = [f for f in step.findings if f.code != "DP201"]
    lines = [line, *(f"       {f.message}" for f in notes[:_SHOWN])]
    return [*lines, f"       ... and {len(notes) - _SHOWN} more"] if len(notes) > _SHOWN else lines


def _placements(outlook: Outlook) -> list[str]:
    rows = [("before", outlook.before), ("after", outlook.after)]
    if outlook.best is outlook.example:
        rows.append(("after, with these sizes", outlook.example.after))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {_placement(placed)}" for name, placed in rows if placed is not None]


def _placement(placed: PlacementFacts) -> str:
    text = f"{placed.dml_nodes} of {placed.nodes} nodes on DirectML"
    if placed.flop_share is not None:
        text += f", {percent(placed.flop_share)} of operations"
    return f"{text}; {_count(placed.partitions, 'fused partition')}, {_copies(placed.crossings)}"


def _groups(title: str, fates: Iterable[Fate], says: Callable[[Fate], str]) -> list[str]:
    groups = Counter((f.op, says(f)) for f in fates)
    rows = [f"  {count:>5} x {op}  {why}" for (op, why), count in groups.most_common()]
    return ["", title, *rows] if rows else []


def _half(outlook: Outlook) -> list[str]:
    half = outlook.best.half
    if half is None:
        return []
    total = half.half + half.single
    text = f"FP16: {half.half} of {total} floating-point nodes ({percent(half.half / total if total else 0)})"
    if half.by_rule:
        text += "; in FP32 by rule: " + ", ".join(f"{rule} {count}" for rule, count in sorted(half.by_rule.items()))
    if half.search:
        text += "; if the error is too large, prepare searches for more to keep in FP32"
    return ["", text]


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number or 'no'} {what}s"


def _copies(number: int) -> str:
    return f"{number or 'no'} {'copy' if number == 1 else 'copies'} between CPU and GPU"


def memory_line(estimate: MemoryEstimate) -> str:
    """Return a memory estimate as one line; for an unknown need, the line gives the reason.

    Example: ``memory of the device: about 120.1 MB (weights 102.2 MB, ...), and 107.9 MB of system memory``.
    """
    if not estimate.known:
        return f"memory of the device: unknown, {estimate.unknown}"
    parts = [
        ("weights", estimate.weights),
        ("activations", estimate.activations),
        ("inputs and outputs", estimate.feeds),
    ]
    breakdown = ", ".join(f"{name} {bytes_text(count)}" for name, count in parts)
    shared = bytes_text(max(estimate.shared_peak, estimate.shared_load))
    return f"memory of the device: about {bytes_text(estimate.peak)} ({breakdown}), and {shared} of system memory"
