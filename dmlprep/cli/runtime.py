"""``dmlprep runtime``: the real DirectML on Linux, installed below the user's cache folder."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dmlprep.api.devices import Runtime, install_runtime, installed_runtime, remove_runtime
from dmlprep.cli.help import Group
from dmlprep.cli.options import PATH, option, output_options, prepare_options, quiet_option
from dmlprep.cli.output import echo, echo_lines, print_json
from dmlprep.core.errors import CheckNotRun


@click.group("runtime", cls=Group)
def command() -> None:
    """Install, show or remove the runtime for the real DirectML on Linux.

    Microsoft's DirectML.dll and ONNX Runtime's DirectML provider run under Wine on a CPU Vulkan driver, in a sandbox
    without network. dmlprep redistributes no files of Microsoft: your own pip (or npm) fetches the package,
    and its licence terms apply. All files are in one folder below your cache folder. You need no root.
    """


@command.command()
@option(
    "--release VERSION",
    default="",
    help="Release of ONNX Runtime, such as 1.24.4. You can install several. Default: 1.30.0.",
)
@option("--wheel", type=PATH, help="A win_amd64 wheel or an npm package to use, instead of a download by pip or npm.")
@option("--mirror URL", default="", help="Debian mirror. Default: the one that apt uses here.")
@option("--keyring", type=PATH, help="Keys of Debian's archive, for gpgv.")
@output_options("text", "json")
def install(
    release: str, wheel: Path | None, mirror: str, keyring: Path | None, quiet: bool, output_format: str
) -> None:
    """Install what is missing, and test it.

    An interrupted installation continues from where it stopped.
    """
    from dmlprep.cli.console import InstallProgress

    start = time.monotonic()
    with InstallProgress(quiet) as progress:
        done = install_runtime(release, wheel=wheel, mirror=mirror, keyring=keyring, progress=progress)
    seconds = time.monotonic() - start
    available, package = done.status.available, done.package
    if output_format == "json":
        seconds = round(seconds, 1)
        print_json({"release": done.release, "available": available, "seconds": seconds, "package": package})
    else:
        if note := _PINS.get(package["pin"]):
            echo(f"note: {package['file']} is {note}: SHA-256 {package['sha256']}")
        if available:
            echo(f"ONNX Runtime {done.release} answers: {done.status.device} ({seconds:.0f} s)")
    if not available:
        raise CheckNotRun(done.status.reason, where=str(done.folder), code="DP804")


_PINS = {
    "unpinned": "unpinned: this dmlprep has no digest for it",
    "another": "different from the file of this name that this dmlprep knows",
}
"""Notes about a package, by the comparison with the known digests."""


@command.command()
@option("--again", is_flag=True, help="Run the self-test even if its result is known.")
@option("--packages", is_flag=True, help="List Debian's packages too, with versions and digests.")
@prepare_options("gpu")
@output_options("text", "json")
def status(again: bool, packages: bool, gpu: str | None, quiet: bool, output_format: str) -> None:
    """Show what is installed, and test it.

    Lists every part with its version and digest, the Vulkan devices, and the self-test of each release. JSON has
    Debian's packages as well.
    """
    runtime = installed_runtime(gpu=gpu, again=again)
    if output_format == "json":
        record = {key: runtime.manifest.get(key) for key in ("mirror", "signatures", "native", "packages")}
        print_json(
            {"folder": str(runtime.folder), "releases": runtime.releases, "vulkan": _vulkan_json(runtime), **record}
        )
    elif quiet:
        for version, release in runtime.releases.items():
            detail = release["device"] if release["available"] else release["reason"]
            echo(f"ONNX Runtime {version}: {detail}")
    else:
        _print_status(runtime, packages=packages)
    if not any(release["available"] for release in runtime.releases.values()):
        raise CheckNotRun("no release passes its self-test", where=str(runtime.folder), code="DP804")


def _vulkan_json(runtime: Runtime) -> dict[str, object]:
    names = ("number", "name", "vendor", "ids", "kind", "driver", "vulkan", "memory")
    gpus = [{name: getattr(gpu, name) for name in names} for gpu in runtime.gpus.gpus]
    return {"gpus": gpus, "problems": list(runtime.gpus.problems), "fix": runtime.gpus.fix}


def _vulkan_lines(runtime: Runtime) -> list[str]:
    """Return the Vulkan devices of this machine, with the options that choose them."""
    lines = ["lavapipe, on the CPU: used without --gpu"]
    gpus = runtime.gpus.gpus
    for gpu in gpus:
        lines.append(f"{gpu} ({gpu.kind}, {gpu.memory >> 20} MiB), driver {gpu.driver}, Vulkan {gpu.vulkan}")
        lines.append(f"  select with: --gpu {gpu.number}" + (", --gpu auto" if len(gpus) == 1 else ""))
    return [*lines, *(f"not usable: {problem}" if gpus else problem for problem in runtime.gpus.problems)]


def _print_status(runtime: Runtime, *, packages: bool) -> None:
    manifest = runtime.manifest
    echo(f"folder    {runtime.folder}")
    echo(f"mirror    {manifest.get('mirror', '?')}")
    for suite, how in manifest.get("signatures", {}).items():
        echo(f"          {suite}: {how}")
    echo(f"native    {manifest['native'][:16]} (code that dmlprep compiled on this machine)")
    for number, line in enumerate(_vulkan_lines(runtime)):
        echo(f"{'' if number else 'vulkan':9} {line}")
    for version, release in runtime.releases.items():
        verdict = "self-test passed" if release["available"] else release["reason"]
        package = release["package"]
        echo(f"release   ONNX Runtime {version} ({package['file']}): {verdict}")
        if note := _PINS.get(package["pin"]):
            echo(f"          {note}; SHA-256 {package['sha256']}")
        if release["device"]:
            echo(f"          {release['device']}")
            fp16 = release["fp16"]
            words = f"rounds {fp16['rounding']}, overflow: {fp16['overflow']}, denormals: {fp16['denormals']}"
            echo(f"          FP16: {words}, native: {'yes' if fp16['native'] else 'no'}")
        for name, digest in release["libraries"].items():
            echo(f"          {digest[:16]}  {name}")
    count = len(manifest["packages"])
    echo(f"packages  {count} of Debian" + (", by digest and version:" if packages else "; --packages lists them"))
    for package in sorted(manifest["packages"] if packages else (), key=lambda p: str(p["name"])):
        echo(f"          {package['sha256'][:16]}  {package['name']} {package['version']} ({package['suite']})")
    for name, version, tried in runtime.untried:
        echo(f"note: {name} is {version}, this dmlprep was tested with {tried}")


@command.command()
@option("--release VERSION", default="", help="Only this release of ONNX Runtime.")
@quiet_option
def remove(release: str, quiet: bool) -> None:
    """Remove the runtime, or one release of it."""
    removed = remove_runtime(release)
    if quiet and removed:
        echo(f"removed {release or 'the runtime'}")
    else:
        echo_lines([f"removed {path}" for path in removed] or ["nothing is installed"])
