"""``dmlprep doctor``: what stands in this environment, what is broken, and how to mend it."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dmlprep._version import __version__
from dmlprep.cli.options import format_option, quiet_option
from dmlprep.cli.output import echo, echo_lines, print_json
from dmlprep.processes.confinement import lacking, landlock_abi, takes_filters
from dmlprep.record import Finding, finding

if TYPE_CHECKING:
    from dmlprep.package import AppReport
    from dmlprep.runtime import Adapter, DmlStatus

__all__ = ["command"]


def _cpu_finding() -> Finding | None:
    """Whether the installed ONNX Runtime can be loaded; in a child process, because a broken one can crash."""
    from dmlprep.runtime import SessionFailure, cpu_host

    try:
        with cpu_host() as host:
            host.worker()
    except SessionFailure as error:
        remedy = "install it again with the line of pip that you installed it with"
        return finding("DP805", f"ONNX Runtime cannot be loaded: {error.message}", remedy=remedy)
    return None


def _adapter_lines(one: Adapter, vendors: Counter[str]) -> list[str]:
    """An adapter in words: what it is, then every way to choose it."""
    from dmlprep.runtime.offsite.device import VENDORS

    kind = "software, which the provider refuses" if one.software and one.luid else "software"
    kind = kind if one.software else "hardware"
    driver = f", driver {one.driver}" if one.driver else ""
    what = f"{one.vendor or 'unknown vendor'} {one.vendor_id:04x}:{one.model_id:04x}, {kind}{driver}"
    ways = ["no option"] if one.number == 0 and not one.software else []
    ways.append(f"--device-id {one.number}")
    if vendors[one.vendor] == 1 and one.vendor in VENDORS:
        ways.append(f"--adapter {one.vendor}")
    ways += [f"performance_preference {name}" for name in one.preferences]
    lines = [str(one), f"  {what}"]
    if one.luid:  # told by DXGI
        dedicated, shared = one.dedicated_memory >> 20, one.shared_memory >> 20
        lines.append(f"  memory {dedicated} MiB dedicated, {shared} MiB shared; LUID {one.luid:016x}")
        lines.append(f"  chosen by: {', '.join(ways)}")
    return lines


def _show_adapters(output_format: str) -> None:
    from dmlprep.runtime.adapters import listing

    found, reason = listing()
    if output_format == "json":
        adapters = [
            {
                **msgspec.to_builtins(one),
                "vendor_id": f"{one.vendor_id:04x}",
                "model_id": f"{one.model_id:04x}",
                "luid": f"{one.luid:016x}",
            }
            for one in found
        ]
        print_json({"adapters": adapters, "reason": reason})
        return
    vendors = Counter(one.vendor for one in found)
    for one in found:
        echo_lines(_adapter_lines(one, vendors))
    if reason:
        echo(f"DirectML has no adapter here: {reason}")


def _show_findings(findings: Iterable[Finding], none: str) -> None:
    shown = list(findings)
    for found in shown:
        echo(f"{found.severity}: {found.message} [{found.code}]")
        if found.remedy:
            echo(f"  fix: {found.remedy}")
    if not shown:
        echo(none)


def _show_app(report: AppReport, output_format: str, *, quiet: bool) -> int:
    """What an app's folder will load; the exit code."""
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
            echo("no package of dmlprep is in it, so no version is too old for it")
        if not report.places:
            echo("no program and no ONNX Runtime is in it: name the folder that has them")
        _show_findings(report.findings, "all libraries lie where they will be found")
    return 1 if any(found.severity == "error" for found in report.findings) else 0


def _confinement_line() -> str:
    """How far the kernel confines the worker that opens models on the CPU."""
    if missing := lacking():
        return f"CPU worker: not fully confined: {'; '.join(missing)}"
    return f"CPU worker: confined by Landlock (ABI {landlock_abi()}) and seccomp"


def _fine(status: DmlStatus | None) -> str:
    answers = f"; DirectML: {status.device}" if status is not None and status.available else ""
    return f"nothing is broken{answers}"


@click.command(name="doctor")
@quiet_option
@format_option("text", "json")
@click.option("--no-dml", is_flag=True, help="Do not try DirectML (its self-test takes about 10 s the first time).")
@click.option("--adapters", is_flag=True, help="Only list the graphics adapters, and the options that select each.")
@click.option(
    "--app",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Only check this folder of a Windows app: which onnxruntime.dll and DirectML.dll it will load.",
)
def command(quiet: bool, output_format: str, no_dml: bool, adapters: bool, app: Path | None) -> None:
    """Check this environment: conflicting packages, broken libraries, DirectML.

    Exit code 0: nothing is broken (DirectML may be missing); 1: an error is listed; 2: --app names no folder of an app.
    """
    if app is not None:
        from dmlprep import api

        raise SystemExit(_show_app(api.inspect_app(app), output_format, quiet=quiet))
    from dmlprep.runtime import dml_status
    from dmlprep.runtime.catalog import catalog_lines
    from dmlprep.runtime.environment import (
        LIBRARIES,
        RUNTIMES,
        dml_finding,
        genai_findings,
        installed_versions,
        requirement_findings,
        runtime_findings,
        system_name,
    )

    if adapters:
        _show_adapters(output_format)
        return
    findings = runtime_findings() + requirement_findings() + genai_findings()
    if not any(found.code in ("DP801", "DP805") for found in findings):
        findings += [found for found in [_cpu_finding()] if found is not None]
    status = None if no_dml else dml_status()
    missing = None if status is None else dml_finding(status)
    if missing is not None and not any(found.code == "DP803" for found in findings):
        findings.append(missing)
    failed = any(found.severity == "error" for found in findings)
    versions = installed_versions((*RUNTIMES, *LIBRARIES))
    if output_format == "json":
        record = {
            "dmlprep": __version__,
            "python": platform.python_version(),
            "system": system_name(),
            "libraries": versions,
            "cpu_worker": {"landlock": landlock_abi(), "seccomp": takes_filters(), "lacking": lacking()},
            "dml": None if status is None else msgspec.to_builtins(status),
            "windows_ml": catalog_lines(),
            "findings": msgspec.to_builtins(findings),
        }
        print_json(record)
    else:
        if quiet:
            _show_findings(findings, _fine(status))
            raise SystemExit(1 if failed else 0)
        echo(f"dmlprep {__version__}, Python {platform.python_version()}, {system_name()}")
        for name, version in versions.items():
            echo(f"  {name} {version}")
        echo(_confinement_line())
        if status is not None and status.available:
            echo(f"DirectML: {status.device}")
        for line in catalog_lines():
            echo(f"Windows ML's catalog: {line}")
        _show_findings(findings, "nothing is broken")
    raise SystemExit(1 if failed else 0)
