"""``dmlprep bisect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dmlprep.cli.options import (
    adapter_options,
    feeds_option,
    format_option,
    optimization_option,
    read_pins,
    sizes_option,
    time_limit_option,
)
from dmlprep.cli.output import echo, print_json, progress_line

if TYPE_CHECKING:
    from dmlprep.parity import Reference
    from dmlprep.parity.finding import Bisection
    from dmlprep.parity.session_matrix import KnobResult

__all__ = ["command"]


@click.command("bisect")
@click.argument("reference", type=click.Path(path_type=Path))
@click.argument("candidate", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bisect"),
    show_default=True,
    help="Folder for the model of the nodes, its inputs and expected outputs, a script and an issue text.",
)
@feeds_option
@click.option(
    "--device",
    type=click.Choice(["cpu", "dml"]),
    help="Where CANDIDATE runs; REFERENCE runs on the CPU. Default: dml for one model, cpu for two.",
)
@adapter_options
@click.option(
    "--tolerance",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Named tolerance (docs/parity.md), or rel:0.001.",
)
@sizes_option
@optimization_option("Graph optimisation level of the candidate's sessions.")
@click.option("--unfused", is_flag=True, help="DirectML runs each node by itself.")
@click.option(
    "--matrix", is_flag=True, help="First try the whole candidate under each optimisation and fusion setting."
)
@time_limit_option(600.0, "For one load or run.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@format_option("text", "json")
def command(
    reference: Path,
    candidate: Path | None,
    out: Path,
    feeds: tuple[str, ...],
    device: str | None,
    device_id: int | None,
    adapter: str | None,
    tolerance: str,
    sizes: tuple[str, ...],
    optimization: str,
    unfused: bool,
    matrix: bool,
    time_limit: float,
    force: bool,
    output_format: str,
) -> int:
    """Find the first node at which CANDIDATE and REFERENCE part, on the same input.

    \b
    dmlprep bisect original.onnx prepared.onnx         what did preparing change?
    dmlprep bisect model.onnx --device dml             where does DirectML part from the CPU?

    Exit codes: 0 they agree; 1 a node was found; 2 bad input; 3 it could not run.
    """
    from dmlprep.metrics import choose_tolerance
    from dmlprep.parity.bisect import bisect
    from dmlprep.parity.repro import check_folder, write_reproduction
    from dmlprep.parity.session_matrix import try_knobs
    from dmlprep.runtime import SessionOptions, choose_adapter

    check_folder(out, force)
    on: Literal["cpu", "dml"] = "dml" if device == "dml" or (device is None and candidate is None) else "cpu"
    candidate = candidate or reference
    session = SessionOptions(
        optimization=optimization,  # type: ignore[arg-type]
        unfused=unfused,
        device_id=choose_adapter(adapter, device_id, on=on),
        time_limit=time_limit,
    )
    knobs: list[KnobResult] = []
    with _original(reference, candidate, feeds, read_pins(sizes), time_limit) as made:
        if matrix:
            knobs = try_knobs(made, candidate, device=on, tolerance=tolerance, session=session, progress=progress_line)
            failing = [k for k in knobs if k.verdict.outcome == "failed"]
            if failing and knobs[0].verdict.outcome == "passed":
                session = failing[0].options
        found = bisect(
            made,
            candidate,
            device=on,
            tolerance=tolerance,
            session=session,
            time_limit=time_limit,
            progress=progress_line,
        )
    files: list[Path] = []
    if found.outcome == "found":
        chosen = choose_tolerance(found.tolerance.partition(": ")[0], fp16=False, quantized=False, device=on)
        files = write_reproduction(
            found, out, bound=chosen.max_rel, level=session.optimization, knobs=knobs, force=force
        )
    _show(found, knobs, files, output_format)
    return {"agree": 0, "found": 1, "not-run": 3}[found.outcome]


def _original(
    path: Path, candidate: Path, feeds: tuple[str, ...], sizes: dict[str, int], time_limit: float
) -> Reference:
    """The outputs of the model at ``path`` on one feed, to be closed by the caller."""
    from dmlprep.errors import CheckNotRun
    from dmlprep.parity import Reference, load_feeds

    try:
        return Reference.of(
            path, load_feeds(feeds) or None, like=candidate, sizes=sizes, seeds=1, time_limit=time_limit
        )
    except CheckNotRun as error:
        raise CheckNotRun(f"there is nothing to bisect with: {error.what}", code="DP703", fix=error.fix) from error


def _show(found: Bisection, knobs: list[KnobResult], files: list[Path], output_format: str) -> None:
    progress_line(1.0, "done")
    if output_format == "json":
        import msgspec

        data: dict[str, Any] = {
            "outcome": found.outcome,
            "reason": found.reason,
            "kind": found.kind,
            "nodes": found.nodes,
            "op_types": found.op_types,
            "values": msgspec.to_builtins(found.values),
            "hidden": found.hidden,
            "reproduced": found.reproduced,
            "on_cpu": found.on_cpu,
            "runs": found.runs,
            "total_nodes": found.total_nodes,
            "device": str(found.device or ""),
            "tolerance": found.tolerance,
            "settings": [{"name": k.name, "outcome": k.verdict.outcome, "text": k.text} for k in knobs],
            "files": [str(path) for path in files],
        }
        print_json(data)
        return
    for knob in knobs:
        echo(f"  {knob.name:28} {knob.verdict.outcome:8} {knob.text}")
    echo(f"{found.outcome}: {found.reason}" + (" [DP706]" if found.outcome == "found" else ""))
    for metrics in found.values[:5]:
        echo(
            f"  {metrics.output}: max abs {metrics.max_abs:.4g}, max|d|/max|ref| {metrics.max_rel:.4g}, "
            f"cosine {metrics.cosine:.6f}, not finite {metrics.non_finite}"
        )
    if found.runs:
        echo(f"  {found.runs} runs, {found.total_nodes} nodes, on {found.device}, {found.tolerance}")
    if files:
        echo(f"  written: {', '.join(str(path) for path in files)}")
