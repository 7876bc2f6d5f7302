"""Check a model: which nodes DirectML runs, and what ``prepare`` would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from dmlprep.api.preparing import start_worker
from dmlprep.api.recipes import plan
from dmlprep.core.errors import UsageError
from dmlprep.core.files import user_path
from dmlprep.pipeline.options import Adapter, AdapterKeywords
from dmlprep.portable.printable import printable
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.directml.placement.report import Examined
    from dmlprep.graph.model.pinned import Value
    from dmlprep.record.outlook import Outlook


def plan_model(
    path: str | Path,
    recipe: str | Path = "@static-fp32",
    *,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Outlook:
    """Predict what ``prepare`` would do to a model: free sizes, nodes that move to DirectML, fused graphs, copies.

    The steps of the recipe run on a copy of the graph in memory. dmlprep writes nothing, and does not run the model.

    >>> outlook = dmlprep.plan_model("model.onnx", "@vision-fp16", pins={"batch": 1})
    >>> (outlook.after.dml_nodes, outlook.after.nodes, outlook.refused)
    (24, 24, '')

    Args:
        path: the model.
        recipe, pins, target, settings: as in ``plan``.

    Returns:
        the record of each step (``steps``), and the placement ``before`` and ``after``. If a step refuses the model,
        ``refused`` is the reason and ``after`` is ``None``; no error is raised.

    Raises:
        InputError: the model cannot be read, or is not valid.
        RecipeError, UsageError: as in ``plan``; or a size does not fit the model, or the target's kernels are unknown.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    start_worker()
    from dmlprep.graph.model import Model
    from dmlprep.graph.model.budget import limited
    from dmlprep.graph.model.checking import demand_valid
    from dmlprep.pipeline.dry_run import look_ahead

    resolved_plan = plan(recipe, pins=pins, target=target, settings=settings)
    with limited(resolved_plan.recipe.limits):
        model = Model.open(user_path(path))
        demand_valid(model.ir, user_path(path))
        return look_ahead(model, resolved_plan)


def check(
    path: str | Path,
    *,
    target: str | None = None,
    fail_on_cpu: bool = False,
    verify: bool = False,
    vram: str | int | None = None,
    **where: Unpack[AdapterKeywords],
) -> RunRecord:
    """Report which nodes of a model DirectML runs. Nothing is edited, and nothing runs without ``verify``.

    >>> record = dmlprep.check("model.onnx")
    >>> (record.exit_code, record.facts.placement.dml_nodes)
    (0, 22)

    Args:
        path: the model.
        target: a name of ``dmlprep explain targets``; ``None``: the release that is installed here, otherwise the
            latest. ``target_reason`` of the record then gives the reason.
        fail_on_cpu: True to set ``exit_code`` 1 if a compute node would run on the CPU. Nodes that only compute shapes
            may run there.
        verify: True to open a real DirectML session, and to compare the device of each node with the prediction.
        vram: memory of the device (``"4GB"``, or a number of bytes). ``exit_code`` is 1 if a session needs more, and 3
            if its need is unknown.
        where: the device of ``verify``, which they need, as the fields of ``Adapter``: ``device_id``, ``adapter`` or
            ``gpu``.

    Returns:
        the record: findings, the predicted placement under ``facts.placement``, the memory of a session under
        ``facts.memory``, and gains that are possible under ``facts.opportunities``. ``exit_code`` is also 1 if a
        finding is an error or ``verify`` does not pass, and 2 if the model is not valid ONNX.

    Raises:
        InputError: the model cannot be read, or is too broken for an option.
        UsageError: the target is unknown, an option needs its kernels and they are unknown, ``vram`` is not an amount
            of memory, or ``where`` does not choose one device.
        CheckNotRun: ``verify`` is set, and no DirectML session is possible on this machine.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    return examine(path, target, fail_on_cpu=fail_on_cpu, verify=verify, vram=vram, **where)[0].record


def check_releases(path: str | Path) -> dict[str, RunRecord]:
    """Run ``check`` for each known DirectML release, oldest first, with its default options.

    >>> {name: record.exit_code for name, record in dmlprep.check_releases("model.onnx").items()}["ort-1.24"]
    0

    Args:
        path: the model.

    Returns:
        the record of ``check`` by the name of the release (``ort-1.24``). Only the newest release's record has the
        memory of a session, ``facts.opportunities`` and ``facts.prepare``.

    Raises:
        InputError: the model cannot be read.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    return {row.target.name: row.record for row in examine(path, "all")}


