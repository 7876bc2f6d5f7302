"""Write a package: the model as it is, its contract, and what the app's language needs, each file whole or none."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dmlprep.errors import CheckNotRun, DmlprepError, InputError, ModelRefused, OutputError, UsageError
from dmlprep.files import check_path, unreadable, unwritable
from dmlprep.files.staging import staging_folder
from dmlprep.model.saving import Writer
from dmlprep.package.buckets import Runs, joined, open_runs
from dmlprep.package.contract import CONTRACT, DIGEST, SCHEMA, SIGNATURE, Contract, FileEntry, schema
from dmlprep.package.languages import Language, find_language, read_part
from dmlprep.package.meanings import sentence
from dmlprep.package.shipping import WHEELS, msbuild_text, nuget_version, shipped_files
from dmlprep.package.signing import SigningKey, signing_key
from dmlprep.package.verifying import read_contract
from dmlprep.targets import find_target

__all__ = ["Package", "PackageRequest", "package"]

Progress = Callable[[float, str], None]

README = "README.md"
_PIECE = 1 << 20


@dataclass(frozen=True)
class PackageRequest:
    """What a package is asked for.

    Attributes:
        run: the folder that ``prepare -o`` wrote, or the model in it.
        out: the folder of the package; made where it is not there.
        language: a word of ``LANGUAGES``.
        sign: file of the private key that signs the contract, made where it is not there; ``None`` for no signature.
        unproven: make it also of a run that did not pass; the contract and the README say so.
        force: replace the package in ``out``.
    """

    run: Path
    out: Path
    language: str
    unproven: bool = False
    sign: Path | None = None
    force: bool = False
    progress: Progress = lambda share, text: None


@dataclass(frozen=True)
class Package:
    """A package that was written.

    Attributes:
        digest: SHA-256 of its contract.
        public_key: file of the key that shows who signed it; ``None`` where it is not signed.
    """

    folder: Path
    contract: Contract
    digest: str
    public_key: Path | None = None


def package(request: PackageRequest) -> Package:
    """Write a package.

    Raises:
        InputError: the run's folder holds no model with its record.
        ModelRefused: the run failed, or the model cannot be handed to an app.
        CheckNotRun: nothing proved the model on DirectML.
        OutputError: the folder is in use, or cannot be written.
    """
    language = find_language(request.language)
    gone = _check_out(request)
    key = _key(request)
    runs = open_runs(request.run)
    wrong = runs.unproven
    if wrong and not request.unproven:
        raise _refused(request, runs)
    sources = runs.sources
    draft = joined(runs, request.language)
    texts = _texts(language, draft)
    taken = {name.casefold() for name in (*texts, CONTRACT, DIGEST, SIGNATURE)}
    if clash := next((file for file in sources if file.name.casefold() in taken), None):
        what = f"its file {clash.name!r} has the name of another file of the package"
        raise ModelRefused(what, where=str(clash), code="DP820", fix="rename the model, or prepare it again")
    files: dict[str, FileEntry] = {}
    try:
        # The staging folder makes the package's, and takes it away again where the package does not appear.
        with staging_folder(request.out), Writer() as writer:
            total, done = max(sum(file.stat().st_size for file in sources), 1), 0
            for file in sources:
                done = _copy(file, writer.open(request.out / file.name), files, done, total, request.progress)
            if changed := next((name for name, sha in runs.digests.items() if files[name].sha256 != sha), ""):
                what = f"{changed} was changed since it was prepared"
                raise InputError(what, where=str(sources[0].parent / changed), code="DP820", fix="prepare it again")
            for name, content in texts.items():
                writer.open(request.out / name).write(content)
                files[name] = FileEntry(len(content), hashlib.sha256(content).hexdigest())
            contract = msgspec.structs.replace(draft, files=dict(sorted(files.items())))
            document = contract.to_json()
            digest = hashlib.sha256(document).hexdigest()
            if key is not None:
                writer.open(request.out / SIGNATURE).write(key.sign(document))
                gone = tuple(name for name in gone if name != SIGNATURE)
            writer.open(request.out / DIGEST).write(f"{digest}  {CONTRACT}\n".encode())
            writer.open(request.out / CONTRACT).write(document)
            if key is not None:
                key.keep()
            writer.commit([name for name in gone if name not in (*files, DIGEST)])
    except OSError as error:
        if error.filename is not None and Path(error.filename) in sources:
            raise unreadable(error, Path(error.filename)) from error
        raise unwritable(error, request.out) from error
    return Package(request.out, contract, digest, key.public if key is not None else None)


def _refused(request: PackageRequest, runs: Runs) -> DmlprepError:
    """Why runs that did not pass are not packaged."""
    records = [run.record for run in runs.all]
    failed = any(r.exit_code == 1 or any(v.outcome == "failed" and v.decides for v in r.verdicts) for r in records)
    return (ModelRefused if failed else CheckNotRun)(
        f"not packaged, because this run did not pass: {runs.unproven[0]}",
        where=str(request.run),
        code="DP821",
        fix="prepare it with --device dml --require-dml, or prove it on Windows with a kit; --unproven packages it "
        "all the same, and says so in the contract",
    )


def _key(request: PackageRequest) -> SigningKey | None:
    """The key that signs.

    Raises:
        UsageError: it would lie in the package, and be handed on with it.
    """
    if request.sign is None:
        return None
    if request.sign.absolute().parent.resolve() == request.out.resolve():
        what = "your private key would lie in the package"
        raise UsageError(what, where=str(request.sign), fix="keep it in another folder")
    return signing_key(request.sign)


def _check_out(request: PackageRequest) -> tuple[str, ...]:
    """Fail before the work; the files of an earlier package in this folder, which go.

    Raises:
        OutputError: the folder holds something else, or may not be replaced.
    """
    check_path(request.out / CONTRACT)
    where = str(request.out)
    if not request.out.exists():
        if not request.out.absolute().parent.is_dir():
            raise OutputError("its folder does not exist", where=where, fix="make the folder, or choose another one")
        return ()
    if not request.out.is_dir():
        raise OutputError("this is a file", where=where, fix="name a folder")
    if request.run.resolve() in (request.out.resolve(), request.out.resolve() / "model.onnx"):
        raise OutputError("this is the run's own folder", where=where, fix="choose another folder")
    if not any(request.out.iterdir()):
        return ()
    if not (request.out / CONTRACT).is_file():
        raise OutputError("the folder is not empty, and holds no package", where=where, fix="choose another folder")
    if not request.force:
        raise OutputError("the folder holds a package", where=where, fix="pass --force to replace it")
    return (*read_contract(request.out)[0].files, DIGEST, SIGNATURE)


def _copy(file: Path, target: BinaryIO, files: dict[str, FileEntry], done: int, total: int, progress: Progress) -> int:
    """Copy a file of any size, 1 MiB at a time; the bytes that were copied of all files."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as source:
        while piece := source.read(_PIECE):
            target.write(piece)
            digest.update(piece)
            size += len(piece)
            progress(min((done + size) / total, 1.0), f"packaging {file.name}")
    files[file.name] = FileEntry(size, digest.hexdigest())
    return done + size


