"""Parts of preparing one model of a folder: refuse attention that DirectML cannot run, and choose types to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import Hit, find_quirks
from dmlprep.directml.targets import Target
from dmlprep.genai.config import GenaiConfig
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, label, nodes
from dmlprep.pipeline.recipe import Recipe
from dmlprep.record import Finding, RunRecord

_GROUPED = "GroupQueryAttention"
_ATTENTION = (_GROUPED, "MultiHeadAttention")
_FORMS = (
    "grouped-ignored",
    "grouped-refused",
    "grouped-norm",
    "grouped-packed",
    "grouped-rotary",
    "attention-apart",
    "attention-causal",
)
"""Names of attention's quirks (DirectML faults) that make a model wrong, or fail to load, unless a step rewrites it."""


@dataclass(frozen=True)
class PreparedModel:
    """The result for one model of a folder; ``prepared`` is the model opened from the written file, or ``None``.

    It is ``None`` if the run failed; ``record`` then has the reason.
    """

    record: RunRecord
    original: Model
    prepared: Model | None

    @property
    def captures(self) -> str:
        """The reason why DirectML cannot capture its graph (record it once and replay it); empty if it can.

        It can if no node has a subgraph, every compute node is on DirectML, and no tensor is copied between CPU and
        GPU. If the placement is unknown, only subgraphs count.
        """
        for node in self.prepared.ir.graph if self.prepared is not None else ():
            if any(attribute_graphs(node)):
                return f"{Path(self.record.input).name} has control flow: {label(node)} ({node.op_type})"
        placed = self.record.facts.placement_after
        if placed is None:
            return ""
        if placed.compute_nodes_on_cpu:
            names, count = ", ".join(placed.compute_on_cpu[:3]), placed.compute_nodes_on_cpu
            return f"{count} compute nodes of {Path(self.record.input).name} run on the CPU ({names})"
        return f"each run copies {placed.crossings} tensors between CPU and GPU" if placed.crossings else ""


def state_names(config: GenaiConfig) -> list[re.Pattern[str]]:
    """Return patterns that match the inputs and outputs for states, such as the KV cache.

    They come from the names with one ``%d`` in the config, where genai inserts the number of the layer.
    """
    texts = [text for text in dict.fromkeys(_named(config.document.get("model"))) if text.count("%d") == 1]
    return [re.compile("[0-9]+".join(map(re.escape, text.split("%d")))) for text in texts]


def _named(value: Any) -> Iterator[str]:
    """Yield every string inside ``inputs`` and ``outputs`` of a config or a part of it."""
    stack = [(value, False)]
    while stack:
        at, inside = stack.pop()
        if isinstance(at, Mapping):
            stack += [(inner, inside or key in ("inputs", "outputs")) for key, inner in at.items()]
        elif isinstance(at, list):
            stack += [(inner, inside) for inner in at]
        elif isinstance(at, str) and inside:
            yield at


def kept_types(model: Model, config: GenaiConfig) -> list[str]:
    """Return the names of floating-point inputs and outputs that keep their types when the model becomes FP16.

    These are all except the cache, whose size grows with the text, and the logits: for both, genai uses the model's
    types. The others connect models, or come from a processor.
    """
    states = state_names(config)
    logits = config.text("model.decoder.outputs.logits") or "logits"
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    values = (*model.ir.graph.inputs, *model.ir.graph.outputs)
    names = dict.fromkeys(value.name or "" for value in values if value.dtype in floats)
    return [name for name in names if name != logits and not any(one.fullmatch(name) for one in states)]


def without_checks(recipe: Recipe) -> Recipe:
    """Return the recipe with all checks turned off: a folder is proved as a whole, not model by model."""
    parity = msgspec.structs.replace(recipe.parity, cpu=False, dml="off", fp16_emulation="off")
    return msgspec.structs.replace(recipe, parity=parity)


def is_grouped(model: Model) -> bool:
    """Return True if a model has GroupQueryAttention, whose cache DirectML reads in one form only (DP649)."""
    return any(node.op_type == _GROUPED for node in nodes(model.ir))


def refuse_forms(
    model: Model, target: Target, context_length: int | None, *, mended: bool, notes: Sequence[Finding] = ()
) -> None:
    """Raise an error if the model has attention that DirectML computes wrongly, or cannot load.

    Args:
        context_length: largest number of tokens in a text; ``None`` if it is not known.
        mended: True if the steps have run. Before, faults that a step can rewrite do not count.
        notes: findings of the steps, which explain why a step did not rewrite a node (DP641).

    Raises:
        ModelRefused: DP878, the model has such a node.
    """
    if target.opset_only or not any(node.op_type in _ATTENTION for node in nodes(model.ir)):
        return
    for hit in find_quirks(read_facts(model, target.tables), target):
        if hit.quirk.id not in _FORMS or (hit.quirk.rewrite is not None and not mended):
            continue
        if why := _harms(hit, context_length):
            what = f"{why}: on DirectML {_OUTCOME.get(hit.quirk.outcome, hit.quirk.outcome)} ({hit.quirk.code})"
            where = f"{Path(model.path or '').name}, node {hit.node.path}"
            instead = f"export the model without {hit.node.op}, or run it on the CPU"
            about = hit.node.label, hit.quirk.id
            reasons = (
                one.message for one in notes if one.code == "DP641" and (one.node, one.facts.get("quirk")) == about
            )
            fix = f"{next(reasons, 'no equal form with a cache is known')}: {instead}"
            raise ModelRefused(what, where=where, code="DP878", fix=fix)


_OUTCOME = {"wrong numbers": "it computes wrong numbers without an error", "create fails": "it does not load"}


def _harms(hit: Hit, context_length: int | None) -> str:
    """Return what is wrong with an attention node; empty if it is harmless: its window is as long as any text."""
    window = int(hit.node.attribute("local_window_size", -1))
    if hit.sure or window < 0:
        return hit.detail
    if context_length is not None and context_length <= window:
        return ""
    text = "texts" if context_length is None else f"texts of up to {context_length} tokens"
    return f"it attends to a window of {window} tokens, but {text} are longer"
