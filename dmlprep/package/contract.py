"""``model.json``, the contract between a packaged model and the app: types that validate the JSON, and their schema."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dmlprep.core.text.documents import to_json
from dmlprep.record.buckets import Count, FileEntry, FileName

CONTRACT, DIGEST, SIGNATURE, SCHEMA = "model.json", "model.json.sha256", "model.json.sig", "model.schema.json"

FORMAT = 1
"""Version of the contract. It increases if a field changes its meaning or is removed; loaders refuse other versions."""


class PackagedModel(msgspec.Struct, frozen=True):
    """The ONNX file, and its data files, which must be in the same folder.

    Attributes:
        opsets: version by domain; ``""`` is ai.onnx.
        fp16: whether it computes in FP16.
        original_sha256: digest of the file that was prepared.
    """

    file: FileName
    data: list[FileName]
    opsets: dict[str, Count]
    ir_version: Count
    fp16: bool
    original_sha256: str


Meaning: TypeAlias = Literal[
    "",
    "picture",
    "indices",
    "flags",
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
    """A picture of the app: height and width in pixels, its channels in memory, and the value of white; black is 0.

    Attributes:
        fit, resize, model_size: how the graph brings it to the model's height and width, with the frame's word for the
            kind of resize (``pillow-bilinear``). Empty, and ``None``, for an output.
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
        shape: sizes; the name of a dimension that is free.
        denotations: ONNX's denotation of each dimension; empty if the model has none.
        layout: a letter a dimension (``NCHW``), if the model or its frame declares it.
        bytes: size of the tensor on the CPU, row by row without gaps; ``None`` if a dimension is free.
        gpu_bytes: the least size of a D3D12 buffer for it: ``bytes`` rounded up to 4 (DMLCalcBufferTensorSize).
        gpu_alignment: bytes that its offset in a buffer is a multiple of (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT).
        meaning: the kind of its numbers; empty if unknown.
        about: the input or output that they describe, such as the picture of the boxes; empty for none.
        range: the least and the largest number, if known.
        picture: the app's picture, or the one of the boxes.
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
        feature_level: DML_FEATURE_LEVEL of that DirectML.
        lowest_onnxruntime: the oldest release that loads it with as many nodes on DirectML, by its tables of kernels.
        lowest_directml: the DirectML that this release comes with.
        lowest_windows: the oldest Windows that the target's package runs on.
        buffer_placement: bytes that a buffer's place in a D3D12 heap is a multiple of
            (D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT).
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
    """One verdict of the run.

    Attributes:
        decides: whether the run passes or fails by it.
        worst: the largest relative error of all outputs, ``None`` without a measurement.
        inputs: ``given`` by a person, or ``seeded``, which proves less.
        measured: time (UTC) of an earlier run on equal files that measured it; empty for this run.
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


class Memory(msgspec.Struct, frozen=True):
    """An estimate of a session's memory in bytes: the device's own while it runs and after loading, and ``shared``.

    The device reads ``shared`` from system memory. A GPU without memory of its own needs both there.
    """

    peak: Count
    load: Count
    shared: Count


class Bucket(msgspec.Struct, frozen=True):
    """One of several models of the same weights: it accepts its ``sizes`` alone. Other fields are as in a contract."""

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
    """The contract.

    In a package with buckets, the fields of one model are those of the first bucket, which an app gets by default.

    Attributes:
        language: language of the loader.
        fixed: size that each free dimension was fixed to.
        denotations: denotations of free dimensions, which sessions can fix.
        session: settings of a session on DirectML, in the words of ONNX Runtime's documentation.
        unproven: the checks that did not pass, if --unproven made the package.
        files: every file of the package except this one, its digest and its signature.
        memory: ``None`` if unknown, for example if sizes are free.
        buckets: empty for a package of one model.
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
    files: dict[FileName, FileEntry]
    memory: Memory | None = None
    buckets: list[Bucket] = []

    @property
    def model_files(self) -> list[str]:
        """The models and their data files, each once."""
        models = [self.model, *(bucket.model for bucket in self.buckets)]
        return list(dict.fromkeys(name for one in models for name in (one.file, *one.data)))

    def to_json(self) -> bytes:
        """Return the document; the same contract gives the same bytes."""
        return to_json(self)


def schema() -> dict[str, object]:
    """Return the contract as JSON Schema, version 2020-12."""
    document = msgspec.json.schema(Contract)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dmlprep package contract", **document}
