"""``dmlprep plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.cli.options import PATH, RECIPE, completed, output_options, prepare_options, project_options, the_project
from dmlprep.cli.output import echo, echo_lines, print_json

if TYPE_CHECKING:
    from dmlprep.api.types import Plan


@click.command("plan")
@click.argument("model", type=PATH, required=False)
@prepare_options(*RECIPE)
@project_options
@output_options("text", "json")
def command(
    model: Path | None, project_file: Path | None, no_project: bool, quiet: bool, output_format: str, **options: Any
) -> int:
    """Show what prepare would do to MODEL. Without MODEL: show the steps of a recipe with their options.

    \b
    dmlprep plan model.onnx --recipe @vision-fp16
    dmlprep plan --recipe @vision-fp16 --pin batch=1 --set step.fp16.keep_io=false

    With MODEL: the sizes to give, what each step does, which nodes come to DirectML and which stay, fused graphs and
    copies. The steps run in memory; nothing is written or proved, and the model itself is not run. Exit code 1 where
    a step refuses the model.
    """
    if model is None:
        _show_recipe(api.plan(**options), output_format, quiet=quiet)
        return 0
    project = the_project(project_file, no_project)
    wanted = completed(project, model, options, quiet=quiet or output_format == "json")
    outlook = api.plan_model(model, **wanted)
    if output_format == "json":
        import msgspec

        print_json({"format": 1, "model": str(model), **msgspec.to_builtins(outlook)})
    else:
        from dmlprep.report.outlook_text import in_full, in_one_line

        echo_lines([in_one_line(outlook, str(model))] if quiet else in_full(outlook, str(model)))
    return int(bool(outlook.refused))


def _show_recipe(plan: Plan, output_format: str, *, quiet: bool) -> None:
    import msgspec

    from dmlprep.core.text.documents import toml_value

    steps = [
        {
            "step": s.name,
            "pass": s.pass_.name,
            "summary": s.pass_.summary,
            "options": msgspec.to_builtins(s.pass_.options),
        }
        for s in plan.steps
    ]
    if output_format == "json":
        print_json(
            {"recipe": plan.recipe.name, "target": plan.target.name, "steps": steps, "parity": plan.recipe.parity}
        )
        return
    if quiet:
        echo(f"{plan.recipe.name}: {', '.join(step['step'] for step in steps) or 'no step'}, for {plan.target.name}")
        return
    echo(f"{plan.recipe.name}: {plan.recipe.doc}")
    echo(f"target {plan.target.name} (ONNX Runtime {plan.target.ort_version})")
    for number, step in enumerate(steps, 1):
        echo(f"{number}. {step['step']}: {step['summary']}")
        for key, value in step["options"].items():
            echo(f"     {key} = {toml_value(value)}")
    parity = plan.recipe.parity
    proofs = ["parity on the CPU"] if parity.cpu else []
    if parity.cpu and parity.fp16_emulation != "off" and any(step.pass_.name == "fp16" for step in plan.steps):
        proofs.append(f"the FP16 emulation ({parity.fp16_emulation})")
    if parity.dml != "off":
        proofs.append(f"parity on DirectML ({parity.dml})")
    echo(f"then: {', '.join(proofs) or 'no proof'}; tolerance {parity.tolerance}")
