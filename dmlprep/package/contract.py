"""The contract between a packaged model and the app (``model.json``): types that validate the JSON, and its schema."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from dmlprep.core.text.documents import to_json
from dmlprep.portable.shares import percent
from dmlprep.record.buckets import Count, FileEntry, FileName

CONTRACT, DIGEST, SIGNATURE, SCHEMA = "model.json", "model.json.sha256", "model.json.sig", "model.schema.json"

LOADER_FOLDER = "dmlprep_model"
"""Folder of the loader in a package for Python; no other file of a package is in a folder."""

PackageFile = Annotated[str, msgspec.Meta(pattern=rf"^({LOADER_FOLDER}/)?[^/\\\\:*?\"<>|]+$", max_length=255)]

FORMAT = 1
"""Version of the contract's format. It increases if a field changes its meaning or is removed.

Loaders refuse other versions.
"""


class Removed(msgspec.Struct, frozen=True):
    """The metadata that ``package`` removed from a file; graph and weights are those of the proved file.

    Attributes:
        entries: number of exporter metadata entries, such as stack traces.
        docs: number of doc strings.
        bytes: size of both in the file.
    """

    entries: Count = 0
    docs: Count = 0
    bytes: Count = 0


class PackagedModel(msgspec.Struct, frozen=True):
    """The file of a model, and its data files (weights), which must be in the same folder.

    Attributes:
        opsets: opset versions by domain; ``""`` is ai.onnx.
        fp16: True if it computes in FP16.
        original_sha256: SHA-256 of the file from which it was prepared.
        proved_sha256, proved_bytes: SHA-256 and size of the file that the run proved.
        removed: the difference between that file and this one.
    """

    file: FileName
    data: list[FileName]
    opsets: dict[str, Count]
    ir_version: Count
    fp16: bool
    original_sha256: str
    proved_sha256: str
    proved_bytes: Count
    removed: Removed = Removed()


Meaning: TypeAlias = Literal[
    "",
    "picture",
    "indices",
    "flags",
    "mask",
    "boxes",
    "scores",
    "classes",
    "count",
    "probabilities",
    "largest index",
    "top values",
    "top indices",
]


class AppPicture(msgspec.Struct, frozen=True):
    """The form of a picture that the app passes or receives.

    Attributes:
        size: height and width in pixels; 0 for a free size.
        colour: order of its channels in memory.
        white: the value of white; black is 0.
        fit: how the graph brings it to the model's size; empty for an output.
        resize: how the graph resizes it (``pillow-bilinear``); empty for an output.
        model_size: height and width that the model gets; ``None`` for outputs and boxes.
    """

    size: tuple[Count, Count]
    colour: Literal["rgb", "bgr", "rgba", "bgra", "gray"]
    white: float
    fit: Literal["", "stretch", "crop", "letterbox"] = ""
    resize: str = ""
    model_size: tuple[Count, Count] | None = None


class Tensor(msgspec.Struct, frozen=True):
    """One input or output.

    Attributes:
        type: element type, by numpy's name (``float16``); ``bfloat16``, ``int4`` and such by ONNX's.
        shape: the size of each dimension, or the name of a free dimension.
        denotations: ONNX's denotation of each dimension; empty if the model has none.
        layout: one letter for each dimension (``NCHW``), if the model or its frame declares it; otherwise empty.
        bytes: size in bytes on the CPU, row by row without gaps; ``None`` if a dimension is free, and for strings.
        gpu_bytes: least size in bytes of a D3D12 buffer for it: ``bytes`` rounded up to a multiple of 4
            (DMLCalcBufferTensorSize); ``None`` if ``bytes`` is.
        gpu_alignment: its offset in a buffer must be a multiple of this number of bytes
            (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT).
        meaning: the kind of its numbers; empty if unknown.
        about: name of the input or output that its numbers describe, such as the picture of boxes; empty for none.
        range: the least and the largest possible number; ``None`` if unknown.
        picture: the form of the picture; for boxes, that of the picture that they are in. ``None`` for other tensors.
    """

    name: str
    type: str
    shape: list[Count | str]
    denotations: list[str]
    layout: str
    bytes: Count | None
    gpu_bytes: Count | None
    gpu_alignment: Count
    meaning: Meaning = ""
    about: str = ""
    range: tuple[float, float] | None = None
    picture: AppPicture | None = None


class TargetVersions(msgspec.Struct, frozen=True):
    """The dmlprep target (``ort-1.24``) that the model was prepared for, with its versions.

    Attributes:
        name: name of the target.
        onnxruntime, directml: its versions of ONNX Runtime and DirectML.
        feature_level: DML_FEATURE_LEVEL of that DirectML.
        lowest_onnxruntime: the oldest release of ONNX Runtime that loads the model with as many nodes on DirectML, by
            dmlprep's tables of kernels.
        lowest_directml: the DirectML that this release comes with.
        lowest_windows: the oldest Windows that the target's package runs on.
        buffer_placement: the offset of a buffer in a D3D12 heap must be a multiple of this number of bytes
            (D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT).
        nodes, nodes_on_directml: predicted number of all nodes, and of nodes on DirectML; 0 if kernels are unknown.
    """

    name: str
    onnxruntime: str
    directml: str
    feature_level: str
    lowest_onnxruntime: str
    lowest_directml: str
    lowest_windows: str
    buffer_placement: Count
    nodes: Count
    nodes_on_directml: Count


class Proof(msgspec.Struct, frozen=True):
    """One verdict of the run that prepared the model.

    Attributes:
        check: name of the check (``parity on dml``).
        reason: why it did not pass; empty if it passed.
        device: the device that answered, for people.
        tolerance: name and bounds of the tolerance, for people.
        worst: the largest relative error of all outputs; ``None`` without a measurement.
        allowed: the largest relative error that was allowed for that output; ``None`` without a measurement, and if
            another rule judged it.
        inputs: ``given`` by the user, or ``seeded`` (generated), which proves less.
        decides: True if the run passes or fails by this verdict; False if it is information only.
        measured: time (UTC) at which an earlier run on equal files measured it; empty if this run did.
    """

    check: str
    outcome: Literal["passed", "failed", "not-proven", "not-run"]
    reason: str
    device: str
    tolerance: str
    worst: float | None
    inputs: str
    decides: bool
    measured: str = ""
    allowed: float | None = None


class SampleOutput(msgspec.Struct, frozen=True):
    """An output of the packaged model on the CPU, for the inputs that the sample fills.

    Attributes:
        first: its first numbers, row by row; eight at most.
        allowed: the largest difference between the sample's numbers and these; ``None`` for numbers that can differ
            freely, such as the order of boxes.
    """

    name: str
    shape: list[Count]
    first: list[float]
    allowed: float | None


class Memory(msgspec.Struct, frozen=True):
    """An estimate of the memory of a session, in bytes.

    A GPU without memory of its own needs the device memory in system memory too.

    Attributes:
        peak: largest device memory while the session runs.
        load: device memory after loading.
        shared: system memory that the device reads.
    """

    peak: Count
    load: Count
    shared: Count


class Original(msgspec.Struct, frozen=True):
    """The model before it was prepared, for the execution providers of hardware vendors (Windows ML).

    It has the same inputs and outputs. Sizes in ``Contract.fixed`` may be free in it: loaders fix them in the session.

    Attributes:
        file: name of its copy.
        data: its data files.
    """

    file: FileName
    data: list[FileName]


class Bucket(msgspec.Struct, frozen=True):
    """One of several models with the same weights, which accepts inputs of its own ``sizes`` only.

    The other fields are as in ``Contract``.
    """

    name: str
    sizes: dict[str, Count]
    model: PackagedModel
    inputs: list[Tensor]
    outputs: list[Tensor]
    target: TargetVersions
    proof: list[Proof]
    unproven: list[str]
    memory: Memory | None = None


class Contract(msgspec.Struct, frozen=True):
    """The content of ``model.json``: all facts that an app needs about a packaged model.

    A package can have one model, or several models of the same weights for different sizes (``buckets``). Then the
    fields for one model are those of the first bucket, which an app gets by default.

    Attributes:
        format: version of the format.
        made_by: dmlprep and its version.
        language: language of the loader.
        model: the prepared model, for DirectML and the CPU. Without ``original``, for vendors' providers too.
        fixed: sizes to which free dimensions were fixed, by name.
        denotations: denotations of free dimensions, which sessions can fix.
        session: settings of a session on DirectML, in the words of ONNX Runtime's documentation.
        proof: the verdicts of the run that prepared the model.
        unproven: reasons why the run did not prove the model, if the user packaged it with ``--unproven``; otherwise
            empty.
        files: size and SHA-256 of every file of the package, except the contract, its digest and its signature.
        memory: estimate of a session's memory; ``None`` if unknown, for example if sizes are free.
        buckets: the models for different sizes; empty for a package of one model.
        original: the file for vendors' providers; ``None``: the package has only the prepared model.
        sample: the outputs that the sample should print without sizes; empty if the model did not run on the CPU.
        sample_missing: the reason why ``sample`` is empty; empty if it is not.
    """

    format: Literal[1]
    made_by: str
    language: str
    model: PackagedModel
    inputs: list[Tensor]
    outputs: list[Tensor]
    fixed: dict[str, Count]
    denotations: list[str]
    session: dict[str, str]
    target: TargetVersions
    proof: list[Proof]
    unproven: list[str]
    files: dict[PackageFile, FileEntry]
    memory: Memory | None = None
    buckets: list[Bucket] = []
    original: Original | None = None
    sample: list[SampleOutput] = []
    sample_missing: str = ""

    @property
    def model_files(self) -> list[str]:
        """The names of the models and their data files, each once."""
        models: list[PackagedModel | Original] = [self.model, *(bucket.model for bucket in self.buckets)]
        models += [self.original] if self.original is not None else []
        return list(dict.fromkeys(name for one in models for name in (one.file, *one.data)))

    @property
    def removed(self) -> str:
        """The removed metadata of all models: ``412 entries of exporter metadata, 3 doc strings (38 % of the file)``.

        Empty if nothing was removed.
        """
        models = [bucket.model for bucket in self.buckets] or [self.model]
        entries, docs = (sum(getattr(one.removed, kind) for one in models) for kind in ("entries", "docs"))
        kinds = [
            f"{entries:,} {'entry' if entries == 1 else 'entries'} of exporter metadata" if entries else "",
            f"{docs:,} doc string{'s' if docs > 1 else ''}" if docs else "",
        ]
        share = sum(one.removed.bytes for one in models) / max(sum(one.proved_bytes for one in models), 1)
        counts = ", ".join(filter(None, kinds))
        return f"{counts} ({percent(share, 0)} of the file{'s' if self.buckets else ''})" if counts else ""

    @property
    def shipped_files(self) -> list[str]:
        """The names of the files that an app must ship: the contract, its digest, and the model's files."""
        return [CONTRACT, DIGEST, *self.model_files]

    def to_json(self) -> bytes:
        """Return the content of ``model.json`` as bytes; the same contract always gives the same bytes."""
        return to_json(self)


def schema() -> dict[str, object]:
    """Return the JSON Schema (version 2020-12) of the contract's format."""
    document = msgspec.json.schema(Contract)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dmlprep package contract", **document}
