"""Show the result of ``check`` as JSON: where each node runs, findings, versions. docs/placement.md documents it."""

from __future__ import annotations

import msgspec

from dmlprep.core.text.documents import to_json
from dmlprep.directml.placement import Placement
from dmlprep.record import RunRecord
from dmlprep.record.run_record import headline

FORMAT = 1
"""Version of the form of this JSON. It increases if a field changes its meaning or is removed."""

NODES = 50_000
"""The most nodes in one document, for all its models and targets together: about 20 MB.

Functions let a file of 4 KB have 10,000 nodes, and ``--target all`` lists each of them 16 times.
"""


def to_object(record: RunRecord, placement: Placement | None, most: int = NODES) -> dict[str, object]:
    """Return the result of ``check`` for one model on one target, as plain values for JSON.

    ``most``: limit on the number of nodes, of crossings (tensors copied between CPU and GPU), and of names of nodes.
    Without a ``placement``, ``summary`` is null, and the lists are empty.
    """
    head: dict[str, object] = {
        "format": FORMAT,
        "dmlprep": record.version,
        "model": record.input,
        "target": record.target,
        "target_reason": record.target_reason,
        "opset": record.opset_before.get("", record.opset_before.get("ai.onnx", 0)),
        "opsets": record.opset_before,
        "ir_version": record.ir_before,
        "exit_code": record.exit_code,
        "headline": msgspec.to_builtins(headline(record)),
        "findings": [msgspec.to_builtins(f) for f in record.findings],
        "verdicts": [msgspec.to_builtins(v) for v in record.verdicts],
        "prepare": msgspec.to_builtins(record.facts.prepare),
        "opportunities": msgspec.to_builtins(record.facts.opportunities),
        "memory": msgspec.to_builtins(record.facts.memory),
    }
    if placement is None:
        return {**head, "summary": None, "nodes": [], "nodes_left_out": 0, "crossings": [], "free_dimensions": {}}
    nodes = [
        {
            "name": n.name,
            "graph": n.graph,
            "operator": n.op,
            "since_version": n.since_version,
            "provider": n.provider,
            "reason": n.code,
            "detail": n.reason,
            "partition": n.partition,
            "not_fused": n.not_fused,
            "not_fused_detail": n.not_fused_reason,
            "role": n.role,
            "origin": n.origin,
            "flops": n.flops,
            "source": msgspec.to_builtins(n.source),
        }
        for n in placement.nodes[:most]
    ]
    return {
        **head,
        "summary": {
            **msgspec.structs.asdict(placement.summary()),
            "compute_on_cpu": placement.compute_on_cpu[:most],
            "feed_bytes": placement.feed_bytes,
            "best_opset": record.facts.best_opset,
        },
        "nodes": nodes,
        "nodes_left_out": len(placement.nodes) - len(nodes),
        "crossings": [msgspec.to_builtins(c) for c in placement.crossings[:most]],
        "free_dimensions": placement.free_dimensions,
    }


def render(models: list[list[dict[str, object]]], *, several: bool = False) -> bytes:
    """Return the JSON document in UTF-8.

    A model on one target is its object. A model on several targets is ``{"format", "targets": [...]}``.

    Args:
        models: for each model, its objects from ``to_object``, one for each target.
        several: return ``{"format", "models": [...]}`` with all models; otherwise only the first model is returned.
    """
    each = [objects[0] if len(objects) == 1 else {"format": FORMAT, "targets": objects} for objects in models]
    whole: dict[str, object] = {"format": FORMAT, "models": each} if several else each[0]
    return to_json(whole, measures=False)
