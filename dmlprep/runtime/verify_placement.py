"""Compare the predicted placement with that of a real DirectML session, and time each node."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dmlprep.core.errors import CheckNotRun
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.directml.placement.place import place
from dmlprep.directml.targets import Target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.record import Check, DeviceInfo, Finding, Verdict, finding

if TYPE_CHECKING:
    from dmlprep.runtime import Session, SessionOptions

CHECK = Check("placement", "dml")

RUNS = 3
"""Number of timed runs. The first one compiles shaders on some drivers, so it has only a third of the weight."""

_SLOWEST = 5

MakeFeed = Callable[[], Mapping[str, np.ndarray]]


def verify_placement(
    model: Model, target: Target, session: SessionOptions | None = None, feed: MakeFeed | None = None
) -> Verdict:
    """Compare the predicted provider of each node with that in a DirectML session of a copy of the model.

    The session has no graph optimisation and no fusion. Nodes that ONNX Runtime inlines have no names there and are not
    compared. DirectML can crash with fusion off on a model that loads with fusion. Then fusion stays on, and the
    verdict says so.

    Args:
        feed: returns inputs to time the nodes (DP524); ``None``: the model is not run.

    Returns:
        The verdict: ``failed`` if the model does not load, or a prediction is wrong; each wrong one has a finding
            (DP523).

    Raises:
        CheckNotRun: DirectML is not available, its release does not record placement, or the memory is too small.
    """
    from dmlprep.runtime import SessionFailure, SessionOptions, another_release

    began = time.perf_counter()
    chosen = replace(session or SessionOptions(), release=target.ort_version)
    _demand_directml(chosen)
    copy = model.copy()
    for index, node in enumerate(nodes(copy.ir)):
        node.name = f"{index}:{node.op_type}"
    # Place the copy instead of the model: a session answers by name, and only the copy's names are unique.
    expected = {n.name: n for n in place(copy, target).nodes if not n.origin}
    labels = {f"{i}:{n.op_type}": n.name or f"{n.op_type} {i}" for i, n in enumerate(nodes(model.ir))}
    try:
        placed, device, timed, how = _loaded(copy, chosen, feed, labels)
    except SessionFailure as failed:
        if failed.kind == "memory":
            raise CheckNotRun(f"out of memory: {failed.message}", where="--verify", fix=failed.fix) from failed
        seconds = round(time.perf_counter() - began, 3)
        return Verdict(CHECK, "failed", f"the model does not load: {failed}", seconds=seconds)
    compared = {name: provider for name, provider in placed.items() if name in expected}
    misses = []
    for name, provider in compared.items():
        if (wanted := expected[name]).provider != provider:
            text = f"predicted {wanted.provider} ({wanted.code}), the session reports {provider}"
            misses.append(finding("DP523", text, node=labels.get(name, name)))
    if other := another_release(device, target.ort_version):
        how += f"; {other}"
    reason = f"{len(misses)} of {len(compared)} nodes run on another provider than predicted{how}" if misses else ""
    return Verdict(
        CHECK,
        "failed" if misses else "passed",
        reason,
        device=device,
        seconds=round(time.perf_counter() - began, 3),
        tolerance="" if misses else f"{len(compared)} nodes, all as predicted{how}",
        findings=[*misses, *timed],
    )


def _demand_directml(session: SessionOptions) -> None:
    from dmlprep.runtime import dml_status

    status = dml_status(session=session)
    if not status.available:
        what = f"no DirectML session is possible on this machine: {status.reason}"
        fix = status.fix or "dmlprep doctor shows what is missing"
        raise CheckNotRun(what, where="--verify", code=status.code, fix=fix)


def _loaded(
    copy: Model, chosen: SessionOptions, feed: MakeFeed | None, labels: Mapping[str, str]
) -> tuple[dict[str, str], DeviceInfo, list[Finding], str]:
    """Return the result of ``_ask`` with fusion off, and an empty note.

    If that crashes, return the result with fusion on, and a note about the crash.
    """
    from dmlprep.runtime import DATA_FOLDER, SessionFailure

    with temporary_folder("verify") as folder:
        path = Path(folder) / "model.onnx"
        config = {DATA_FOLDER: str(copy.save_linked(path))}
        options = replace(chosen, optimization="disabled", unfused=True, record_placement=True, config=config)
        options = replace(options, profile=feed is not None)
        try:
            return *_ask(path, options, feed, labels), ""
        except SessionFailure as crash:
            if crash.kind != "crash":
                raise
            how = f"; with fusion, because without it {crash.message}"
        return *_ask(path, replace(options, unfused=False), feed, labels), how


def _ask(
    path: Path, options: SessionOptions, feed: MakeFeed | None, labels: Mapping[str, str]
) -> tuple[dict[str, str], DeviceInfo, list[Finding]]:
    """Open a session; return the provider by node, the device, and a finding with the times (none without ``feed``)."""
    from dmlprep.runtime import SessionFailure, open_dml

    with open_dml(path, options) as session:
        try:
            placed = {n.name: n.provider for n in session.placement()}
        except SessionFailure as failed:
            if failed.kind != "run":
                raise
            # The model loaded, but this release reports no placement.
            fix = "check for ort-1.24 or a newer target, with that release installed"
            raise CheckNotRun(failed.message, where="--verify", fix=fix) from failed
        return placed, session.device, [] if feed is None else [_times(session, feed, labels)]


def _times(session: Session, feed: MakeFeed, labels: Mapping[str, str]) -> Finding:
    from dmlprep.runtime import SessionFailure

    try:
        inputs = feed()
        for _ in range(RUNS):
            session.run_any(dict(inputs))
        kernels = session.timings()
    except (SessionFailure, CheckNotRun) as error:
        return finding("DP524", f"not measured: {error}")
    by_operator: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        by_operator[kernel.op_type] += kernel.seconds
    whole = sum(by_operator.values())
    slowest = sorted(by_operator.items(), key=lambda item: -item[1])[:_SLOWEST]
    text = ", ".join(f"{name} {1e3 * seconds / RUNS:.3g} ms" for name, seconds in slowest)
    rows = [
        {
            "name": labels.get(kernel.name, kernel.name),
            "operator": kernel.op_type,
            "provider": kernel.provider,
            "milliseconds": round(1e3 * kernel.seconds / RUNS, 4),
        }
        for kernel in sorted(kernels, key=lambda kernel: -kernel.seconds)
    ]
    return finding("DP524", f"{1e3 * whole / RUNS:.3g} ms a run: {text}", nodes=rows, runs=RUNS)
