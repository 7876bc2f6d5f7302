"""What keeps ONNX Runtime from capturing a model's run as a graph."""

from __future__ import annotations

from collections.abc import Iterator

from dmlprep.directml.placement import Placement
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.record import Finding, finding


def capture_findings(file: str, placement: Placement, graph: GraphFacts) -> Iterator[Finding]:
    """Why a session that is to capture its graph is refused (``InferenceSession::Initialize``).

    The main graph may have no node with a subgraph. Nodes may run on the CPU, as shape arithmetic does, where no tensor
    is copied between the devices for it.

    Args:
        file: name of the model's file.
    """
    control = [node for node in graph.nodes if node.subgraphs]
    how = 'or write "enable_graph_capture": "0" into the options of dml'
    if control:
        text = f"graph capture is on, and {file} has control flow: {control[0].path} ({control[0].op})"
        yield finding("DP861", text, node=control[0].path, remedy=f"export the model without it, {how}", file=file)
    if not placement.crossings:
        return
    away = [node for node in placement.nodes if node.provider != "DmlExecutionProvider"]
    compute = [node for node in away if node.role == "compute"] or away
    crossing = placement.crossings[0]
    first = compute[0] if compute else None
    what = f"{first.name} ({first.op}): {first.reason}" if first is not None else crossing.value
    count = "1 node leaves" if len(compute) == 1 else f"{len(compute)} nodes leave"
    text = f"graph capture is on, and {count} DirectML in {file} with copies between the devices, first {what}"
    node = first.name if first is not None else crossing.consumer
    yield finding("DP861", text, node=node, remedy=f"dmlprep prepare the model, {how}", file=file)
