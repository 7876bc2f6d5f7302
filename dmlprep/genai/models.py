"""One model of a language model's folder: what of it is refused, and through which steps it goes to DirectML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from dmlprep.errors import ModelRefused
from dmlprep.genai.config import GenaiConfig
from dmlprep.model import Model
from dmlprep.model.unchanged import data_files
from dmlprep.model.walk import nodes
from dmlprep.options import PrepareOptions
from dmlprep.pipeline import Observer, PrepareRequest, prepare
from dmlprep.placement.reading import read_facts
from dmlprep.quirks import Hit, find_quirks
from dmlprep.recipe import Plan, Recipe, apply_settings, make_plan
from dmlprep.record import RunRecord
from dmlprep.targets import Target

__all__ = ["PreparedModel", "is_grouped", "kept_types", "plan_for", "prepare_model", "refuse_forms", "state_names"]

_GROUPED = "GroupQueryAttention"
_ATTENTION = (_GROUPED, "MultiHeadAttention")
_FORMS = ("grouped-ignored", "grouped-packed", "grouped-rotary", "attention-apart", "attention-causal")
"""Quirks of attention that make a language model wrong, or no session, where no step mended them."""


@dataclass(frozen=True)
class PreparedModel:
    """What became of one model.

    Attributes:
        record: of its run.
        data: its data files, of the folder as it came.
        grouped: whether it has GroupQueryAttention, whose cache DirectML reads in one form alone (DP649).
    """

    record: RunRecord
    data: tuple[Path, ...]
    grouped: bool

    @property
    def captures(self) -> str:
        """Why its graph cannot be captured; empty where it can: every compute node on DirectML, no copies between."""
        placed = self.record.facts.placement_after
        if placed is None:
            return ""
        if placed.compute_nodes_on_cpu:
            names, count = ", ".join(placed.compute_on_cpu[:3]), placed.compute_nodes_on_cpu
            return f"{count} compute nodes of {Path(self.record.input).name} run on the CPU ({names})"
        return f"{placed.crossings} tensors cross between CPU and GPU in each run" if placed.crossings else ""


def state_names(config: GenaiConfig) -> list[re.Pattern[str]]:
    """Names of the inputs and outputs that hold states, such as the KV cache: those that the config writes with %d.

    A name with several %d is none: genai puts one number in, and a pattern of many takes for ever to match.
    """
    patterns = []
    for text in dict.fromkeys(_named(config.document.get("model"))):
        if text.count("%d") == 1:
            patterns.append(re.compile("[0-9]+".join(map(re.escape, text.split("%d")))))
    return patterns


def _named(value: object) -> Iterator[str]:
    """Every name of an input or output that a config has."""
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
    """Floating inputs and outputs that keep their types when the model becomes FP16.

    The cache becomes FP16, since it is as large as the text is long, and so do the logits: genai takes the type of both
    from the model. What else goes from one model to another, or comes from a processor, stays as it is.
    """
    states = state_names(config)
    logits = config.text("model.decoder.outputs.logits") or "logits"
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    found = []
    for value in (*model.ir.graph.inputs, *model.ir.graph.outputs):
        name = value.name or ""
        if value.dtype in floats and name != logits and not any(one.fullmatch(name) for one in states):
            found.append(name)
    return list(dict.fromkeys(found))


def plan_for(recipe: Recipe, target: str, settings: Mapping[str, object], keep: Sequence[str]) -> Plan:
    """The steps for one model; its outputs are proved with the whole folder, so that no check of its own runs here."""
    own: dict[str, object] = {"parity.cpu": False, "parity.dml": "off", "parity.fp16_emulation": "off"}
    if "fp16" in recipe.step and "step.fp16.keep_io" not in settings:
        own["step.fp16.keep_io"] = list(keep)
    if target:
        own["target"] = target
    return make_plan(apply_settings(recipe, {**settings, **own}), {})


def prepare_model(
    source: Path, out: Path, plan: Plan, *, grouped: bool, vram: int | None, observer: Observer
) -> PreparedModel:
    """Run the steps on one model, and write it. Its record is not left beside it.

    Raises:
        UsageError: as ``prepare``.
    """
    data = tuple(data_files(Model.open(source)))
    options = PrepareOptions(external_data=bool(data), vram=vram)
    request = PrepareRequest(source=source, out=out, plan=plan, options=options, observer=observer)
    record = prepare(request)
    request.record_path.unlink(missing_ok=True)
    return PreparedModel(record, data, grouped)


def is_grouped(model: Model) -> bool:
    """Whether a model has GroupQueryAttention."""
    return any(node.op_type == _GROUPED for node in nodes(model.ir))


def refuse_forms(path: Path, target: Target, context_length: int | None, *, mended: bool) -> None:
    """Refuse attention that DirectML computes wrongly, or makes no session of, and that has no equal form.

    Args:
        context_length: positions that a text has at most; ``None`` where it is not known.
        mended: whether the steps have run: what they could have mended counts from then on.

    Raises:
        ModelRefused: DP878.
    """
    if target.opset_only:
        return
    model = Model.open(path)
    if not any(node.op_type in _ATTENTION for node in nodes(model.ir)):
        return
    for hit in find_quirks(read_facts(model, target.tables), target):
        if hit.quirk.id not in _FORMS or (hit.quirk.rewrite is not None and not mended):
            continue
        if why := _harms(hit, context_length):
            raise ModelRefused(
                f"{why}: on DirectML {_OUTCOME.get(hit.quirk.outcome, hit.quirk.outcome)} ({hit.quirk.code})",
                where=f"{path.name}, node {hit.node.path}",
                code="DP878",
                fix=f"no equal form with a cache is known: export the model without {hit.node.op}, or run it on the "
                "CPU",
            )


_OUTCOME = {"wrong numbers": "its numbers are wrong, without an error", "create fails": "no session is made of it"}


def _harms(hit: Hit, context_length: int | None) -> str:
    """What is wrong with a node; empty where its window is as long as any text."""
    window = int(hit.node.attribute("local_window_size", -1))
    if hit.sure or window < 0:
        return hit.detail
    if context_length is not None and context_length <= window:
        return ""
    text = "texts" if context_length is None else f"texts of up to {context_length} tokens"
    return f"it attends to a window of {window} tokens, and {text} are longer"
