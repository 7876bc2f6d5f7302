"""Write a package: the model without an exporter's notes, its contract, and the loader of a language, atomically."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from dmlprep.core.errors import (
    CheckNotRun,
    DmlprepError,
    InputError,
    InternalError,
    ModelRefused,
    OutputError,
    UsageError,
)
from dmlprep.core.files import FileSet, check_path, parse_json, unreadable, unwritable
from dmlprep.core.files.links import check_inside, is_plain_file, leads_elsewhere
from dmlprep.core.files.reasons import pieces
from dmlprep.core.files.staging import staging_folder
from dmlprep.core.files.writing import Writer
from dmlprep.core.text.build_files import msbuild_text
from dmlprep.directml.targets import find_target, target_names
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.stripping import Stripped
from dmlprep.package.building import Runs, joined, open_runs, without_metadata
from dmlprep.package.contract import CONTRACT, DIGEST, LOADER_FOLDER, SCHEMA, SIGNATURE, Contract, Tensor, schema
from dmlprep.package.examples import code_text, expected_rows
from dmlprep.package.expecting import sample_outputs
from dmlprep.package.languages import find_language
from dmlprep.package.machine import Machine
from dmlprep.package.original import FILE, open_original
from dmlprep.package.reading import read_contract
from dmlprep.package.readme import readme
from dmlprep.package.signing import SigningKey, is_signature, signing_key
from dmlprep.portable.app_errors import requirement
from dmlprep.portable.integrity import file_digest
from dmlprep.record.aliases import Progress
from dmlprep.record.buckets import FileEntry

README = "README.md"
_DIFFERS = "dmlprep bisect finds the first node that differs"
_PROVE = "prepare it with --device dml --require-dml, or prove it on Windows with a kit"


@dataclass(frozen=True)
class Package:
    """A package that was written.

    Attributes:
        digest: SHA-256 of its contract (``model.json``).
        public_key: file of the public key; ``None`` if the package is not signed.
    """

    folder: Path
    contract: Contract
    digest: str
    public_key: Path | None = None


def package(
    run: Path,
    out: Path,
    language: str,
    *,
    unproven: bool,
    original: Path | None,
    keep_metadata: bool,
    sign: Path | None,
    force: bool,
    progress: Progress,
) -> Package:
    """Write a package; the arguments are those of ``dmlprep.api.package_model``.

    Raises:
        InputError: the run's folder has no model with its record; a file changed since it was prepared; ``original`` is
            another file; or ``sign`` is not a private key.
        ModelRefused: an app cannot use the model, or not instead of ``original``. Without ``keep_metadata``: a model
            has a name of this machine. Without ``unproven``: the run failed.
        CheckNotRun: nothing proved the model on DirectML, and ``unproven`` is False.
        UsageError: the language is unknown or cannot use ``original``, the key would be in the folder of the package,
            or ``cryptography`` is not installed.
        OutputError: the folder has other content, or a package without ``force``; or it cannot be written.
        InternalError: a packaged model differs from the proved one in more than its metadata.
    """
    find_language(language)
    before = _check_out(run, out, force=force)
    key = _key(sign, out)
    runs = open_runs(run, keep_metadata=keep_metadata)
    if runs.unproven and not unproven:
        raise _refused(run, runs)
    sources = runs.sources
    folder = run if run.is_dir() else run.parent
    check_inside((file for file in sources if file != run), folder)  # the user may name a link
    # As it is read again: JSON has no infinity, for one.
    draft = joined(runs, language)
    progress(0.0, "running the model on the CPU for the sample")
    expected, reason = sample_outputs(runs.all[0], draft.inputs, draft.outputs)
    draft = msgspec.structs.replace(draft, sample=expected, sample_missing=reason)
    draft = parse_json(draft.to_json(), Contract)
    opened = None if original is None else open_original(original, runs, draft)
    if opened is not None:
        draft = opened.joined(draft)
    texts = texts_of(draft)
    extra = () if draft.original is None else (draft.original.file, *draft.original.data)
    own_names = {name.partition("/")[0] for name in (*texts, *extra, CONTRACT, DIGEST, SIGNATURE)}
    reserved_names = {name.casefold() for name in own_names}
    if clash := next((file for file in sources if file.name.casefold() in reserved_names), None):
        what = f"its file {clash.name!r} has the name of another file of the package"
        raise ModelRefused(what, where=str(clash), code="DP820", fix="rename the model, or prepare it again")
    gone = before.replaced_by({*own_names, *(file.name for file in sources)})
    files: dict[str, FileEntry] = {}
    try:
        # The staging folder creates the package's folder, and removes it if the package does not appear.
        with staging_folder(out) as staging, Writer() as writer:
            stripped = runs.stripped
            if opened is not None:
                sources += opened.save(staging)
                if not keep_metadata and (model := without_metadata(staging / FILE, opened.model, Machine.here())):
                    stripped[staging / FILE] = model
            total, done = max(sum(file.stat().st_size for file in sources), 1), 0
            targets = {
                # The original's weights, perhaps gigabytes, are in the staging folder already.
                file: writer.adopt(file, out / file.name)
                if file.parent == staging and file not in stripped
                else writer.open(out / file.name)
                for file in sources
            }
            for file, target in targets.items():
                done = _copy(file, stripped.get(file), target, files, done, total, progress)
            read = {name: entry.sha256 for name, entry in files.items()}
            read |= {file.name: model.original.hexdigest() for file, model in stripped.items()}
            if changed := next((name for name, sha in runs.digests.items() if read[name] != sha), ""):
                what = f"{changed} was changed since it was prepared, or its record is of another model"
                raise InputError(what, where=str(sources[0].parent / changed), code="DP820", fix="prepare it again")
            for file, model in stripped.items():
                if not model.is_same_as(Path(targets[file].name)):
                    what, fix = "it is not the proved model without its metadata", "report this; pass --keep-metadata"
                    raise InternalError(what, where=file.name, fix=fix)
            loader = staging / LOADER_FOLDER
            for name, content in texts.items():
                if name.startswith(f"{LOADER_FOLDER}/"):
                    loader.mkdir(exist_ok=True)
                    (staging / name).write_bytes(content)
                else:
                    writer.open(out / name).write(content)
                files[name] = FileEntry(len(content), hashlib.sha256(content).hexdigest())
            contract = msgspec.structs.replace(draft, files=dict(sorted(files.items())))
            document = contract.to_json()
            digest = hashlib.sha256(document).hexdigest()
            if key is not None:
                writer.open(out / SIGNATURE).write(key.sign(document))
                gone = [name for name in gone if name != SIGNATURE]
            writer.open(out / DIGEST).write(f"{digest}  {CONTRACT}\n".encode())
            writer.open(out / CONTRACT).write(document)
            if key is not None:
                key.keep()
            before.check()
            folders = {LOADER_FOLDER: loader if loader.exists() else None}
            writer.commit(
                [name for name in gone if name not in (*files, DIGEST, CONTRACT)],
                force=force,
                folders=folders if LOADER_FOLDER in {*gone, *own_names} else {},
            )
    except OSError as error:
        if error.filename is not None and Path(error.filename) in sources:
            raise unreadable(error, Path(error.filename)) from error
        raise unwritable(error, out) from error
    return Package(out, contract, digest, key.public if key is not None else None)


def _refused(run: Path, runs: Runs) -> DmlprepError:
    """Return (do not raise) the error that runs which did not prove their models are not packaged.

    It is ``ModelRefused`` if a run failed, ``CheckNotRun`` if nothing proved it.
    """
    records = [run.record for run in runs.all]
    failed = any(r.exit_code == 1 or any(v.outcome == "failed" and v.decides for v in r.verdicts) for r in records)
    return (ModelRefused if failed else CheckNotRun)(
        f"not packaged, because the run did not prove the model: {runs.unproven[0]}",
        where=str(run),
        code="DP821",
        fix=f"{_DIFFERS if failed else _PROVE}; --unproven packages it anyway, and records this in the contract",
    )


def _key(sign: Path | None, out: Path) -> SigningKey | None:
    """Return the private key that signs the package, ``None`` if ``sign`` is ``None``.

    Raises:
        UsageError: the key would be in the folder of the package.
        InputError, OutputError, UsageError: as in ``signing_key``.
    """
    if sign is None:
        return None
    if sign.absolute().parent.resolve() == out.resolve():
        what = "your private key would be in the package"
        raise UsageError(what, where=str(sign), fix="keep the key in another folder")
    return signing_key(sign)


@dataclass(frozen=True)
class _Before:
    """The earlier package in the output folder, which will be replaced.

    Attributes:
        own: names of its files that are unchanged; empty if there is no package.
        watch: the watcher of these files: they must not change until they are removed.
    """

    folder: Path
    own: tuple[str, ...] = ()
    watch: Unchanged = field(default_factory=lambda: Unchanged(contents=False))

    def replaced_by(self, names: Collection[str]) -> list[str]:
        """Return the names of the earlier package's files, and of its loader's folder, which are to be removed.

        Raises:
            OutputError: a new file in ``names`` would replace a file that is not one of them, or the loader's folder
                has such a file.
        """
        own = {name.partition("/")[0] for name in self.own}
        for place in (self.folder / name for name in sorted(names) if name not in own):
            if os.path.lexists(place):
                raise _changed(place)
        if LOADER_FOLDER in own:
            self._check_loader()
        return sorted(own)

    def check(self) -> None:
        """Check that no program changed the earlier package meanwhile.

        Raises:
            InputError, OutputError: one did.
        """
        self.watch.check()
        if any("/" in name for name in self.own):
            self._check_loader()

    def _check_loader(self) -> None:
        for place in (self.folder / LOADER_FOLDER).iterdir():
            if place.name != "__pycache__" and f"{LOADER_FOLDER}/{place.name}" not in self.own:
                raise _changed(place)


def _changed(place: Path) -> OutputError:
    what = "was added or changed after packaging, so it is not replaced"
    return OutputError(what, where=str(place), fix="move it away, or choose another folder")


def _check_out(run: Path, out: Path, *, force: bool) -> _Before:
    """Check, before the work begins, that a package can be written to ``out``; return the earlier package there.

    If a run was killed while it replaced the package, the old or the new package is restored first.

    Raises:
        OutputError: ``out`` is a file, has other content, has a package and ``force`` is False, is the run's folder, or
            its parent folder does not exist.
    """
    check_path(out / CONTRACT)
    where = str(out)
    if not out.exists():
        if not out.absolute().parent.is_dir():
            raise OutputError("its parent folder does not exist", where=where, fix="create it, or choose another one")
        return _Before(out)
    if not out.is_dir():
        raise OutputError("this is a file", where=where, fix="pass a folder")
    if run.resolve() in (out.resolve(), out.resolve() / "model.onnx"):
        raise OutputError("this is the run's own folder", where=where, fix="choose another folder")
    FileSet(out, CONTRACT).recover()
    if not any(out.iterdir()):
        return _Before(out)
    if not (out / CONTRACT).is_file():
        raise OutputError("the folder is not empty, and is not a package", where=where, fix="choose another folder")
    if not force:
        raise OutputError("the folder contains a package", where=where, fix="pass --force to replace it")
    own = tuple(_own(out))
    watch = Unchanged(contents=False)
    watch.take([out / name for name in own])
    return _Before(out, own, watch)


def _own(folder: Path) -> Iterator[str]:
    """Yield the names of files in the folder of a package that are unchanged, so that they may be replaced.

    Only plain files that have their digest in the contract count, because the contract could name any file of the user.
    The loader's folder must not be a link.
    The contract itself and a file with the form of a signature are also yielded, without a check of their content.
    """
    contract, raw = read_contract(folder)
    digests = {name: entry.sha256 for name, entry in contract.files.items()}
    digests[DIGEST] = hashlib.sha256(f"{hashlib.sha256(raw).hexdigest()}  {CONTRACT}\n".encode()).hexdigest()
    for name, sha256 in digests.items():
        path = folder / name
        try:
            linked = path.parent != folder and path.parent.is_dir() and leads_elsewhere(os.lstat(path.parent))
            if not linked and is_plain_file(path) and file_digest(path)[1] == sha256:
                yield name
        except OSError as error:
            raise unreadable(error, path) from error
    if is_plain_file(folder / CONTRACT):
        yield CONTRACT
    if is_signature(folder / SIGNATURE):
        yield SIGNATURE


def _copy(
    file: Path,
    model: Stripped | None,
    target: BinaryIO,
    files: dict[str, FileEntry],
    done: int,
    total: int,
    progress: Progress,
) -> int:
    """Copy a file of any size, unless ``target`` is read-only, and add its size and SHA-256 to ``files``, by its name.

    Args:
        model: the content of the file if it is a model whose metadata is removed.
        done: bytes that were copied before.
        total: size in bytes of all files, for ``progress``.

    Returns:
        ``done`` plus the copied bytes.
    """
    digest, size = hashlib.sha256(), 0
    for piece in model.chunks() if model is not None else pieces(file):
        if target.writable():
            target.write(piece)
        digest.update(piece)
        size += len(piece)
        progress(min((done + size) / total, 1.0), f"packaging {file.name}")
    target.flush()
    files[file.name] = FileEntry(size, digest.hexdigest())
    return done + size


def nuget_version(contract: Contract) -> str:
    """Return the version of the NuGet package Microsoft.ML.OnnxRuntime.DirectML that an app should use.

    It is the release of the contract's target, or the newest that NuGet has if that is older
    (docs/directml-in-2026.md).
    """
    releases = [find_target(name) for name in target_names()]
    last = max((one for one in releases if one.package == "onnxruntime-directml"), key=lambda one: one.release)
    return min(find_target(contract.target.name), last, key=lambda one: one.release).ort_version


def texts_of(contract: Contract) -> dict[str, bytes]:
    """Return the content, as bytes, of the generated files of a package, by name: loader, sample, schema and README.

    A contract that was read from ``model.json`` gives the same bytes as when it was written.
    """
    language = find_language(contract.language)
    values = {
        "LOWEST": contract.target.lowest_onnxruntime,
        "REQUIREMENT": requirement(msgspec.to_builtins(contract.target)),
        "NUGET": nuget_version(contract),
        "MODEL": ";".join(msbuild_text(name) for name in contract.shipped_files),
        "EXPECTED": expected_rows(contract),
        "INPUTS": _members(contract.inputs, "Input"),
        "OUTPUTS": _members(contract.outputs, "Output"),
    }

    def filled(content: bytes) -> bytes:
        return re.sub(rb"@([A-Z]+)@", lambda m: values.get(m[1].decode(), m[0].decode()).encode(), content)

    texts = {name: filled(content) for name, content in language.files().items()}
    texts[SCHEMA] = (json.dumps(schema(), indent=1) + "\n").encode()
    texts[README] = readme(contract).encode()
    texts[".gitattributes"] = b"* -text\n"  # git for Windows would change the line ends
    return texts


def _members(values: Sequence[Tensor], kind: str) -> str:
    """Return the members of a TypeScript interface for inputs or outputs, with ``kind`` as their generic type."""
    return "\n".join(f"  readonly {code_text(one.name, 'node')}: {kind}<'{one.type}'>;" for one in values)
