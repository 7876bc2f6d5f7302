"""``dmlprep plan``."""

from __future__ import annotations

import click

from dmlprep.cli.options import format_option, read_pins, recipe_options
from dmlprep.cli.output import echo, print_json

__all__ = ["command"]


@click.command("plan")
@recipe_options
@format_option("text", "json")
def command(
    recipe: str, pins: tuple[str, ...], settings: tuple[str, ...], target: str | None, output_format: str
) -> int:
    """Show the steps that prepare would run, with their options, and prove that they fit together.

    \b
    dmlprep plan --recipe @vision-fp16 --pin batch=1 --set step.fp16.keep_io=false
    """
    import msgspec

    from dmlprep import api
    from dmlprep.report.units import toml_value

    made = api.plan(recipe, pins=read_pins(pins), target=target, settings=list(settings))
    steps = [
        {
            "step": s.name,
            "pass": s.pass_.name,
            "summary": s.pass_.summary,
            "options": msgspec.to_builtins(s.pass_.options),
        }
        for s in made.steps
    ]
    if output_format == "json":
        print_json(
            {"recipe": made.recipe.name, "target": made.target.name, "steps": steps, "parity": made.recipe.parity}
        )
        return 0
    echo(f"{made.recipe.name}: {made.recipe.doc}")
    echo(f"target {made.target.name} (ONNX Runtime {made.target.ort_version})")
    for number, step in enumerate(steps, 1):
        echo(f"{number}. {step['step']}: {step['summary']}")
        for key, value in step["options"].items():
            echo(f"     {key} = {toml_value(value)}")
    parity = made.recipe.parity
    proofs = ["parity on the CPU"] if parity.cpu else []
    if parity.cpu and parity.fp16_emulation != "off" and any(step.pass_.name == "fp16" for step in made.steps):
        proofs.append(f"the FP16 emulation ({parity.fp16_emulation})")
    if parity.dml != "off":
        proofs.append(f"parity on DirectML ({parity.dml})")
    echo(f"then: {', '.join(proofs) or 'no proof'}; tolerance {parity.tolerance}")
    return 0
