"""``dmlprep kit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep import api
from dmlprep.cli.options import (
    METRIC,
    PATH,
    PackGroup,
    default_out,
    optimization_option,
    option,
    output_options,
    parsed,
    prepare_options,
    sizes_option,
    time_limit_option,
)
from dmlprep.cli.output import echo, print_json, progress_line, show_verdict
from dmlprep.cli.values import read_sizes
from dmlprep.portable.bounds import MOST_FEEDS, MOST_RUNS


@click.group("kit", cls=PackGroup)
def command() -> None:
    """Test a model on a Windows machine that has only Python and ONNX Runtime with DirectML.

    \b
    dmlprep kit out/model.onnx -o kit.zip
    ... there: extract it, python run.py, send back result.zip ...
    dmlprep kit verify result.zip --kit kit.zip --model out/model.onnx
    """


@command.command("pack")
@click.argument("model", type=PATH)
@option("-o", "--out", type=PATH, help="Zip file to write. Default: build/kits/NAME.zip.")
@option(
    "--reference",
    type=PATH,
    help="Model that computes the expected outputs, on the CPU. Default: the original that run.json next to MODEL "
    "names, otherwise MODEL.",
    group="Inputs and proof",
)
@prepare_options("feeds")
@option(
    "--tolerance NAME",
    default="",
    help="Named tolerance. Default: the one in run.json, otherwise auto.",
    group="Inputs and proof",
)
@sizes_option
@option(
    "--seeds",
    type=click.IntRange(1, MOST_FEEDS),
    help="Number of seeded random inputs without --feeds. Default: as in run.json, otherwise 2.",
    group="Inputs and proof",
)
@option(
    "-p",
    "--pin DIM=SIZE",
    "pins",
    multiple=True,
    callback=parsed(read_sizes),
    help="Override a dimension in the session, by name (batch=1).",
    group="Device",
)
@prepare_options("device_id", "adapter")
@option(
    "--disable-metacommands",
    is_flag=True,
    help="Use DirectML's own shaders instead of the vendor's.",
    group="Device",
    rare=True,
)
@optimization_option("Graph optimisation level.")
@option(
    "--warm-up",
    type=click.IntRange(1, MOST_RUNS),
    default=1,
    help="Runs before the timed ones.",
    group="Speed",
    rare=True,
)
@option(
    "--runs",
    type=click.IntRange(1, MOST_RUNS),
    default=5,
    help="Timed runs of each feed.",
    group="Speed",
)
@time_limit_option(1800.0, "Time limit for all runs on the other machine.")
@option(
    "--metric FILE.py:FUNCTION",
    default="",
    help="Your own measure. dmlprep records its name but does not run it.",
    group="Inputs and proof",
    rare=True,
)
@option(
    "--key",
    type=PATH,
    help="Your private key, created if the file does not exist. It seals the kit: keep it here. dmlprep writes the key "
    "for the person who runs the kit next to the zip (.run-key).",
)
@option("--force", is_flag=True, help="Replace an existing zip and run key.")
@output_options("text", "json")
def pack(
    model: Path,
    out: Path | None,
    pins: dict[str, int],
    device_id: int | None,
    adapter: str | None,
    disable_metacommands: bool,
    optimization: str,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Pack MODEL with feeds, expected outputs and a runner.

    Exit codes: 0 written; 1 a kit cannot carry the model; 2 bad input; 3 the reference does not run, or has no outputs
    to compare.
    """
    from dmlprep.core.errors import UsageError
    from dmlprep.core.files.outputs import stem_of
    from dmlprep.core.text.shell import command_line
    from dmlprep.core.text.sizes import bytes_text

    if device_id is not None and adapter is not None:
        what = "both an adapter's name and its number are set"
        raise UsageError(what, where="--adapter", fix="remove one of the two")
    options["sizes"] |= pins  # the session on the other machine accepts no other size
    session = {"optimization": optimization, **{f"dim:{n}": str(s) for n, s in pins.items()}}
    # The other machine finds the number of the adapter.
    chosen = {"device_id": device_id, "adapter": adapter, "disable_metacommands": 1 if disable_metacommands else None}
    session |= {name: str(value) for name, value in chosen.items() if value is not None}
    if out is None:  # prepare names each model model.onnx: its folder has the name
        name = model.absolute().parent.name if model.name == "model.onnx" else stem_of(model)
        out = default_out("kits", f"{name}.zip")
    with progress_line(quiet) as progress:
        packed = api.pack_kit(model, out=out, session=session, progress=progress, **options)
    manifest = packed.manifest
    if output_format == "json":
        summary = {"path": str(packed.path), "kit": packed.name, "bytes": packed.nbytes, "manifest": manifest}
        print_json({**summary, "run_key": str(packed.run_key)} if packed.run_key is not None else summary)
        return 0
    reference = manifest.reference
    by = f"{reference.name} (the model itself)" if reference.itself else reference.name
    echo(f"wrote {packed.path}: kit {packed.name[:12]}, {bytes_text(packed.nbytes)}")
    if quiet and packed.run_key is None:
        return 0
    kind = "synthetic inputs (pass real inputs with --feeds)" if manifest.inputs == "seeded" else "feeds"
    echo(f"  {manifest.model.name}, {len(manifest.feeds)} {kind}; expected outputs by {by} on {reference.device}")
    echo(f"  tolerance on DirectML {manifest.tolerances['dml']}")
    run: list[str | Path] = ["python", "run.py"]
    then: list[str | Path] = ["dmlprep", "kit", "verify", "result.zip", "--kit", packed.path, "--model", model]
    if ".py:" in manifest.metric:  # without its folder
        then += ["--metric", options["metric"] or manifest.metric]
    if packed.run_key is not None:
        run += ["--key", packed.run_key.name]
        then += ["--key", options["key"]]
        echo(f"  wrote {packed.run_key}: send it to the person who runs the kit, separately from the kit")
    there = f"extract the zip, pip install numpy {manifest.package}, {command_line(*run)}"
    echo(f"  there: {there}; it writes result.zip")
    echo(f"  then: {command_line(*then)}")
    return 0


@command.command("verify")
@click.argument("result", type=PATH)
@option("--kit", type=PATH, required=True, help="The kit.zip that you sent.")
@option("--model", type=PATH, help="Refuse a kit that does not contain this model.")
@option("--record", type=PATH, help="run.json to add the verdict to. Default: the one next to --model.")
@option(
    "--key",
    type=PATH,
    help="Your private key. Refuse a kit that was not packed with it, and a result that its run key did not sign.",
)
@option("--require-dml", is_flag=True, help="Exit 3 if DirectML did not run.")
@prepare_options(*METRIC)
@output_options("text", "json")
def verify(result: Path, require_dml: bool, quiet: bool, output_format: str, **options: Any) -> int:
    """Judge the RESULT from the other machine.

    RESULT is result.zip, or the result.json in it. The verdict goes into the record of the model.

    dmlprep measures the outputs again. It refuses a kit or result in which a file was changed, or that do not belong
    together. Without --key, anyone could have written the result, and its device is not proved.

    Exit codes: 0 within the tolerance; 1 not within it, or the model does not run there. 2 the result is damaged,
    edited, of another kit or model, or not signed as --key needs. 3 the kit did not run on DirectML, or its inputs
    prove nothing.
    """
    verdict, merged = api.verify_kit(result, **options)
    show_verdict(verdict, output_format, quiet=quiet)
    if merged is not None and output_format == "text" and not quiet:
        echo(f"the verdict is in {merged}")
    if require_dml and verdict.check.provider != "dml":
        echo("DirectML was required but did not run", err=True)
        return 3
    return verdict.exit_code
