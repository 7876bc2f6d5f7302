"""Pack a kit: the model unchanged, feeds, expected outputs and the runner, streamed into one zip."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PureWindowsPath
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, InputError, InternalError, ModelRefused, OutputError, ToolFailed
from dmlprep.core.files import check_output, unreadable, unwritable
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.core.files.writing import Writer
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged, data_files, named_data_files
from dmlprep.kit.forms import DIRECTML, KitCandidate, KitFeed, KitModel, KitReference, Manifest
from dmlprep.kit.keyfiles import check_run_key, keep_key, key_to_pack_with, write_run_key
from dmlprep.kit.record_defaults import FromRecord, from_record, target_of
from dmlprep.kit.zipping import ZipWriter
from dmlprep.metrics import OutputGroup, Tolerance, choose_tolerance, degenerate, holds_fp16, quantizes, tells_something
from dmlprep.parity import Reference, fit_feeds
from dmlprep.parity.candidate import adapt_feed
from dmlprep.parity.feeds.sizes import free_dimensions, graph_inputs
from dmlprep.parity.judging import JudgingOptions
from dmlprep.portable.arrays import Array
from dmlprep.portable.integrity import MANIFEST
from dmlprep.portable.keys import KIT_SEAL, PackerKey
from dmlprep.record.aliases import Progress
from dmlprep.record.tuning import Tuned
from dmlprep.runtime import SessionFailure, ValueInfo

_Bounds = dict[Literal["dml", "cpu"], Tolerance]

_LOADER = ("app_", "buckets.", "loader.", "public.", "sample.", "vendors.")
"""Beginnings of the names of modules in ``portable`` that only the loader for apps imports."""


@dataclass(frozen=True)
class KitRequest:
    """The arguments of ``dmlprep.api.pack_kit``, with parsed paths and feeds.

    Attributes:
        candidates: name -> file of the models to choose from, ``model`` first; empty for a kit with one model.
        tuned: the result of ``tune`` about the candidates.
    """

    model: Path
    out: Path
    reference: Path | None = None
    feeds: Sequence[Mapping[str, Array]] = ()
    tolerance: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    seeds: int | None = None
    session: Mapping[str, str] = field(default_factory=dict)
    warm_up: int = 1
    runs: int = 5
    time_limit: float = 1800.0
    metric: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)
    key: Path | None = None
    force: bool = False
    progress: Progress = lambda share, text: None
    candidates: Mapping[str, Path] = field(default_factory=dict)
    tuned: Tuned | None = None
    bench_seconds: float = 20.0


@dataclass(frozen=True)
class Packed:
    """A packed kit.

    ``name`` is the SHA-256 of its ``kit.json``, ``nbytes`` the size of the zip in bytes. ``run_key`` is the file of the
    run key, ``None`` if the kit is not sealed.
    """

    path: Path
    name: str
    nbytes: int
    manifest: Manifest
    run_key: Path | None = None


def pack(request: KitRequest) -> Packed:
    """Compute the expected outputs, write a kit, and return a description of it.

    Raises:
        InputError: a model, a feed, the key file or the record next to the model cannot be used, or a file changed
            meanwhile.
        ModelRefused: the model has names or types that a kit cannot carry.
        ToolFailed: a tool that reads a model crashed on it, or exceeded its limits.
        CheckNotRun: no expected outputs: the reference does not run, draws random numbers or has no finite output.
        OutputError: the zip or the run key exists (without ``force``) or cannot be written, or the zip's name does not
            end in .zip.
        UsageError: there is no such tolerance, or the key's file has the name of the run key.
    """
    _check_out(request)
    files = Unchanged()
    try:
        return _pack(request, files)
    except (ModelRefused, ToolFailed, CheckNotRun, InternalError):
        files.check()  # a model is not to blame for a temporary state of its file
        raise


def _pack(request: KitRequest, files: Unchanged) -> Packed:
    first = _Candidate.opened(next(iter(request.candidates), ""), request.model, files)
    digest = files.digests[str(request.model)]
    known = FromRecord() if request.reference is not None else from_record(request.model, digest, files)
    original = request.reference or known.original or request.model
    others = [_Candidate.opened(name, path, files) for name, path in list(request.candidates.items())[1:]]
    candidates = [first, *others]
    for one in candidates:
        _check_values(one.model, request)
    truth = files.take_model(original)
    if original == known.original:
        _check_original(known, [original, *data_files(truth)], files)
    key, is_new = key_to_pack_with(request.key) if request.key is not None else (None, False)
    bounds = [_bounds(one.model, request.tolerance or known.tolerance) for one in candidates]
    with Reference.of(
        truth,
        request.feeds or None,
        like=first.model,
        sizes={**known.sizes, **request.sizes},
        seeds=request.seeds or known.seeds,
        time_limit=request.time_limit,
        judging_options=JudgingOptions({**known.measures, **request.measures}),
    ) as reference:
        expected = _Expected.of(reference, first.model, request)
        metric = PureWindowsPath(request.metric or known.metric).name  # a folder would name this machine
        contents = _Contents(request, candidates, bounds, expected, metric, key)
        made_by = files.digests[str(original)]
        by = KitReference(original.name, made_by, made_by == digest, str(reference.device))
        try:
            with Writer() as writer:
                raw = writer.open(request.out)
                total = sum(file.stat().st_size for file in contents.sources)
                with ZipWriter(raw, total, request.progress) as kit:
                    manifest, document = contents.add_to(kit, files, by)
                files.check()  # the last check before the kit appears
                if key is not None and request.key is not None and is_new:
                    keep_key(key, request.key)
                writer.commit(force=request.force)
        except OSError as error:
            if error.filename is not None and Path(error.filename) in contents.sources:
                raise unreadable(error, Path(error.filename), code="DP015") from error  # it could be read before
            raise unwritable(error, request.out) from error
    name = hashlib.sha256(document).hexdigest()
    run_key = write_run_key(key.run_key(name), request.out, force=request.force) if key is not None else None
    return Packed(request.out, name, request.out.stat().st_size, manifest, run_key)


@dataclass(frozen=True)
class _Expected:
    """The feeds of a kit, and the outputs of the reference."""

    feeds: list[dict[str, Array]]
    outputs: list[dict[str, Array]]
    groups: list[OutputGroup]
    noise: dict[str, float]
    inputs: Literal["", "given", "seeded"]

    @classmethod
    def of(cls, reference: Reference, model: Model, request: KitRequest) -> _Expected:
        feeds = _feeds(reference, model, request)
        noise, _ = reference.noise(request.progress)
        outputs = [reference.outputs(index) for index in range(len(feeds))]
        return cls(feeds, outputs, reference.groups(), noise, reference.inputs)

    def weak(self, tolerance: Tolerance) -> dict[str, str]:
        """Return output -> reason, for outputs that prove nothing at a tolerance."""
        return degenerate(self.groups, self.outputs, tolerance)


@dataclass(frozen=True)
class _Contents:
    """Everything that a kit contains."""

    request: KitRequest
    candidates: list[_Candidate]
    bounds: list[_Bounds]
    expected: _Expected
    metric: str
    key: PackerKey | None

    @property
    def sources(self) -> list[Path]:
        """The files of all models, with their data files."""
        return [file for one in self.candidates for file in one.files]

    def add_to(self, kit: ZipWriter, files: Unchanged, reference: KitReference) -> tuple[Manifest, bytes]:
        """Write everything into the kit; return its manifest, and the content of ``kit.json`` as bytes."""
        request, expected = self.request, self.expected
        target = request.tuned.target if request.tuned is not None else target_of(request.model)
        old = not target or find_target(target).package == DIRECTML
        package = DIRECTML if old else "onnxruntime-windowsml"
        _runner(kit, package)
        folders = ["model", *(f"candidates/{number}" for number in range(1, len(self.candidates)))]
        packed = [
            one.packed(kit, files, folder, bounds, expected.weak(bounds["dml"]))
            for one, folder, bounds in zip(self.candidates, folders, self.bounds, strict=True)
        ]
        first = packed[0]
        manifest = Manifest(
            format=1,
            made_by=f"dmlprep {__version__}",
            model=first.model,
            reference=reference,
            session=dict(sorted(request.session.items())),
            tolerances=first.tolerances,
            groups=expected.groups,
            feeds=[_feed(kit, i, feed, expected.outputs[i]) for i, feed in enumerate(expected.feeds)],
            warm_up=request.warm_up,
            runs=request.runs,
            time_limit=request.time_limit,
            files=dict(sorted(kit.files.items())),
            inputs=expected.inputs,
            noise=expected.noise,
            weak=first.weak,
            metric=self.metric,
            nonce=secrets.token_hex(16) if self.key is not None else "",
            candidates=packed if request.candidates else [],
            tuned=request.tuned,
            bench_seconds=request.bench_seconds,
            package=package,
        )
        document = manifest.to_json()
        kit.add_bytes(MANIFEST, document)
        if self.key is not None:
            kit.add_bytes(KIT_SEAL, self.key.seal(document) + b"\n")
        return manifest, document


def _check_original(known: FromRecord, paths: Sequence[Path], files: Unchanged) -> None:
    """Raise InputError if a file of the original changed since the model was prepared from it.

    The changed original would compute other expected outputs. Files that the record does not name are not checked.
    """
    for path in paths:
        then = known.digests.get(path.name)
        if then is not None and files.digests[str(path)] not in then:
            what = f"{path.name} changed after the model was prepared from it"
            fix = "prepare the model again, or pass the model to compare with by --reference"
            raise InputError(what, where=str(path), code="DP811", fix=fix)


@dataclass(frozen=True)
class _Candidate:
    """A model of a kit, with its data files by name."""

    name: str
    path: Path
    model: Model
    data: dict[str, Path]

    @classmethod
    def opened(cls, name: str, path: Path, files: Unchanged) -> _Candidate:
        model = files.take_model(path)
        return cls(name, path, model, _data_files(model))

    @property
    def files(self) -> list[Path]:
        return [self.path, *self.data.values()]

    def packed(
        self, kit: ZipWriter, files: Unchanged, folder: str, bounds: _Bounds, weak: dict[str, str]
    ) -> KitCandidate:
        """Write its files into a folder of the kit, and return its row of the manifest.

        The model becomes ``model.onnx``, or another name if a data file has this one. An error is raised if a file
        changed since it was opened.
        """
        data = {f"{folder}/{name}": file for name, file in self.data.items()}
        names = (f"{folder}/{name}.onnx" for name in ("model", "the_model", "the_very_model"))
        own = next(name for name in names if name not in map(str.casefold, data))
        for name, file in ((own, self.path), *data.items()):
            kit.add_file(name, file)
            # The zip has read the file for its digest. Later changes of the file do not matter to the kit.
            files.check_read(file, kit.files[name].sha256)
        model = KitModel(self.path.name, own, list(data), holds_fp16(self.model))
        return KitCandidate(self.name, model, bounds, weak)


def _bounds(model: Model, tolerance: str) -> _Bounds:
    """Return device -> tolerance for a model's outputs; ``tolerance`` is the user's setting, such as ``auto``."""
    traits = {"fp16": holds_fp16(model), "quantized": quantizes(model)}
    devices: tuple[Literal["dml", "cpu"], ...] = ("dml", "cpu")
    return {device: choose_tolerance(tolerance, device=device, **traits) for device in devices}


def _check_out(request: KitRequest) -> None:
    """Raise, before the work, if the kit or its run key cannot be written, or if the name does not end in .zip."""
    check_output(request.out, force=request.force)
    if request.out.suffix.lower() != ".zip":
        raise OutputError("the name must end in .zip", where=str(request.out), fix="write a name such as kit.zip")
    if request.key is not None:
        check_run_key(request.key, request.out, force=request.force)


def _check_values(model: Model, request: KitRequest) -> None:
    """Raise if a kit cannot carry the types of a model's inputs and outputs, or if a session option does not fit.

    Raises:
        ModelRefused: DP813, a type has no form in numpy's files.
        InputError: DP203, an option sets a free dimension that the model does not have.
    """
    odd = [v for v in (*model.ir.graph.inputs, *model.ir.graph.outputs) if not _plain(v)]
    if odd:
        what = f"{odd[0].name!r} is {odd[0].type or 'of no known type'}: a kit supports only plain arrays"
        fix = "use inputs and outputs of float32, float16, integers, booleans or strings"
        raise ModelRefused(what, where=str(request.model), code="DP813", fix=fix)
    inputs = graph_inputs(model)
    known = {dim for one in inputs for dim in one.dims or () if isinstance(dim, str)}
    for option in request.session:
        kind, _, name = option.partition(":")
        if kind == "dim" and name not in known:
            what = f"no input has a free dimension {name!r}"
            fix = f"it has: {', '.join(sorted(known & free_dimensions(inputs))) or 'none'}"
            raise InputError(what, where=str(request.model), code="DP203", fix=fix)


def _plain(value: ir.Value) -> bool:
    kind = value.type
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        kind = kind.elem_type if not isinstance(kind.elem_type, ir.DataType) else kind
    if kind is None:
        return True
    dtype = kind.dtype
    if dtype == ir.DataType.UNDEFINED:
        return False
    return dtype == ir.DataType.STRING or (dtype.bitwidth >= 8 and np.dtype(dtype.numpy()).kind in "biuf")


def _data_files(model: Model) -> dict[str, Path]:
    """Return name in the model -> path of its data files; raise ModelRefused if Windows does not accept a name."""
    named = named_data_files(model)
    folded: dict[str, str] = {}
    for name in named:
        wrong = any(file_name_problem(part) for part in name.split("/"))
        twin = folded.setdefault(name.casefold(), name)
        if wrong or twin != name or len(name) > 120:
            what = f"a kit for Windows cannot contain a data file of this name: {name!r}"
            fix = "dmlprep prepare -r @check-only writes the weights into model.onnx or model.onnx.data"
            raise ModelRefused(what, where=str(model.path), code="DP813", fix=fix)
    return named


def _feeds(reference: Reference, model: Model, request: KitRequest) -> list[dict[str, Array]]:
    """Compute the outputs of the reference; return its feeds, converted to the model's types.

    Raises:
        CheckNotRun: the reference does not run, draws random numbers, or has no finite output.
    """
    where = str(request.model)
    types = [ValueInfo(i.name, _type_name(i.dtype), ()) for i in graph_inputs(model)]
    # Before the work as well: the reference may change its feeds while it computes.
    fit_feeds(model, [adapt_feed(feed, types, where) for feed in reference.feeds], where)
    try:
        count = reference.compute(request.progress)
    except SessionFailure as failure:
        what = f"the reference does not run on the CPU, so there are no expected outputs: {failure.message}"
        fix = "pass matching --feeds or --size, or another --reference"
        raise CheckNotRun(what, where=str(reference.path), code="DP703", fix=fix) from failure
    outputs = [reference.outputs(index) for index in range(len(reference.feeds))]
    if count == 0 or not any(tells_something(array) for one in outputs for array in one.values()):
        what = "every output of the reference is empty, NaN or infinite: no number to compare"
        raise CheckNotRun(what, where=str(reference.path), code="DP703", fix="pass --feeds")
    if drawn := reference.random_node():
        what = f"the reference draws random numbers ({drawn}): its outputs differ in each run"
        fix = "export it with a seed, or make the random numbers an input"
        raise CheckNotRun(what, where=str(reference.path), code="DP703", fix=fix)
    return fit_feeds(model, [adapt_feed(feed, types, where) for feed in reference.feeds], where)


def _type_name(dtype: ir.DataType | None) -> str:
    return "string" if dtype is None or dtype == ir.DataType.STRING else np.dtype(dtype.numpy()).name


def _runner(kit: ZipWriter, package: str) -> None:
    """Add the runner to the kit: ``portable`` as the package ``dmlprep_kit``, ``run.py`` and ``README.txt``.

    The modules of the loader for apps are left out.
    """
    portable = sorted(resources.files("dmlprep.portable").iterdir(), key=lambda file: file.name)
    own = resources.files("dmlprep.kit")
    files = {name: own / name for name in ("run.py", "README.txt")}
    files |= {
        f"dmlprep_kit/{file.name}": file
        for file in portable
        if file.name.endswith(".py") and not file.name.startswith(_LOADER)
    }
    for name, file in files.items():
        kit.add_bytes(name, file.read_bytes().replace(b"\r\n", b"\n").replace(b"@PACKAGE@", package.encode()))


def _feed(kit: ZipWriter, index: int, feed: Mapping[str, Array], outputs: Mapping[str, Array]) -> KitFeed:
    files: list[dict[str, str]] = []
    for folder, arrays in (("feeds", feed), ("expected", outputs)):
        named = {name: f"{folder}/{index}-{number}.npy" for number, name in enumerate(arrays)}
        for name, file in named.items():
            kit.add_array(file, arrays[name])
        files.append(named)
    return KitFeed(*files)
