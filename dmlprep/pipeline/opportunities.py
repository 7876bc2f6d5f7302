"""Find opportunities: changes that would still make a model faster, smaller or safer, by their estimated gain.

The estimates come from the placement, the copies, the memory and the predictions that a run has already. No model runs.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.core.errors import DmlprepError, UsageError
from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.shell import command_line
from dmlprep.core.text.sizes import count_text
from dmlprep.directml.placement.place import crossings_after, nbytes
from dmlprep.directml.placement.placement import Crossing
from dmlprep.directml.placement.table import recorded_name
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts
from dmlprep.directml.vram import peak_in_half
from dmlprep.graph.model import Model
from dmlprep.metrics import NamedMetric
from dmlprep.pipeline.dry_run import look_ahead
from dmlprep.pipeline.options import OPTIONS, PrepareOptions
from dmlprep.pipeline.placing import Placed
from dmlprep.pipeline.project import find_project
from dmlprep.pipeline.recipe import Plan, Recipe, make_plan
from dmlprep.pipeline.recipe.suiting import suggest_for
from dmlprep.record import RunRecord
from dmlprep.record.nodes import NAME_LENGTH
from dmlprep.record.opportunities import Opportunity, by_gain, opportunity
from dmlprep.record.outlook import Outlook, prepare_command
from dmlprep.record.placement import PlacementFacts
from dmlprep.runtime.default_target import default_target

RECIPE = "@static-fp32"
"""The default recipe of ``prepare``, and the one whose effect ``check`` predicts."""

_LEAST_SAVED = 0.1
"""The least share of the weights' size that FP16 must save: below it, the step ``fp16`` refuses the model."""


@dataclass(frozen=True)
class PrepareCommand:
    """A run of ``prepare`` on a model.

    Attributes:
        out: the folder or file of the result, as the user wrote it; ``result`` is the path of the prepared model.
    """

    source: Path
    out: Path
    result: Path
    plan: Plan
    options: PrepareOptions

    def again(self, **changed: Any) -> str:
        """Return the command line that prepares the model again, with some options changed, and with ``--force``.

        It has all other options of the run, also those of a project file. Functions and arrays, which only Python can
        pass, are left out.
        """
        words: list[str | Path] = ["dmlprep", "prepare", self.source, "-o", self.out]
        for name, value in ({"force": True} | self.options.chosen | changed).items():
            if isinstance(value, Mapping):
                flag = OPTIONS[name].flags[-1]
                words += [word for key, one in value.items() for word in (flag, f"{key}={toml_value(one)}")]
            elif isinstance(value, list):
                words += OPTIONS[name].words(name, [one for one in value if not isinstance(one, Mapping)])
            elif isinstance(self.options.metric, NamedMetric) and name == "metric":
                words += OPTIONS[name].words(name, self.options.metric.code)
            elif name != "metric" or isinstance(self.options.metric, str):
                words += OPTIONS[name].words(name, value)
        return command_line(*words, *_alone())


def _alone() -> list[str]:
    """Return the option without which a project file would add to a command; empty if there is no such file."""
    with contextlib.suppress(UsageError):
        if find_project() is None:
            return []
    return ["--no-project"]


_GROUPS = 8
"""The most operators on the CPU whose copies are computed."""


def of_check(model: Model, placed: Placed, record: RunRecord) -> list[Opportunity]:
    """Return the opportunities of a model as it is; the record of ``check`` has the prediction of ``prepare``.

    There are none if ``prepare`` would refuse the model, or if the prediction failed.
    """
    outlook = record.facts.prepare
    if record.facts.prepare_fails or (outlook is not None and outlook.refused):
        return []
    path, target = record.input, _named(placed.target)
    alone = _alone()
    every = [_half(model, placed, record, lambda recipe: prepare_command(path, outlook, recipe, target, alone))]
    if outlook is not None:
        staying = {fate.node for fate in outlook.best.fates if not fate.step}
        every.append(_prepare(outlook, prepare_command(path, outlook, target=target, more=alone)))
        every += _copies(placed, path, staying)
    return by_gain(filter(None, every))


