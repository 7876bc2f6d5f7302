"""``dmlprep doctor``: what stands in this environment, what is broken, and how to mend it."""

from __future__ import annotations

import platform

import click
import msgspec

from dmlprep._version import __version__
from dmlprep.cli.options import format_option
from dmlprep.cli.output import print_json
from dmlprep.record import Finding, finding

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


@click.command(name="doctor")
@format_option("text", "json")
@click.option("--no-dml", is_flag=True, help="Do not try DirectML (its self-test takes about 10 s the first time).")
def command(output_format: str, no_dml: bool) -> None:
    """Look for trouble in this environment: clashing packages, broken libraries, DirectML.

    Exit code 0: nothing is broken (DirectML may be missing); 1: an error is listed.
    """
    from dmlprep.runtime import dml_status
    from dmlprep.runtime.environment import LIBRARIES, RUNTIMES, installed_versions, runtime_findings, system_name

    findings = runtime_findings()
    if not any(found.code in ("DP801", "DP805") for found in findings):
        findings += [found for found in [_cpu_finding()] if found is not None]
    status = None if no_dml else dml_status()
    if status is not None and not status.available and not any(found.code == "DP803" for found in findings):
        code = "DP804" if "DP804" in status.reason else "DP803"
        findings.append(finding(code, f"DirectML is not available: {status.reason}"))
    failed = any(found.severity == "error" for found in findings)
    versions = installed_versions((*RUNTIMES, *LIBRARIES))
    if output_format == "json":
        record = {
            "dmlprep": __version__,
            "python": platform.python_version(),
            "system": system_name(),
            "libraries": versions,
            "dml": None if status is None else msgspec.to_builtins(status),
            "findings": msgspec.to_builtins(findings),
        }
        print_json(record)
    else:
        click.echo(f"dmlprep {__version__}, Python {platform.python_version()}, {system_name()}")
        for name, version in versions.items():
            click.echo(f"  {name} {version}")
        if status is not None and status.available:
            click.echo(f"DirectML: {status.device}")
        for found in findings:
            click.echo(f"{found.severity}: {found.message} [{found.code}]")
            if found.remedy:
                click.echo(f"  fix: {found.remedy}")
        if not findings:
            click.echo("nothing is broken")
    raise SystemExit(1 if failed else 0)
