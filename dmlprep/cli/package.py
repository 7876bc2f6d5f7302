"""``dmlprep package``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep.cli.groups import PackGroup
from dmlprep.cli.options import format_option
from dmlprep.cli.output import echo, echo_lines, print_json, progress_line

__all__ = ["command"]

_LANGUAGES = ("cpp", "node", "python")
"""Those of ``dmlprep.package.LANGUAGES``; that room is imported when a command runs."""


@click.group("package", cls=PackGroup)
def command() -> None:
    """Hand a prepared model to an app: the model, its contract, a loader, a sample.

    \b
    dmlprep package out -o app --for python
    dmlprep package verify app
    """


@command.command("pack")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@click.option(
    "--for", "language", type=click.Choice(_LANGUAGES), required=True, help="The language of the app's loader."
)
@click.option(
    "--unproven",
    is_flag=True,
    help="Package the model though its run did not pass, or no DirectML ran it. The contract and the README say so.",
)
@click.option(
    "--sign",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Sign the contract with this private key (Ed25519, PEM), made where it is not there; KEY.pub is for others.",
)
@click.option("--force", is_flag=True, help="Replace the package in the folder.")
@format_option("text", "json")
def pack(run: Path, out: Path, language: str, output_format: str, **options: Any) -> int:
    """Package the model of RUN, the folder that prepare wrote.

    Exit codes: 0 written; 1 the run failed; 2 bad input; 3 nothing proved the model on DirectML.
    """
    from dmlprep import api

    made = api.package_model(run, out=out, language=language, progress=progress_line, **options)
    progress_line(1.0, "done")
    if output_format == "json":
        signed = {"public_key": str(made.public_key)} if made.public_key is not None else {}
        print_json({"path": str(made.folder), "sha256": made.digest, **signed, "contract": made.contract})
        return 0
    target = made.contract.target
    echo(f"wrote {made.folder}: {made.contract.model.file} for {language}, contract {made.digest[:12]}")
    echo(
        f"  needs {target.lowest_windows}, ONNX Runtime {target.lowest_onnxruntime}, DirectML {target.lowest_directml}"
    )
    for text in made.contract.unproven:
        echo(f"  UNPROVEN: {text}")
    own = f" --key {made.public_key}" if made.public_key is not None else ""
    if own:
        echo(f"  signed; {made.public_key} shows that it was you: hand it on by another way than the package")
    echo(f"  README.md says how to use it; dmlprep package verify {made.folder}{own} checks it")
    return 0


@command.command("verify")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    help="Public key (PEM): refuse a package that its private half did not sign.",
)
@format_option("text", "json")
def verify(folder: Path, key: Path | None, output_format: str) -> int:
    """Check every file of the package in FOLDER against its contract.

    Exit codes: 0 all are as they were made; 2 one is missing or changed, or not signed though --key asks for it, and
    the error names it.
    """
    from dmlprep import api

    found = api.verify_package(folder, key=key)
    if output_format == "json":
        said = {"path": str(folder), "sha256": found.digest, "signature": found.signature, "others": found.others}
        print_json({**said, "contract": found.contract})
        return 0
    echo(f"{folder}: {len(found.contract.files)} files are as they were made, contract {found.digest[:12]}")
    echo(f"  {found.signature}")
    for text in found.contract.unproven:
        echo(f"  UNPROVEN: {text}")
    if found.others:
        echo("  not of the package:")
        echo_lines(f"    {name}" for name in found.others)
    return 0
