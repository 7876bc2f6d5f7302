"""Take a model elsewhere: to another machine in a kit, to an app in a package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.api.preparing import Progress, user_metric
from dmlprep.pipeline.options import Feeds, Metric
from dmlprep.record import Verdict

if TYPE_CHECKING:
    from dmlprep.kit import Packed
    from dmlprep.package import AppReport, NuGetPackage, Package, Verified


def pack_kit(
    path: str | Path,
    *,
    out: str | Path,
    reference: str | Path | None = None,
    feeds: Feeds = (),
    tolerance: str = "",
    sizes: Mapping[str, int] | None = None,
    seeds: int | None = None,
    session: Mapping[str, str] | None = None,
    warm_up: int = 1,
    runs: int = 5,
    time_limit: float = 1800.0,
    measures: Mapping[str, str] | None = None,
    metric: str = "",
    key: str | Path | None = None,
    force: bool = False,
    progress: Progress = lambda share, text: None,
) -> Packed:
    """Pack a model with feeds, expected outputs and a runner, to try it on a Windows machine (docs/kit.md).

    Args:
        path: the model; its data files come along.
        out: the zip.
        reference: the original; by default the one that the ``run.json`` beside the model names, else the model itself.
        feeds: as in ``prepare``.
        tolerance, seeds: those of the ``run.json`` by default, else ``auto`` and 2.
        sizes: sizes for free dimensions, by name.
        session: session options (``device_id``, ``adapter``, ``disable_metacommands``, ``optimization``, ``dim:NAME``).
        warm_up, runs: runs of each feed before the timed ones, and timed ones.
        time_limit: seconds for everything on the other machine.
        measures: as in ``compare``.
        metric: name of your own measure (``file.py:function``), for whoever verifies; it is neither packed nor run.
        key: file of your own key, made where it is not there. It seals the kit, and never leaves you; the key for
            whoever runs the kit is written beside ``out``, its name ending in ``.run-key``.
        force: replace ``out``, and the run key.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        the kit that was written, with its size in bytes and its name, the SHA-256 of what it holds.

    Raises:
        DmlprepError: it cannot be packed, or the reference does not run.
    """
    from dmlprep.kit import KitRequest, pack
    from dmlprep.parity import load_feeds

    return pack(
        KitRequest(
            model=Path(path),
            out=Path(out),
            reference=Path(reference) if reference is not None else None,
            feeds=load_feeds(feeds),
            tolerance=tolerance,
            sizes=dict(sizes or {}),
            seeds=seeds,
            session=dict(session or {}),
            warm_up=warm_up,
            runs=runs,
            time_limit=time_limit,
            measures=dict(measures or {}),
            metric=metric,
            key=Path(key) if key is not None else None,
            force=force,
            progress=progress,
        )
    )


def verify_kit(
    result: str | Path,
    *,
    kit: str | Path,
    model: str | Path | None = None,
    record: str | Path | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    key: str | Path | None = None,
) -> tuple[Verdict, Path | None]:
    """Judge what came back from a kit, and put the verdict into the record of the model.

    Args:
        result: ``result.zip``, or the ``result.json`` extracted from it with its outputs.
        kit: the ``kit.zip`` that was sent.
        model: the model that the kit should hold; the record beside it takes the verdict.
        record: another record to take the verdict.
        metric, metric_bound: as in ``prepare``. A metric that the kit names is not run unless it is given.
        key: file of your own key: the kit must have been packed with it, and the result signed with the run key.

    Returns:
        the verdict, and the record that took it.

    Raises:
        InputError: something was damaged or edited, does not belong together, or lacks the seal that ``key`` asks for.
    """
    from dmlprep.kit import VerifyRequest, verify

    return verify(
        VerifyRequest(
            Path(result),
            Path(kit),
            Path(model) if model is not None else None,
            Path(record) if record is not None else None,
            user_metric(metric, metric_bound),
            Path(key) if key is not None else None,
        )
    )


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
