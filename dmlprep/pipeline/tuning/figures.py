"""What the placement rules say of a model, in the numbers that candidates are ranked by."""

from __future__ import annotations

from dmlprep.directml.placement import place
from dmlprep.directml.targets import Target
from dmlprep.graph.model import Model
from dmlprep.metrics import holds_fp16
from dmlprep.record.tuning import Figures

_DML = "DmlExecutionProvider"


def figures(model: Model, target: Target) -> tuple[Figures, tuple[str, ...]]:
    """A model's figures on ``target``, and the dimensions of its inputs that are free.

    Raises:
        UsageError: the target's kernels are not known.
    """
    placed = place(model, target)
    alone = [n for n in placed.nodes if n.provider == _DML and n.partition is None and n.op != "Cast"]
    found = Figures(
        opset=model.opset,
        fp16=holds_fp16(model),
        nodes=len(placed.nodes),
        cpu_nodes=len(placed.nodes) - placed.dml_nodes,
        cpu_compute=len(placed.compute_on_cpu),
        partitions=placed.partitions,
        alone=len(alone),
        crossings=len(placed.crossings),
        crossing_bytes=placed.crossing_bytes,
        model_bytes=model.statistics().nbytes,
        feed_bytes=placed.feed_bytes,
        runs=placed.runs,
    )
    return found, tuple(placed.free_dimensions)
