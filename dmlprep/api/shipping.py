"""Ship a model: in a kit, which tests it on another machine, or in a package for an app."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.api.preparing import Progress, user_metric
from dmlprep.core.errors import OutputError
from dmlprep.core.files import user_path
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
    """Write a kit: a zip with a model, feeds, expected outputs and a runner, to test it on Windows (docs/kit.md).

    Args:
        path: the model; its data files are packed too.
        out, force: path of the zip, and whether to replace the zip and its run key.
        reference: the original, which runs on the CPU now and computes the expected outputs; by default the one in the
            ``run.json`` next to the model, otherwise the model itself.
        tolerance, seeds: as in ``compare``; by default those in the ``run.json``, otherwise ``auto`` and 2.
        feeds, sizes, measures: as in ``compare``.
        session: session options on the other machine: ``device_id``, ``adapter``, ``disable_metacommands``,
            ``optimization``, or ``dim:NAME`` for the size of a free dimension.
        warm_up, runs: number of untimed and of timed runs of each feed.
        time_limit: limit in seconds for all runs on the other machine.
        metric: name of your own measure (``file.py:function``), for the manifest. It is neither packed nor run: pass
            it to ``verify_kit`` too, which otherwise judges by the tolerance.
        key: file of your private key, created if missing, which seals the kit. The key for the person who runs the kit
            is then written next to ``out``, with the suffix ``.run-key``.
        progress: called with the share done (0 to 1) and a text about the current work.

    Returns:
        the kit: its ``path``, its size in bytes (``nbytes``), and its ``name``, a SHA-256 of the content.

    Raises:
        UsageError: a model, a feed, a setting or the output is wrong.
        ModelRefused, ToolFailed: a kit cannot carry the model; or as in ``compare``.
        CheckNotRun: the reference does not run, or has no outputs to compare.
    """
    from dmlprep.kit import KitRequest, pack
    from dmlprep.parity import load_feeds

    return pack(
        KitRequest(
            model=user_path(path),
            out=user_path(out, OutputError),
            reference=user_path(reference) if reference is not None else None,
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
            key=user_path(key) if key is not None else None,
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
    """Judge the result of a kit (``pack_kit``) from another machine, and add the verdict to the record of the model.

    Args:
        result: ``result.zip``, or the ``result.json`` in its folder.
        kit: the ``kit.zip`` that you sent.
        model: the model that the kit must contain; the record next to it gets the verdict.
        record: path of a record that gets the verdict, instead of the one next to ``model``.
        metric, metric_bound: as in ``compare``. A metric that the kit names runs only if you pass it here.
        key: file of your private key. If you pass it, it must have sealed the kit, and the run key must have signed
            the result.

    Returns:
        the verdict; and the path of the record that got it, ``None`` if no record was passed or is next to ``model``.

    Raises:
        InputError: a file was damaged or edited, result and kit do not belong together, the kit contains another
            model, a seal for ``key`` is missing, or the metric fails.
        UsageError: ``metric_bound`` is set without ``metric``.
        OutputError: the record cannot be written.
    """
    from dmlprep.kit import verify

    files = {"model": model, "record": record, "key": key}
    paths = {name: user_path(path) for name, path in files.items() if path is not None}
    return verify(user_path(result), user_path(kit), user_metric(metric, metric_bound), **paths)


def package_model(
    run: str | Path,
    *,
    out: str | Path,
    language: str,
    unproven: bool = False,
    original: str | Path | None = None,
    keep_metadata: bool = False,
    sign: str | Path | None = None,
    force: bool = False,
    progress: Progress = lambda share, text: None,
) -> Package:
    """Package a prepared model for an app: the model, its contract, a loader and a sample (docs/ship-it.md).

    Args:
        run: the folder that ``prepare`` or ``prepare_buckets`` wrote.
        out, force: the folder of the package, and whether to replace a package there.
        language: language of the loader and the sample: ``cpp``, ``csharp``, ``node`` or ``python``.
        unproven: True to package also a model that did not pass, or did not run on DirectML; the contract records
            this.
        original: file of the model that was prepared, to be packaged too: vendors' providers (Windows ML) load it
            instead of the prepared model. ``None``: they load the prepared model.
        keep_metadata: True to keep the exporter's metadata and doc strings in the model, which can have source paths.
            Otherwise they are removed, and a model with another name of this machine or its user is refused.
        sign: file of a private key (Ed25519, PEM) that signs the contract, created if missing. The public key is
            next to it, with the suffix ``.pub``. ``None``: no signature.
        progress: as in ``pack_kit``.

    Returns:
        the package, with its contract (the file ``model.json``) and the SHA-256 of the contract (``digest``).

    Raises:
        UsageError: the folder, the language, the key or the output is wrong, or ``cryptography`` is not installed.
        ModelRefused: an app cannot use the model; or the run failed, and ``unproven`` is False.
        CheckNotRun: nothing proved the model on DirectML, and ``unproven`` is False.
    """
    from dmlprep.package import package

    return package(
        user_path(run),
        user_path(out, OutputError),
        language,
        unproven=unproven,
        original=None if original is None else user_path(original),
        keep_metadata=keep_metadata,
        sign=None if sign is None else user_path(sign),
        force=force,
        progress=progress,
    )


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
        folder: the folder of a package (``package_model``), which is verified first.
        out, force: the existing folder to write to, such as a local feed, and whether to replace an existing file.
        name, version: id and version of the NuGet package (``Contoso.Detector``, ``1.0.0``).
        authors: authors of the NuGet package; by default the id.
        loader: True to compile the loader in projects that use the package. One loader in a project is enough.

    Returns:
        the path of the ``.nupkg`` file, and the contract in it.

    Raises:
        UsageError: the package is damaged or for another language, the id or version is not valid, or the file cannot
            be written.
    """
    from dmlprep.package import NuGetRequest
    from dmlprep.package import write_nupkg as write

    return write(NuGetRequest(user_path(folder), user_path(out, OutputError), name, version, authors, loader, force))


def verify_package(folder: str | Path, *, key: str | Path | None = None) -> Verified:
    """Check every file of a package (``package_model``) against the digests in its contract.

    Args:
        folder: the folder of the package.
        key: file of the public key that must have signed the contract; ``None`` checks no signature.

    Returns:
        the contract and its digest, and a phrase about its signature. ``exit_code`` is 3 if another version
        of dmlprep wrote the loader, which is then not compared, and no signature was checked; otherwise 0.

    Raises:
        InputError: a file is missing or was changed, or the key did not sign the contract; the message names the file.
        UsageError: ``key`` is set, and the package ``cryptography`` is not installed.
    """
    from dmlprep.package import verify

    return verify(user_path(folder), user_path(key) if key is not None else None)


def inspect_app(folder: str | Path) -> AppReport:
    """Report which ONNX Runtime and DirectML an app's folder loads on Windows, and whether they fit its packages.

    The app does not run, so this works on any system.

    Args:
        folder: the folder of the app as it is installed.

    Returns:
        the libraries (``places``), the packages of dmlprep (``models``), and the findings (DP830 to DP835, DP822).

    Raises:
        InputError: the folder cannot be read, or has no program, no ONNX Runtime and no package.
    """
    from dmlprep.package import inspect_app as inspect
    from dmlprep.runtime.environment import system_libraries

    return inspect(user_path(folder), system_libraries())