def _named(target: Target) -> str:
    """Return the name of a target that a command must name; empty for the default."""
    return "" if target.name == default_target()[0] else target.name


def of_result(model: Model, placed: Placed, command: PrepareCommand, record: RunRecord) -> list[Opportunity]:
    """Return the opportunities of a model after the steps of ``prepare``, before its proof.

    A recipe that frames the model gets none of the kind ``pin``, because the names of its inputs have changed.
    """
    plan = command.plan
    every = [_unread(command, record), *_copies(placed, str(command.result), None)]
    steps = {step.pass_.name: step.name for step in plan.steps}
    if placed.placement.free_dimensions and "pin" in steps and plan.framing is None:
        every.append(_pin(model, placed, command))
    if plan.recipe.name == RECIPE and all(name.startswith("parity.") for name in command.options.settings):
        every.append(_half(model, placed, record, lambda recipe: command.again(recipe=recipe)))
    if "fp16" in steps and (halved := _fed_halves(placed.graph)):
        set_io = {f"step.{steps['fp16']}.keep_io": False}
        text = "use FP16 inputs and outputs, if the app can"
        again = command.again(settings={**command.options.settings, **set_io})
        every.append(opportunity("io", text, again, fed_bytes=halved))
    return by_gain(filter(None, every))


def safer(command: PrepareCommand, record: RunRecord) -> Iterator[Opportunity]:
    """Yield opportunities that make the proof of a result stronger: real inputs, DirectML."""
    if any(one.decides and one.on_made_inputs for one in record.verdicts):
        yield opportunity("feeds", "prove with real inputs", command.again(feeds=["FOLDER"]))
    if not any(one.check.provider == "dml" and one.outcome == "passed" for one in record.verdicts):
        kit = command_line("dmlprep", "kit", command.result, "-o", "kit.zip")
        yield opportunity("dml", "prove on a Windows machine with a GPU", kit)


def _prepare(outlook: Outlook, command: str) -> Opportunity | None:
    before, after = outlook.before, outlook.best.after
    if after is None:
        return None
    nodes = before.compute_nodes_on_cpu - after.compute_nodes_on_cpu
    effects = []
    if nodes > 0:
        effects.append(f"bring {nodes} of {count_text(before.compute_nodes_on_cpu, 'compute node')} to DirectML")
    if after.fused_nodes:
        effects.append(f"fuse {count_text(after.fused_nodes, 'node')} into {count_text(after.partitions, 'graph')}")
    text = " and ".join(effects) or "prepare the model"
    return opportunity(
        "prepare",
        f"{text}, at example sizes" if outlook.best.sizes else text,
        command,
        nodes=nodes,
        launches=_launches(before) - _launches(after),
        copies=before.crossings - after.crossings,
        copied_bytes=(outlook.best.pinned or before).crossing_bytes - after.crossing_bytes,
    )


def _launches(placed: PlacementFacts) -> int:
    return placed.partitions + placed.dml_nodes - placed.fused_nodes


def _half(model: Model, placed: Placed, record: RunRecord, command: Callable[[str], str]) -> Opportunity | None:
    """Return the gain of an FP16 recipe; ``None`` if none fits, or if little of the weights' size is FP32.

    A few weights may stay FP32, so the gain is an upper limit.
    """
    recipe = suggest_for(model)[0]
    weights = {id(v): v for node in placed.graph.all_nodes() for v in node.inputs if v is not None and v.constant}
    sizes = [(value.type, nbytes(value) or 0) for value in weights.values()]
    saved = sum(size for kind, size in sizes if kind == "float") // 2
    if recipe == RECIPE or saved < max(1, _LEAST_SAVED * sum(size for _, size in sizes)):
        return None
    memory = record.facts.memory
    less = 0
    if memory is not None and memory.known:
        less = memory.peak - peak_in_half(placed.graph, placed.placement, placed.target)
    return opportunity("fp16", "use FP16 weights", command(recipe), file_bytes=saved, memory_bytes=less)


