"""Compare the prediction with where a real DirectML session places the nodes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from dmlprep.errors import CheckNotRun
from dmlprep.model import Model
from dmlprep.model.walk import nodes
from dmlprep.placement.place import place
from dmlprep.record import Finding, Verdict, finding
from dmlprep.target import Target

__all__ = ["verify_placement"]

CHECK = "placement on dml"


def verify_placement(model: Model, target: Target, device_id: int | None = None) -> Verdict:
    """Load a copy of the model on DirectML, graph optimisation and fusion off, and compare every named node.

    Nodes that ONNX Runtime inlines have no names there and are not compared.

    Returns:
        ``passed`` where every node stands as predicted; ``failed`` with a finding (DP523) for each that does not, or
        where the model does not load.

    Raises:
        CheckNotRun: no DirectML session can be had here.
    """
    from dmlprep.runtime import DATA_FOLDER, SessionFailure, SessionOptions, dml_status, open_dml

    began = time.perf_counter()
    status = dml_status()
    if not status.available:
        raise CheckNotRun(
            f"no DirectML session can be had here: {status.reason}",
            where="--verify",
            code="DP803",
            fix="dmlprep runtime install (Linux), or run on Windows with a GPU",
        )
    copy = model.copy()
    for index, node in enumerate(nodes(copy.ir)):
        node.name = f"{index}:{node.op_type}"
    expected = {n.name: n for n in place(copy, target).nodes if not n.origin}
    labels = {f"{i}:{n.op_type}": n.name or f"{n.op_type} {i}" for i, n in enumerate(nodes(model.ir))}
    with tempfile.TemporaryDirectory(prefix="dmlprep-") as folder:
        path = Path(folder) / "model.onnx"
        data = copy.save_linked(path)
        options = SessionOptions(
            optimization="disabled",
            unfused=True,
            record_placement=True,
            device_id=device_id,
            config={DATA_FOLDER: str(data)},
        )
        try:
            with open_dml(path, options) as session:
                seen = {n.name: n.provider for n in session.placement()}
                device = session.device
        except SessionFailure as failed:
            return Verdict(
                CHECK, "failed", f"the model does not load: {failed}", seconds=round(time.perf_counter() - began, 3)
            )
    misses: list[Finding] = [
        finding(
            "DP523",
            f"predicted {expected[name].provider} ({expected[name].code}), the session says {provider}",
            node=labels.get(name, name),
        )
        for name, provider in seen.items()
        if name in expected and expected[name].provider != provider
    ]
    compared = sum(name in expected for name in seen)
    seconds = round(time.perf_counter() - began, 3)
    if misses:
        return Verdict(
            CHECK,
            "failed",
            f"{len(misses)} of {compared} nodes stand elsewhere than predicted",
            device=device,
            seconds=seconds,
            findings=misses,
        )
    return Verdict(CHECK, "passed", device=device, seconds=seconds, tolerance=f"{compared} nodes, all as predicted")
