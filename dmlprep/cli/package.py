"""``dmlprep package``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep import api
from dmlprep.cli.options import PATH, PackGroup, default_out, option, output_options
from dmlprep.cli.output import echo, echo_lines, print_json, progress_line
from dmlprep.core._version import __version__
from dmlprep.core.text.shell import command_line

_LANGUAGES = ("cpp", "csharp", "node", "python")
"""The keys of ``dmlprep.package.LANGUAGES``; that room is imported when a command runs."""


@click.group("package", cls=PackGroup)
def command() -> None:
    """Package a prepared model for an app: the model, its contract, a loader, a sample.

    \b
    dmlprep package out -o app --for python
    dmlprep package verify app
    dmlprep package nupkg app -o feed --id Contoso.Detector --version 1.0.0
    """


@command.command("pack")
@click.argument("run", type=PATH)
@option("-o", "--out", type=PATH, help="Folder to write. Default: build/packages/NAME.")
@option("--for", "language", type=click.Choice(_LANGUAGES), required=True, help="Language of the loader.")
@option(
    "--unproven",
    is_flag=True,
    help="Package a model that did not pass, or did not run on DirectML. The contract and the README record this.",
)
@option("--keep-metadata", is_flag=True, help="Keep the exporter's metadata in the model, also names of this machine.")
@option(
    "--original MODEL",
    type=PATH,
    help="Package this file too, the model that was prepared: the providers of hardware vendors (Windows ML) load it.",
)
@option(
    "--sign KEY",
    type=PATH,
    help="Sign the contract with this private key (Ed25519, PEM), created if missing. Publish KEY.pub.",
)
@option("--force", is_flag=True, help="Replace an existing package.")
@output_options("text", "json")
def pack(run: Path, out: Path | None, language: str, quiet: bool, output_format: str, **options: Any) -> int:
    """Package the model of RUN, the folder that prepare wrote.

    Exit codes: 0 written; 1 the run failed, or an app cannot use the model; 2 bad input; 3 nothing proved the model on
    DirectML.
    """
    out = out or default_out("packages", run.resolve().name)
    with progress_line(quiet) as progress:
        package = api.package_model(run, out=out, language=language, progress=progress, **options)
    if output_format == "json":
        signed = {"public_key": str(package.public_key)} if package.public_key is not None else {}
        print_json({"path": str(package.folder), "sha256": package.digest, **signed, "contract": package.contract})
        return 0
    target = package.contract.target
    buckets = package.contract.buckets
    what = f"{len(buckets)} buckets" if buckets else package.contract.model.file
    if package.contract.original is not None:
        what += f" and {package.contract.original.file}"
    echo(f"wrote {package.folder}: {what} for {language}, contract {package.digest[:12]}")
    for text in package.contract.unproven:
        echo(f"  UNPROVEN: {text}")
    if package.contract.sample_missing:
        echo(f"  NOT RUN: the sample compares no outputs: {package.contract.sample_missing}")
    if quiet:
        return 0
    echo(
        f"  needs {target.lowest_windows}, ONNX Runtime {target.lowest_onnxruntime}, DirectML {target.lowest_directml}"
    )
    if package.contract.removed:
        echo(f"  removed: {package.contract.removed}")
    verify: list[str | Path] = ["dmlprep", "package", "verify", package.folder]
    if package.public_key is not None:
        verify += ["--key", package.public_key]
        echo(f"  signed: publish {package.public_key} separately from the package, so that others can verify it")
    echo(f"  README.md explains how to use it; {command_line(*verify)} checks it")
    return 0


@command.command("verify")
@click.argument("folder", type=PATH)
@option("--key", type=PATH, help="Public key (PEM). Refuse a package that its private key did not sign.")
@output_options("text", "json")
def verify(folder: Path, key: Path | None, quiet: bool, output_format: str) -> int:
    """Check every file of the package in FOLDER against its contract.

    Exit codes: 0 all files are unchanged. 2 a file is missing or changed, or not signed as --key needs; the error names
    it. 3 another version of dmlprep wrote the loader, so the loader was not compared.
    """
    verification = api.verify_package(folder, key=key)
    if output_format == "json":
        summary = {
            "path": str(folder),
            "sha256": verification.digest,
            "signature": verification.signature,
            "loader": verification.loader,
            "others": verification.others,
        }
        print_json({**summary, "contract": verification.contract})
        return verification.exit_code
    verdict = "fit the contract" if verification.exit_code else "are unchanged"
    echo(f"{folder}: {len(verification.contract.files)} files {verdict}, contract {verification.digest[:12]}")
    if verification.exit_code:
        echo(f"  NOT COMPARED: the loader. {verification.contract.made_by} wrote it, and this is dmlprep {__version__}")
    for text in verification.contract.unproven:
        echo(f"  UNPROVEN: {text}")
    if quiet:
        return verification.exit_code
    echo(f"  {verification.signature}")
    if verification.exit_code:
        echo("  package the run again with this version, or pass the signer's public key with --key")
    if verification.others:
        echo("  not part of the package:")
        echo_lines(f"    {name}" for name in verification.others)
    return verification.exit_code


@command.command("nupkg")
@click.argument("folder", type=PATH)
@option("-o", "--out", type=PATH, required=True, help="Folder to write to, for use as a NuGet feed.")
@option("--id", "name", required=True, help="Package id, such as Contoso.Detector.")
@option("--version", required=True, help="Package version, such as 1.0.0.")
@option("--authors", default="", help="Authors. Default: the package id.")
@option(
    "--loader/--no-loader",
    default=True,
    help="Compile the loader in projects that use the package. If a project uses several, one loader is enough.",
    show_default=False,
)
@option("--force", is_flag=True, help="Replace an existing file.")
@output_options("text", "json")
def nupkg(folder: Path, out: Path, quiet: bool, output_format: str, **options: Any) -> int:
    """Write the package in FOLDER, for C# or C++, as a NuGet package.

    Exit codes: 0 written; 2 the package is damaged, or of another language, or the file cannot be written.
    """
    package = api.write_nupkg(folder, out=out, **options)
    if output_format == "json":
        print_json({"path": str(package.path), "contract": package.contract})
        return 0
    echo(f"wrote {package.path}")
    if not quiet:
        echo(f"  {package.contract.model.file} will be in the folder {options['name']} next to the program")
    for text in package.contract.unproven:
        echo(f"  UNPROVEN: {text}")
    return 0
