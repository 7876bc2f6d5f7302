"""``dmlprep doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from dmlprep import api
from dmlprep.api.devices import adapter_listing, check_environment
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, option, output_options
from dmlprep.cli.output import echo, echo_lines, print_json
from dmlprep.core._version import __version__
from dmlprep.record import Finding


def _show_adapters(output_format: str) -> None:
    adapters, reason = adapter_listing()
    if output_format == "json":
        ids = {"vendor_id": 4, "model_id": 4, "luid": 16}
        rows = [
            {**msgspec.to_builtins(one), **{name: f"{getattr(one, name):0{width}x}" for name, width in ids.items()}}
            for one, _ in adapters
        ]
        print_json({"adapters": rows, "reason": reason})
        return
    for one, ways in adapters:
        kind = "software adapter, which the provider refuses" if one.software and one.luid else "software"
        kind = kind if one.software else "hardware"
        driver = f", driver {one.driver}" if one.driver else ""
        ids_text = f"{one.vendor or 'unknown vendor'} {one.vendor_id:04x}:{one.model_id:04x}"
        echo_lines([str(one), f"  {ids_text}, {kind}{driver}"])
        if one.luid:  # from DXGI
            dedicated, shared = one.dedicated_memory >> 20, one.shared_memory >> 20
            echo(f"  memory {dedicated} MiB dedicated, {shared} MiB shared; LUID {one.luid:016x}")
            echo(f"  select with: {', '.join(ways)}")
    if reason:
        echo(f"DirectML has no adapter on this machine: {reason}")


def _show_findings(findings: Iterable[Finding], none: str) -> None:
    shown = list(findings)
    for item in shown:
        echo(f"{item.severity}: {item.message} [{item.code}]")
        if item.remedy:
            echo(f"  fix: {item.remedy}")
    if not shown:
        echo(none)


def _show_app(folder: Path, output_format: str, *, quiet: bool) -> int:
    """Show the libraries that an app's folder loads; return the exit code."""
    report = api.inspect_app(folder)
    if output_format == "json":
        print_json(msgspec.to_builtins(report, enc_hook=str))
    else:
        for place in () if quiet else report.places:
            programs = f" for {', '.join(place.programs)}" if place.programs else ""
            echo(f"in {place.folder}{programs}:")
            for title, library in (("ONNX Runtime", place.onnxruntime), ("DirectML", place.directml)):
                if library is not None:
                    echo(f"  {title}: {library.path or 'of Windows'}, version {library.version}, {library.machine}")
        for model in () if quiet else report.models:
            lowest = f"ONNX Runtime {model.lowest_onnxruntime}, DirectML {model.lowest_directml}"
            echo(f"package in {model.folder}: needs {lowest} or newer")
        if not report.models and not quiet:
            echo("the folder has no package of dmlprep, so dmlprep cannot check versions")
        nothing = "the app finds all libraries"
        if not report.places:
            nothing = "the folder has no program and no ONNX Runtime: pass the folder that has them"
        _show_findings(report.findings, nothing)
    return _code(report.findings)


def _code(findings: Iterable[Finding]) -> int:
    return 1 if any(item.severity == "error" for item in findings) else 0


@click.command("doctor", cls=Command)
@output_options("text", "json")
@option("--no-dml", is_flag=True, help="Do not try DirectML (its self-test takes about 10 s the first time).")
@option("--adapters", is_flag=True, help="Only list the graphics adapters, and the options that select each.")
@option(
    "--app FOLDER",
    type=PATH,
    help="Only check this folder of a Windows app: which onnxruntime.dll and DirectML.dll it will load.",
)
def command(quiet: bool, output_format: str, no_dml: bool, adapters: bool, app: Path | None) -> None:
    """Check this environment: conflicting packages, broken libraries, DirectML.

    Exit codes: 0 no finding is an error; 1 a finding is an error; 2 the folder of --app cannot be read, or has no
    program, ONNX Runtime or package. A missing DirectML is only a warning.
    """
    if app is not None:
        raise SystemExit(_show_app(app, output_format, quiet=quiet))
    if adapters:
        _show_adapters(output_format)
        return
    here = check_environment(dml=not no_dml)
    device = here.dml.device if here.dml is not None and here.dml.available else None
    if output_format == "json":
        print_json(
            {
                "dmlprep": __version__,
                "python": here.python,
                "system": here.system,
                "libraries": here.libraries,
                "cpu_worker": {"landlock": here.landlock, "seccomp": here.seccomp, "lacking": here.lacking},
                "dml": None if here.dml is None else msgspec.to_builtins(here.dml),
                "windows_ml": here.windows_ml,
                "findings": msgspec.to_builtins(here.findings),
            }
        )
    elif quiet:
        _show_findings(here.findings, "no problems" + (f"; DirectML: {device}" if device else ""))
    else:
        echo(f"dmlprep {__version__}, Python {here.python}, {here.system}")
        echo_lines(f"  {name} {version}" for name, version in here.libraries.items())
        confined = f"confined by Landlock (ABI {here.landlock}) and seccomp"
        echo(f"CPU worker: {'not fully confined: ' + '; '.join(here.lacking) if here.lacking else confined}")
        if device is not None:
            echo(f"DirectML: {device}")
        echo_lines(f"Windows ML's catalog: {line}" for line in here.windows_ml)
        _show_findings(here.findings, "no problems")
    raise SystemExit(_code(here.findings))