def _texts(language: Language, contract: Contract) -> dict[str, bytes]:
    """Every file but the model's own, the contract and its digest."""
    made_for = find_target(contract.target.name).package
    values = {
        "LOWEST": contract.target.lowest_onnxruntime,
        "WHEEL": made_for if made_for in WHEELS else WHEELS[0],
        "NUGET": nuget_version(contract),
        "MODEL": ";".join(msbuild_text(name) for name in shipped_files(contract)),
    }

    def filled(content: bytes) -> bytes:
        return re.sub(rb"@([A-Z]+)@", lambda m: values.get(m[1].decode(), m[0].decode()).encode(), content)

    texts = {name: filled(content) for name, content in language.files().items()}
    texts[SCHEMA] = (json.dumps(schema(), indent=1) + "\n").encode()
    texts[README] = "\n".join(_readme(language, contract)).encode()
    return texts


def _readme(language: Language, contract: Contract) -> Iterator[str]:
    target, model = contract.target, contract.model
    named = f"{len(contract.buckets)} buckets of one model" if contract.buckets else model.file
    yield f"# {named} for {language.title}\n"
    yield f"Made by {contract.made_by}. `{CONTRACT}` is the contract: what is said here and more, for programs."
    yield f"`{SCHEMA}` is its JSON Schema.\n"
    if contract.unproven:
        yield "**This model was packaged though its run did not pass:**\n"
        yield from (f"- {text}" for text in contract.unproven)
        yield ""
    if contract.buckets:
        yield from _buckets(contract)
    yield "## Inputs and outputs\n"
    yield "| | name | type | shape | layout | bytes | bytes of a GPU buffer |\n|---|---|---|---|---|---|---|"
    for kind, values in (("in", contract.inputs), ("out", contract.outputs)):
        for one in values:
            shape = " x ".join(map(str, one.shape)) or "scalar"
            sizes = f"{'' if one.bytes is None else one.bytes} | {'' if one.gpu_bytes is None else one.gpu_bytes}"
            yield f"| {kind} | `{one.name}` | {one.type} | {shape} | {one.layout} | {sizes} |"
    yield ""
    told = [f"- `{one.name}`: {text}." for one in (*contract.inputs, *contract.outputs) if (text := sentence(one))]
    if told:
        yield from (*told, "")
    if contract.fixed and not contract.buckets:
        fixed = ", ".join(f"`{name}` = {size}" for name, size in contract.fixed.items())
        yield f"Fixed when the model was prepared: {fixed}. Other sizes need another preparation.\n"
    yield "## What it needs\n"
    yield f"- {target.lowest_windows} or newer, and a GPU with Direct3D 12."
    yield f"- ONNX Runtime {target.lowest_onnxruntime} or newer with DirectML {target.lowest_directml} or newer."
    yield f"  It was made for {target.onnxruntime} with DirectML {target.directml} (level {target.feature_level})."
    yield f"- {target.nodes_on_directml} of {target.nodes} nodes run on DirectML.\n"
    yield "## What was proved\n"
    for proof in contract.proof:
        worst = "" if proof.worst is None else f", worst relative error {proof.worst:.2g}"
        yield f"- {proof.check}: {proof.outcome}{worst}{': ' + proof.reason if proof.reason else ''}"
        if proof.device:
            yield f"  ({proof.device}; tolerance {proof.tolerance})"
    yield ""
    yield language.usage()
    yield read_part("rules.md")


def _buckets(contract: Contract) -> Iterator[str]:
    yield "## Buckets\n"
    yield "Each is a model of fixed sizes; all read the same weights. What follows below is about the first one.\n"
    yield "| bucket | file | shapes of the inputs | worst relative error |\n|---|---|---|---|"
    for one in contract.buckets:
        shapes = ", ".join(f"`{value.name}` {' x '.join(map(str, value.shape)) or 'scalar'}" for value in one.inputs)
        worst = max((proof.worst for proof in one.proof if proof.worst is not None), default=None)
        yield f"| {one.name} | `{one.model.file}` | {shapes} | {'' if worst is None else f'{worst:.2g}'} |"
    yield ""