def examine(
    path: str | Path,
    target: str | None = None,
    *,
    fail_on_cpu: bool = False,
    verify: bool = False,
    vram: str | int | None = None,
    **where: Unpack[AdapterKeywords],
) -> list[Examined]:
    """Run ``check``, and return the record together with the placement of each node, one entry for each target.

    The arguments are those of ``check``. The target ``all`` stands for every known release, oldest first; it cannot be
    combined with ``verify``. With ``all``, ``fail_on_cpu`` and ``vram`` apply only to the newest release. Only its
    record has the memory of a session, ``facts.opportunities`` and ``facts.prepare``.
    """
    start_worker()
    from dmlprep.directml.targets import find_target, target_names
    from dmlprep.directml.vram import vram_bytes
    from dmlprep.pipeline.check import check_model
    from dmlprep.runtime.default_target import default_target

    reason = ""
    if target is None:
        target, reason = default_target()
    if target == "all" and verify:
        raise UsageError("--verify compares with the single installed release", fix="remove --target all")
    targets = [find_target(name) for name in (target_names() if target == "all" else [target])]
    session = Adapter(**where).resolve("dml" if verify else "cpu")
    has = None if vram is None else vram_bytes(vram)
    rows = check_model(user_path(path), targets, fail_on_cpu=fail_on_cpu, verify=verify, session=session, vram=has)
    rows[-1].record.target_reason = reason
    return rows


def changed_models(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield each model, and later each one whose file or data files changed, without end."""
    start_worker()
    from dmlprep.graph.model.input_watch import changed_models as watch

    return watch(paths)


def explain_node(path: str | Path, node: str, *, target: str | None = None) -> str:
    """Explain the placement of one node of a model: each rule, the device, and the advice of ``check``.

    Args:
        path: the model.
        node: the node's name; for a node in a subgraph, with the path of the subgraph (``If_3/then_branch/Add_1``).
        target: a name of ``dmlprep explain targets``; ``None`` as in ``check``.

    Returns:
        plain text, with a rule in each line.

    Raises:
        UsageError: the node or the target is unknown, or the target's kernels are.
        InputError: the model cannot be read.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    start_worker()
    from dmlprep.directml.targets import find_target
    from dmlprep.pipeline.check import explain_node as lines
    from dmlprep.runtime.default_target import default_target

    release = find_target(target or default_target()[0])
    return "".join(f"{printable(line)}\n" for line in lines(user_path(path), node, release))


@contextmanager
def limits(
    *,
    made_bytes: int | None = None,
    made_nodes: int | None = None,
    folded_elements: int | None = None,
    run_bytes: int | None = None,
    run_seconds: float | None = None,
    onnx_bytes: int | None = None,
    onnx_seconds: float | None = None,
) -> Iterator[None]:
    """Set the safety limits for models that are opened inside the ``with`` block (docs/foreign-models.md).

    ``None`` leaves a limit unchanged. Limits that a recipe sets override these.

    >>> with dmlprep.limits(made_bytes=8 << 30):
    ...     record = dmlprep.check("model.onnx")

    Args:
        made_bytes: total size in bytes of the constants that dmlprep may create for one model.
        made_nodes: number of nodes that a model may grow by when its functions and operators are expanded.
        folded_elements: number of elements that one shape inference of a model may compute.
        run_bytes, run_seconds: memory (bytes) and CPU time (seconds) that one load or run of a model on the CPU may
            need.
        onnx_bytes, onnx_seconds: memory (bytes) and CPU time (seconds) that one call of onnx's checker may need.

    Raises:
        UsageError: a limit is not a number from 0 to 2**60, a time or ``onnx_bytes`` is not above 0, or one of these is
            larger than any machine allows.
    """
    from dmlprep.graph.model.budget import Limits, limited
    from dmlprep.process.onnx_worker import door

    values = {
        "made_bytes": made_bytes,
        "made_nodes": made_nodes,
        "folded_elements": folded_elements,
        "run_bytes": run_bytes,
        "run_seconds": run_seconds,
    }
    try:
        new_limits = msgspec.convert({name: limit for name, limit in values.items() if limit is not None}, Limits)
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid limit: {error}", where="limits", fix="see docs/foreign-models.md") from error
    with limited(new_limits), door.limited(door.other_limits(onnx_seconds, onnx_bytes)):
        yield
