"""``model.json``, the contract between a packaged model and the app: types that JSON is held to, and their schema."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dmlprep.core.text.documents import to_json
from dmlprep.record.buckets import Count, FileEntry, FileName

CONTRACT, DIGEST, SIGNATURE, SCHEMA = "model.json", "model.json.sha256", "model.json.sig", "model.schema.json"

FORMAT = 1
"""Version of the contract. Raised when a field changes its meaning or goes away; loaders refuse another one."""


class PackagedModel(msgspec.Struct, frozen=True):
    """The model's own files, and what is in them.

    Attributes:
        file: the ONNX file.
        data: its data files, which must lie beside it.
        opsets: version by domain; ``""`` is ai.onnx.
        ir_version: of the ONNX file.
        fp16: whether it computes in FP16.
        original_sha256: of the file that was prepared.
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
    """A picture of the app.

    Attributes:
        size: height and width in pixels.
        colour: its channels, in their order in memory.
        white: what white is in it; black is 0.
        fit: how the graph brings it to what the model sees; empty for a picture that comes out.
        resize: whose resize, by the frame's words (``pillow-bilinear``); empty as above.
        model_size: height and width that the model sees; ``None`` as above.
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
        denotations: what each dimension means, by ONNX's words; empty where the model does not say.
        layout: a letter a dimension (``NCHW``), where the model or its frame says; else empty.
        bytes: of the tensor on the CPU, row by row without gaps; ``None`` where a dimension is free.
        gpu_bytes: the least size of a D3D12 buffer for it: ``bytes`` rounded up to 4 (DMLCalcBufferTensorSize).
        gpu_alignment: bytes that its offset in a buffer is a multiple of (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT).
        meaning: what the numbers are; empty where that is not known.
        about: the input or output that they tell of, such as the picture on which boxes lie; empty for none.
        range: the least and the largest number, where they are known.
        picture: the app's picture, or the one on which boxes lie.
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
    """What the model was made for.

    Attributes:
        name: of dmlprep's target (``ort-1.24``).
        onnxruntime, directml: versions that it was prepared for.
        feature_level: DML_FEATURE_LEVEL of that DirectML.
        lowest_onnxruntime: the oldest release that loads it with as many nodes on DirectML, by its tables of kernels.
        lowest_directml: the DirectML that this release comes with.
        lowest_windows: the oldest Windows that the target's package runs on.
        buffer_placement: bytes that a buffer's place in a D3D12 heap is a multiple of
            (D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT).
        nodes, nodes_on_directml: of all graphs.
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
        worst: the largest relative error of all outputs, ``None`` where none was measured.
        inputs: ``given`` by a person, or ``seeded``, which proves less.
        measured: when it was measured (UTC), where that was an earlier run on equal files; empty where it was this one.
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
    """About how much memory of the device a session holds, in bytes, by an estimate that was not measured there.

    Attributes:
        peak: the most of the device's own memory, while it runs.
        load: the same once the session is made.
        shared: the most of the machine's memory that the device reads; a GPU without memory of its own takes both.
    """

    peak: Count
    load: Count
    shared: Count


class Bucket(msgspec.Struct, frozen=True):
    """One of several models of the same weights, each of fixed sizes of its own.

    Attributes:
        name: of it.
        sizes: by dimension: what it takes, and nothing else.
        model, inputs, outputs, target, proof, unproven, memory: as of a contract, for this one.
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
    """The contract.

    Of a package with buckets, ``model``, ``inputs``, ``outputs``, ``fixed``, ``target``, ``proof`` and ``memory`` are
    those of the first one, which is what an app gets that asks for no sizes.

    Attributes:
        made_by: dmlprep and its version.
        language: of the loader.
        fixed: size that each free dimension was fixed to.
        denotations: denotations of free dimensions, which sessions can fix.
        session: what a session on DirectML must have, in the words of ONNX Runtime's documentation.
        unproven: what was not proved, if the package was made all the same; empty for a run that passed.
        files: every file of the package but this one, its digest and its signature.
        memory: what a session needs; ``None`` where that is not known, as where sizes are free.
        buckets: all of them; empty for a package of one model.
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
        """The document; the same contract gives the same bytes."""
        return to_json(self)


def schema() -> dict[str, object]:
    """The contract as JSON Schema, version 2020-12."""
    found = msgspec.json.schema(Contract)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dmlprep package contract", **found}