def _pin(model: Model, placed: Placed, command: PrepareCommand) -> Opportunity | None:
    """Return the gain of fixed sizes for a prepared model; ``None`` if its graph refuses the example sizes."""
    target = placed.target
    outlook = None
    with contextlib.suppress(DmlprepError):
        outlook = look_ahead(model, make_plan(Recipe(doc="", target=target.name, step={"pin": {}})), in_short=True)
    if outlook is None or outlook.after is None:
        return None
    before, after = outlook.before, outlook.after
    return opportunity(
        "pin",
        "fix the free sizes, here at example sizes",
        command.again(pins={**command.options.pins, **outlook.sizes}),
        launches=_launches(before) - _launches(after),
        copies=before.crossings - after.crossings,
        copied_bytes=(outlook.pinned or before).crossing_bytes - after.crossing_bytes,
    )


def _unread(command: PrepareCommand, record: RunRecord) -> Opportunity | None:
    """Return the gain of removing weights that no node reads; ``None`` if there are none, or if they are removed."""
    step = next((step.name for step in command.plan.steps if step.pass_.name == "simplify"), "")
    unread = next((one for one in record.findings if one.code == "DP307" and not one.facts["removed"]), None)
    if unread is None or not step:
        return None
    again = command.again(settings={**command.options.settings, f"step.{step}.drop_unread": True})
    return opportunity("unread", "remove weights that no node reads", again, file_bytes=int(str(unread.facts["bytes"])))


def _copies(placed: Placed, path: str, staying: Collection[str] | None) -> Iterator[Opportunity]:
    """Yield, for the operators that stay on the CPU, the copies between CPU and GPU that each causes in each run.

    Args:
        path: the model that the commands name.
        staying: names of the nodes on the CPU that ``prepare`` does not move; ``None``: all.
    """
    graph, placement, target = placed.graph, placed.placement, placed.target
    if not placement.crossings:
        return
    moved: list[NodeFacts] = []
    groups: dict[tuple[str, str], list[NodeFacts]] = {}
    for node, row in zip(graph.all_nodes(), placement.nodes, strict=True):
        if row.provider == "DmlExecutionProvider" or row.role != "compute":
            continue
        if staying is None or row.name in staying:
            groups.setdefault((row.op, row.code), []).append(node)
        else:
            moved.append(node)
    if not groups:
        return
    option = [*(["--target", release] if (release := _named(target)) else []), *_alone()]
    after = crossings_after(graph, target)
    now = after(moved)
    for (op, code), nodes in heapq.nlargest(_GROUPS, groups.items(), key=lambda group: len(group[1])):
        then = after([*moved, *nodes])
        name = next((node.path for node in nodes if len(node.path) <= NAME_LENGTH), None)
        if name is None:  # no command line can have it
            continue
        yield opportunity(
            "copies",
            f"export the model without {recorded_name(op)}, which stays on the CPU ({code})",
            command_line("dmlprep", "check", path, "--node", name, *option),
            copies=len(now) - len(then),
            copied_bytes=0 if None in {one.nbytes for one in now} else _bytes(now) - _bytes(then),
        )


def _bytes(copies: Sequence[Crossing]) -> int:
    return sum(one.nbytes or 0 for one in copies)


def _fed_halves(graph: GraphFacts) -> int:
    """Return half the bytes of the FP32 inputs and outputs that a Cast converts from or to FP16; 0 if unknown."""
    fed = [v for v in graph.inputs if not v.initializer and v.consumers and all(map(_casts_to_half, v.consumers))]
    fed += [v for v in graph.outputs if v.producer is not None and _casts_half(v.producer)]
    return sum(nbytes(value) or 0 for value in fed if value.type == "float") // 2


def _casts_to_half(node: NodeFacts) -> bool:
    output = node.output()
    return node.key == "Cast" and output is not None and output.type == "float16"


def _casts_half(node: NodeFacts) -> bool:
    source = node.input(0)
    return node.key == "Cast" and source is not None and source.type == "float16"
