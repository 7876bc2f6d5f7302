"""Look at a model: what DirectML runs of it, and what ``prepare`` would do to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from dmlprep.api.recipes import plan
from dmlprep.core.errors import UsageError
from dmlprep.pipeline.options import Adapter, AdapterKeywords
from dmlprep.portable.printable import printable
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.directml.placement.report import Examined
    from dmlprep.graph.model.pinned import Value
    from dmlprep.record.codes import Code
    from dmlprep.record.outlook import Outlook


def plan_model(
    path: str | Path,
    recipe: str | Path = "@static-fp32",
    *,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Outlook:
    """Say what ``prepare`` would do to a model: sizes to give, nodes that come to DirectML, fused graphs, copies.

    The steps run on a copy of the graph in memory. Nothing is written, and the model itself is not run.

    >>> outlook = dmlprep.plan_model("model.onnx", "@vision-fp16", pins={"batch": 1})
    >>> (outlook.after.dml_nodes, outlook.after.nodes, outlook.refused)
    (24, 24, '')

    Args:
        path: the model; never modified.
        recipe, pins, target, settings: as in ``plan``.

    Returns:
        what each step would do, and the placement before and after; ``refused`` says why where a step refuses.

    Raises:
        InputError: the model cannot be read, or is not valid.
        RecipeError, UsageError: as in ``plan``; a size does not fit the model, or the target's kernels are not known.
    """
    from dmlprep.process.onnx_worker import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.graph.model import Model
    from dmlprep.graph.model.budget import limited
    from dmlprep.graph.model.checking import demand_valid
    from dmlprep.pipeline.dry_run import look_ahead

    made = plan(recipe, pins=pins, target=target, settings=settings)
    with limited(made.recipe.limits):
        model = Model.open(Path(path))
        demand_valid(model.ir, Path(path))
        return look_ahead(model, made)


def check(
    path: str | Path,
    *,
    target: str = "latest",
    fail_on_cpu: bool = False,
    verify: bool = False,
    vram: str | int | None = None,
    **where: Unpack[AdapterKeywords],
) -> RunRecord:
    """Say what of a model DirectML runs; edits nothing, and runs nothing unless ``verify`` asks a session.

    >>> record = dmlprep.check("model.onnx")
    >>> (record.exit_code, record.facts.placement.dml_nodes)
    (0, 22)

    Args:
        path: the model; never modified.
        target: a name of ``dmlprep target list``.
        fail_on_cpu: compute that would run on the CPU makes the exit code 1; shape arithmetic may run there.
        verify: ask a real DirectML session where it runs each node, and compare.
        vram: memory that the device has (``4GB``, or bytes): needing more is an error, and not knowing makes the exit
            code 3.
        where: ``device_id``, ``adapter`` or ``gpu`` of the session, as in ``Adapter``.

    Returns:
        the record: findings, under ``facts.placement`` the summary of where the nodes go, and under
        ``facts.memory`` the memory that a session needs. ``exit_code`` is 1 where a finding is an error, or where
        the session runs a node elsewhere.

    Raises:
        InputError: the model cannot be read.
        UsageError: unknown target, ``fail_on_cpu`` or ``verify`` for one whose kernels are not known, or ``adapter``
            names no adapter, or several.
        CheckNotRun: no DirectML session can be had here.
    """
    return examine(path, target, fail_on_cpu=fail_on_cpu, verify=verify, vram=vram, **where)[0].record


def check_releases(path: str | Path) -> dict[str, RunRecord]:
    """``check`` for each DirectML release, oldest first: which one runs how much of a model?

    >>> {name: record.exit_code for name, record in dmlprep.check_releases("model.onnx").items()}["ort-1.24"]
    0

    Args:
        path: the model; never modified.

    Returns:
        the records by the releases' names.

    Raises:
        InputError: the model cannot be read.
    """
    return {row.target.name: row.record for row in examine(path, "all")}


def examine(
    path: str | Path,
    target: str = "latest",
    *,
    fail_on_cpu: bool = False,
    verify: bool = False,
    vram: str | int | None = None,
    **where: Unpack[AdapterKeywords],
) -> list[Examined]:
    """``check`` with the placement of each node.

    Args:
        target: as in ``check``; ``all``: every release, oldest first.
        path, fail_on_cpu, verify, vram, where: as in ``check``.

    Returns:
        for each release its record and placement.

    Raises:
        InputError, UsageError, CheckNotRun: as in ``check``.
    """
    from dmlprep.process.onnx_worker import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.directml.targets import find_target, target_names
    from dmlprep.directml.vram import vram_bytes
    from dmlprep.pipeline.check import check_model

    if target == "all" and verify:
        raise UsageError("--verify compares with the one release that is installed", fix="leave out --target all")
    targets = [find_target(name) for name in (target_names() if target == "all" else [target])]
    session = Adapter(**where).resolve("dml" if verify else "cpu")
    has = None if vram is None else vram_bytes(vram)
    return check_model(Path(path), targets, fail_on_cpu=fail_on_cpu, verify=verify, session=session, vram=has)


def explain(what: str | Path, *, node: str | None = None, target: str = "latest") -> str:
    """Explain a finding code, or the placement of one node of a model.

    >>> dmlprep.explain("DP501").splitlines()[0]
    '# DP501: no DirectML kernel of this operator version'

    Args:
        what: the code (``DP501``, also of a quirk); with ``node``, the path of a model.
        node: the node's name, with its graph's path where it stands in a subgraph (``If_3/then_branch/Add_1``).
        target: the DirectML release that ``node`` is placed on.

    Returns:
        the page of the code, Markdown; or each rule that decides about the node, line by line.

    Raises:
        UsageError: unknown code, node or target.
        InputError: the model cannot be read.
    """
    if node is None:
        from dmlprep.report.pages import page

        return page(str(what).upper())
    path = Path(what)
    if path.suffix == "" and not path.exists():
        raise UsageError(f"{str(what)!r} is no model", where="--node", fix="dmlprep explain --node NAME model.onnx")
    from dmlprep.process.onnx_worker import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.directml.placement.explain import explain_node
    from dmlprep.directml.targets import find_target
    from dmlprep.graph.model import Model

    return "".join(f"{printable(line)}\n" for line in explain_node(Model.open(path), node, find_target(target)))


def code_row(code: str) -> Code:
    """Return title, severity and remedy of a finding code.

    Raises:
        KeyError: there is no such code.
    """
    from dmlprep.directml.quirks import code_row as row

    return row(code)


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
    """Let other limits hold for models that are opened inside.

    >>> with dmlprep.limits(made_bytes=8 << 30):
    ...     record = dmlprep.check("model.onnx")

    Limits of a recipe go before these. docs/foreign-models.md says what they are and why.

    Args:
        made_bytes: bytes of constants that may be made of one model; its own weights do not count.
        made_nodes: nodes that its functions and operators may become besides its own.
        folded_elements: elements that one look at a model computes to know its shapes.
        run_bytes: bytes of memory that a session of one model may hold on the CPU.
        run_seconds: seconds of processor time that one load or run may take on the CPU.
        onnx_bytes: bytes of memory for one call of onnx's checker or shape inference.
        onnx_seconds: seconds of processor time for one such call.

    Raises:
        UsageError: a limit is no number from 0 to 2**60, or a time or ``onnx_bytes`` is not above 0.
    """
    from dmlprep.graph.model.budget import Limits, limited
    from dmlprep.process.onnx_worker import door

    given = {
        "made_bytes": made_bytes,
        "made_nodes": made_nodes,
        "folded_elements": folded_elements,
        "run_bytes": run_bytes,
        "run_seconds": run_seconds,
    }
    try:
        found = msgspec.convert({name: limit for name, limit in given.items() if limit is not None}, Limits)
    except msgspec.ValidationError as error:
        raise UsageError(f"a limit is wrong: {error}", where="limits", fix="see docs/foreign-models.md") from error
    with limited(found), door.limited(door.other_limits(onnx_seconds, onnx_bytes)):
        yield
