"""The choice among candidates, and the recipe as it is handed over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from dmlprep.core._version import __version__
from dmlprep.core.text.documents import toml_comment
from dmlprep.parity.bench import fastest
from dmlprep.record.tuning import PLACEMENT, TIME, Candidate, Tuned


def choose(tuned: Tuned, *, proved: bool) -> Tuned:
    """With the choice, its recipe and the exit code.

    The best by rank is chosen; where times of a GPU are known, the best by rank that no other is surely faster than.

    Args:
        proved: only what passed its proof is good.
    """
    good = [one for one in tuned.candidates if _good(one, proved)]
    if not good:
        return _none(tuned)
    chosen, by = good[0], PLACEMENT
    if tuned.bench is not None and not tuned.bench.note:
        quickest = fastest(tuned.bench, [one.name for one in good])
        if quickest:
            chosen, by = next(one for one in good if one.name == quickest), TIME
    notes = "".join(f"{toml_comment(note)}\n" for note in _notes(tuned, chosen, by))
    return replace(tuned, chosen=chosen.name, chosen_by=by, recipe=notes + chosen.recipe, exit_code=0, error="")


def _good(one: Candidate, proved: bool) -> bool:
    outcomes = ("passed",) if proved else ("", "passed")
    return one.figures is not None and one.figures.runs and one.proof in outcomes


def _notes(tuned: Tuned, one: Candidate, by: str) -> list[str]:
    made = one.figures
    assert made is not None
    on_cpu = f"nodes on the CPU: {made.cpu_nodes} of {made.nodes}"
    found = [
        f"dmlprep {__version__} tune {PurePath(tuned.model).name}: {one.name}, by {by}",
        f"{on_cpu}; fused partitions: {made.partitions}; crossings: {made.crossings}; opset {made.opset}",
        f"proved on: {', '.join(one.devices)}"
        if one.proof == "passed"
        else "not proved: prepare proves what it writes",
    ]
    return [*found, f"sizes that are free: {', '.join(tuned.free)}"] if tuned.free else found


def _none(tuned: Tuned) -> Tuned:
    """Why there is no choice: what did not run may be good, so that it says more than what failed."""
    waiting = next((one for one in tuned.candidates if one.proof in ("not-run", "not-proven")), None)
    first = waiting or next((one for one in tuned.candidates if one.reason), None)
    why = f": {first.name}: {first.reason}" if first is not None else ""
    code = 3 if waiting is not None else 1
    return replace(tuned, chosen="", recipe="", exit_code=code, error=f"no candidate passed{why}")
