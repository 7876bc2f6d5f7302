"""``dmlprep check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmlprep.cli.options import device_id_option, format_option

if TYPE_CHECKING:
    from dmlprep.placement import Placement
    from dmlprep.record import RunRecord
    from dmlprep.target import Target

__all__ = ["command"]


@click.command("check")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--target",
    "target_name",
    metavar="NAME",
    default="latest",
    show_default=True,
    help="DirectML release (dmlprep target list), or all: a table release by release.",
)
@click.option("--fail-on-cpu", is_flag=True, help="Exit 1 when compute would run on the CPU; shape arithmetic may.")
@click.option("--verify", is_flag=True, help="Ask a real DirectML session as well, and compare.")
@device_id_option
@format_option("text", "json", "sarif")
def command(
    model: Path, target_name: str, fail_on_cpu: bool, verify: bool, device_id: int | None, output_format: str
) -> int:
    """Say what of MODEL DirectML runs, and why not the rest. Edits nothing, reads no weights.

    \b
    dmlprep check model.onnx
    dmlprep check model.onnx --target all
    dmlprep check model.onnx --fail-on-cpu --format sarif > placement.sarif
    """
    from dmlprep.errors import UsageError
    from dmlprep.model import Model
    from dmlprep.placement.report import examine
    from dmlprep.target import find_target, target_names

    every = target_name == "all"
    if every and verify:
        raise UsageError("--verify compares with the one release that is installed", fix="leave out --target all")
    targets = [find_target(n) for n in (target_names() if every else [target_name])]
    opened = Model.open(model)
    rows = [(target, *_pair(examine(opened, target))) for target in targets]
    if verify:
        from dmlprep.placement.verify import verify_placement

        target, record, placement = rows[0]
        if placement is None:
            raise UsageError(f"no kernels are known for {target.name}", where="--verify", fix="choose an ort- target")
        verdict = verify_placement(opened, target, device_id)
        record.verdicts.append(verdict)
        if verdict.outcome != "passed":
            record.exit_code = 1
    code = _exit_code(rows, every=every, fail_on_cpu=fail_on_cpu)
    _show(str(model), rows, output_format, every=every)
    return code


def _pair(examined: object) -> tuple[RunRecord, Placement | None]:
    from dmlprep.placement.report import Examined

    assert isinstance(examined, Examined)
    return examined.record, examined.placement


def _exit_code(rows: list[tuple[Target, RunRecord, Placement | None]], *, every: bool, fail_on_cpu: bool) -> int:
    """1 where the model fails; with several releases, where it fails on the newest."""
    from dmlprep.errors import UsageError

    target, record, placement = rows[-1]
    if fail_on_cpu and placement is None:
        raise UsageError(f"no kernels are known for {target.name}", where="--fail-on-cpu", fix="choose an ort- target")
    if fail_on_cpu and placement is not None:
        away = [*placement.compute_on_cpu, *(f.node for f in record.findings if f.code == "DP508")]
        if away:
            nodes = "1 compute node" if len(away) == 1 else f"{len(away)} compute nodes"
            click.echo(f"{nodes} would run on the CPU, first {away[0]}", err=True)
            record.exit_code = 1
    return record.exit_code


def _show(
    path: str, rows: list[tuple[Target, RunRecord, Placement | None]], output_format: str, *, every: bool
) -> None:
    if output_format == "json":
        from dmlprep.report import placement_json

        click.echo(placement_json.render([placement_json.to_object(r, p) for _, r, p in rows]), nl=False)
    elif output_format == "sarif":
        from dmlprep.report import sarif

        click.echo(sarif.render([r for _, r, _ in rows]), nl=False)
    else:
        from dmlprep.report.placement_text import by_release, lines

        text = by_release(path, rows) if every else lines(rows[0][1], rows[0][2], rows[0][0])
        click.echo("\n".join(text))
