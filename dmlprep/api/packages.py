"""Hand a prepared model to an app, and look at what an app has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.api.arguments import Progress

if TYPE_CHECKING:
    from dmlprep.package import AppReport, NuGetPackage, Package, Verified

__all__ = ["inspect_app", "package_model", "verify_package", "write_nupkg"]


def package_model(
    run: str | Path,
    *,
    out: str | Path,
    language: str,
    unproven: bool = False,
    sign: str | Path | None = None,
    force: bool = False,
    progress: Progress = lambda share, text: None,
) -> Package:
    """Hand a prepared model to an app: the model, its contract, a loader and a sample (docs/ship-it.md).

    Args:
        run: the folder that ``prepare`` wrote.
        out: the folder of the package.
        language: of the app: ``cpp``, ``csharp``, ``node`` or ``python``.
        unproven: package it though its run did not pass or no DirectML ran it; the contract says so.
        sign: file of a private key (Ed25519, PEM) that signs the contract, made where it is not there; its public half
            lies beside it, its name ending in ``.pub``.
        force: replace the package in ``out``.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        the package that was written, with its contract and its digest.

    Raises:
        DmlprepError: the run did not pass, or the package cannot be written.
    """
    from dmlprep.package import PackageRequest, package

    key = Path(sign) if sign is not None else None
    return package(PackageRequest(Path(run), Path(out), language, unproven, key, force, progress))


def write_nupkg(
    folder: str | Path,
    *,
    out: str | Path,
    name: str,
    version: str,
    authors: str = "",
    loader: bool = True,
    force: bool = False,
) -> NuGetPackage:
    """Write a package for C# or C++ as a NuGet package, which puts the model beside the program (docs/ship-it.md).

    Args:
        folder: of the package, which is verified first.
        out: the folder to write into, such as a local feed.
        name: its id (``Contoso.Detector``).
        version: its version (``1.0.0``).
        authors: who made it; the id where nobody is named.
        loader: whether projects that refer to it compile the loader; one of several models of a project is enough.
        force: replace a file of this name.

    Returns:
        the file that was written, and the contract in it.

    Raises:
        DmlprepError: the package is damaged or of another language, or the file cannot be written.
    """
    from dmlprep.package import NuGetRequest
    from dmlprep.package import write_nupkg as write

    return write(NuGetRequest(Path(folder), Path(out), name, version, authors, loader, force))


def verify_package(folder: str | Path, *, key: str | Path | None = None) -> Verified:
    """Check every file of a package against its contract.

    Args:
        folder: of the package.
        key: file of the public key that must have signed it.

    Returns:
        its contract and digest, and what is known of its signature.

    Raises:
        InputError: a file is missing or was changed, or the key did not sign it; the message names the file.
    """
    from dmlprep.package import verify

    return verify(Path(folder), Path(key) if key is not None else None)


def inspect_app(folder: str | Path) -> AppReport:
    """What an app's folder loads on Windows: its ONNX Runtime and DirectML, held against the packages in it.

    Runs nothing, and works on any system.

    Args:
        folder: of the app, as it is installed.

    Returns:
        libraries, packages and findings (DP830 to DP835, DP822).

    Raises:
        InputError: it cannot be read, or has nothing that runs a model.
    """
    from dmlprep.package import inspect_app as inspect
    from dmlprep.runtime.environment import system_libraries

    return inspect(Path(folder), system_libraries())
