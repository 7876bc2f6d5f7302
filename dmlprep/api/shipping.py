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
    """Pack a model with feeds, expected outputs and a runner, to test it on a Windows machine (docs/kit.md).

    Args:
        path: the model; its data files are packed too.
        out, force: the zip, and whether to replace it and its run key.
        reference: the original; by default the one in the ``run.json`` next to the model, otherwise the model.
        tolerance, seeds: as in ``compare``; by default those in the ``run.json``, otherwise ``auto`` and 2.
        feeds, sizes, measures: as in ``compare``.
        session: session options (``device_id``, ``adapter``, ``disable_metacommands``, ``optimization``, ``dim:NAME``).
        warm_up, runs: untimed and timed runs of each feed.
        time_limit: seconds for all runs on the other machine.
        metric: name of your own measure (``file.py:function``); it is neither packed nor run.
        key: file of your private key, created if missing, which seals the kit. The key for the person who runs the kit
            is written next to ``out``, with the suffix ``.run-key``.
        progress: called with the share done (0 to 1) and the current work.

    Returns:
        the kit, with its size in bytes and its name, the SHA-256 of its content.

    Raises:
        DmlprepError: the model cannot be packed, or the reference does not run.
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
    """Judge the result of a kit, and add the verdict to the record of the model.

    Args:
        result: ``result.zip``, or the ``result.json`` in its folder.
        kit: the ``kit.zip`` that you sent.
        model: refuse a kit without this model; the record next to it gets the verdict.
        record: another record to get the verdict.
        metric, metric_bound: as in ``prepare``. The metric that the kit names runs only if it is passed here.
        key: file of your private key: it must have sealed the kit, and the run key must have signed the result.

    Returns:
        the verdict, and the path of the record that got it.

    Raises:
        InputError: a file was damaged or edited, the two do not belong together, or a seal for ``key`` is missing.
    """
    from dmlprep.kit import verify

    files = {"model": model, "record": record, "key": key}
    paths = {name: Path(path) for name, path in files.items() if path is not None}
    return verify(Path(result), Path(kit), user_metric(metric, metric_bound), **paths)


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
    """Package a prepared model for an app: the model, its contract, a loader and a sample (docs/ship-it.md).

    Args:
        run: the folder that ``prepare`` wrote.
        out, force: the folder of the package, and whether to replace a package there.
        language: ``cpp``, ``csharp``, ``node`` or ``python``.
        unproven: package a model that did not pass, or did not run on DirectML; the contract records this.
        sign: file of a private key (Ed25519, PEM) that signs the contract, created if missing. The public key is
            next to it, with the suffix ``.pub``.
        progress: as in ``pack_kit``.

    Returns:
        the package, with its contract and its digest.

    Raises:
        DmlprepError: the run did not pass, or the package cannot be written.
    """
    from dmlprep.package import package

    key = Path(sign) if sign is not None else None
    return package(Path(run), Path(out), language, unproven=unproven, sign=key, force=force, progress=progress)


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
    """Write a package for C# or C++ as a NuGet package, which puts the model next to the program (docs/ship-it.md).

    Args:
        folder: a package, which is verified first.
        out, force: the folder to write to, such as a local feed, and whether to replace an existing file.
        name, version: id and version of the NuGet package (``Contoso.Detector``, ``1.0.0``).
        authors: by default the id.
        loader: compile the loader in projects that use the package. One loader in a project is enough.

    Returns:
        the path of the file, and the contract in it.

    Raises:
        DmlprepError: the package is damaged or for another language, or the file cannot be written.
    """
    from dmlprep.package import NuGetRequest
    from dmlprep.package import write_nupkg as write

    return write(NuGetRequest(Path(folder), Path(out), name, version, authors, loader, force))


def verify_package(folder: str | Path, *, key: str | Path | None = None) -> Verified:
    """Check every file of a package against its contract.

    Args:
        folder: the package.
        key: file of the public key that must have signed it.

    Returns:
        its contract and digest, and the state of its signature.

    Raises:
        InputError: a file is missing or was changed, or the key did not sign it; the message names the file.
    """
    from dmlprep.package import verify

    return verify(Path(folder), Path(key) if key is not None else None)


def inspect_app(folder: str | Path) -> AppReport:
    """Report which ONNX Runtime and DirectML an app's folder loads on Windows, and whether they fit its packages.

    Nothing runs; any system will do.

    Args:
        folder: the app as it is installed.

    Returns:
        libraries, packages and findings (DP830 to DP835, DP822).

    Raises:
        InputError: the folder cannot be read, or no file in it runs a model.
    """
    from dmlprep.package import inspect_app as inspect
    from dmlprep.runtime.environment import system_libraries

    return inspect(Path(folder), system_libraries())
