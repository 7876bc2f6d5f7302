"""The documents ``kit.json`` of a kit and ``result.json`` of its result, as types."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, parse_json
from dmlprep.core.text.documents import to_json
from dmlprep.metrics import OutputGroup, Tolerance
from dmlprep.portable import integrity
from dmlprep.portable.bounds import MOST_RUNS, MOST_SECONDS
from dmlprep.record.buckets import Count, Digest, FileEntry
from dmlprep.record.tuning import Tuned

T = TypeVar("T")


class KitModel(msgspec.Struct, frozen=True):
    """A model in a kit: ``name`` is the user's file name; ``file`` and ``data`` are its files in the kit."""

    name: str
    file: str
    data: list[str]
    fp16: bool


class KitReference(msgspec.Struct, frozen=True):
    """The model that computed the expected outputs; ``itself``: True if it is the packed model, run on the CPU."""

    name: str
    sha256: Digest
    itself: bool
    device: str


class KitFeed(msgspec.Struct, frozen=True):
    """The files of one feed in the kit: input name -> file, and output name -> file with the expected output."""

    inputs: dict[str, str]
    outputs: dict[str, str]


class KitCandidate(msgspec.Struct, frozen=True):
    """One of several models in a kit that ``tune`` packed; ``name`` is its name in ``tune``.

    The first candidate is the kit's ``model``. ``weak``: as in ``Manifest``.
    """

    name: str
    model: KitModel
    tolerances: dict[Literal["dml", "cpu"], Tolerance]
    weak: dict[str, str] = {}


DIRECTML = "onnxruntime-directml"


class Manifest(msgspec.Struct, frozen=True):
    """The content of ``kit.json``. Its SHA-256 is the kit's name, which the result repeats.

    Attributes:
        session: session options, named as in ``portable.ortoptions`` (``device_id``, ``dim:batch``).
        tolerances: the bounds for outputs of the model, by device.
        groups: outputs that are compared together, and by which rule.
        warm_up, runs: how often each feed runs before timing, and timed.
        time_limit: the most seconds for all runs on the other machine.
        files: name -> size and SHA-256, for every file of the kit except ``kit.json`` and its seal.
        inputs: whether the feeds were ``given`` by the user or are ``seeded``; empty in older kits.
        noise: output -> the original's own noise: how much it differs from itself under tiny changes.
        weak: output that proves nothing on these feeds -> the reason.
        metric: name of the user's own measure, whose code is not in the kit.
        nonce: random if the packer has a key, so that no result of an earlier kit fits this one; otherwise empty.
        candidates: models to choose from, best first, with the facts in ``tuned``; empty for one model.
        bench_seconds: seconds for timing all candidates in turn.
        package: the package of ONNX Runtime with DirectML on PyPI, for texts.
    """

    format: Literal[1]
    made_by: str
    model: KitModel
    reference: KitReference
    session: dict[str, str]
    tolerances: dict[Literal["dml", "cpu"], Tolerance]
    groups: list[OutputGroup]
    feeds: list[KitFeed]
    warm_up: Annotated[int, msgspec.Meta(ge=1, le=MOST_RUNS)]
    runs: Annotated[int, msgspec.Meta(ge=1, le=MOST_RUNS)]
    time_limit: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)]
    files: dict[str, FileEntry]
    inputs: Literal["", "given", "seeded"] = ""
    noise: dict[str, float] = {}
    weak: dict[str, str] = {}
    metric: str = ""
    nonce: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] = ""
    candidates: list[KitCandidate] = []
    tuned: Tuned | None = None
    bench_seconds: Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)] = 20.0
    package: str = DIRECTML

    def of(self, candidate: KitCandidate) -> Manifest:
        """Return the manifest for one candidate, as if the kit had only this model."""
        return msgspec.structs.replace(
            self, model=candidate.model, tolerances=candidate.tolerances, weak=candidate.weak, candidates=[]
        )

    def to_json(self) -> bytes:
        """Return the content of ``kit.json`` as bytes; the same manifest gives the same bytes."""
        return to_json(self, order="sorted", indent=1)


class ResultFailure(msgspec.Struct, frozen=True):
    """The failure of a session on the other machine, as the runner wrote it."""

    stage: str
    message: str
    hresult: str
    causes: list[str]
    next_step: str


class ResultSession(msgspec.Struct, frozen=True):
    """The session on the other machine.

    ``kernels``: provider -> number of kernels that it ran; ``nodes``: the same before fusion, if recorded.
    """

    options: dict[str, str]
    available: list[str] = []
    providers: list[str] = []
    kernels: dict[str, Count] = {}
    nodes: dict[str, Count] = {}
    nodes_elsewhere: list[str] = []
    slowest: list[str] = []
    load_seconds: float = 0.0


class ResultFeed(msgspec.Struct, frozen=True):
    """The result of one feed; ``outputs``: output name -> file in the result.

    ``metrics`` are the runner's own measures. dmlprep does not use them; it measures the outputs again.
    """

    outputs: dict[str, str]
    missing: list[str]
    first_seconds: float
    seconds: list[float]
    metrics: list[dict[str, Any]]


class ResultOfModel(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one model on the other machine; ``failure`` is ``None`` if no session failed."""

    outcome: Literal["passed", "failed", "not-run"]
    reason: str
    failure: ResultFailure | None
    session: ResultSession
    feeds: list[ResultFeed]


class Result(ResultOfModel, frozen=True, kw_only=True):
    """The content of ``result.json``: the result of the kit's model, and in ``others`` of the further candidates.

    Attributes:
        kit: name of the kit (SHA-256 of its ``kit.json``).
        files: name -> size and SHA-256, for every file of outputs.
        seal: SHA-256 of the other fields, which detects changes, but proves no author.
        others: results of the second and further candidates, in the order of the kit.
        turns: number of the candidate -> for each round, times of single runs in seconds.
        untimed: why there are no times.
    """

    format: Literal[1]
    kit: Digest
    provider: Literal["DmlExecutionProvider", "CPUExecutionProvider"]
    runs: Count
    system: dict[str, str]
    device: dict[str, str]
    files: dict[str, FileEntry]
    seal: str
    others: list[ResultOfModel] = []
    turns: dict[str, list[list[float]]] = {}
    untimed: str = ""

    def of(self, number: int) -> Result:
        """Return the result of candidate ``number`` (0 is the kit's model), as if the kit had only this model."""
        if number == 0:
            return self
        return msgspec.structs.replace(self, **msgspec.structs.asdict(self.others[number - 1]))


def _read(raw: bytes, kind: type[T], where: str, what: str) -> T:
    try:
        return parse_json(raw, kind)
    except Unfit as error:
        fix = "send the file again, as it was written"
        raise InputError(f"not {what}: {error}", where=where, code="DP810", fix=fix) from error


def read_manifest(raw: bytes, where: str) -> tuple[Manifest, str]:
    """Parse the content of ``kit.json``, and return it with the kit's name; ``where`` is the file, for errors.

    Raises:
        InputError: it is not a valid ``kit.json``, or uses files that it does not list.
    """
    manifest = _read(raw, Manifest, where, "a kit of this dmlprep")
    models = [manifest.model, *(one.model for one in manifest.candidates)]
    named = [name for model in models for name in (model.file, *model.data)]
    named += [file for feed in manifest.feeds for file in (*feed.inputs.values(), *feed.outputs.values())]
    lost = next((name for name in named if name not in manifest.files), None)
    bounds = [manifest.tolerances, *(one.tolerances for one in manifest.candidates)]
    if lost is not None or any(set(one) != {"dml", "cpu"} for one in bounds) or not manifest.feeds:
        what = f"it uses {lost!r} but does not list it" if lost is not None else "it lacks feeds or tolerances"
        raise InputError(f"kit.json is damaged: {what}", where=where, code="DP810", fix="pack the kit again")
    return manifest, hashlib.sha256(raw).hexdigest()


def read_result(raw: bytes, where: str) -> Result:
    """Parse the content of ``result.json``, and check that it was not changed; ``where`` is the file, for errors.

    Raises:
        InputError: it is not a valid ``result.json``, its ``seal`` does not match, or ``files`` and the outputs of the
            feeds are not the same files.
    """
    result = _read(raw, Result, where, "the result of a kit")
    try:
        sealed = integrity.seal(parse_json(raw, dict[str, Any]))
    except Unfit:
        sealed = ""
    named = {file for one in (result, *result.others) for feed in one.feeds for file in feed.outputs.values()}
    wrong = "its outputs do not match its list" if named != set(result.files) else ""
    if sealed != result.seal or not sealed:
        wrong = "result.json was changed after the run: its seal does not match"
    if wrong:
        raise InputError(wrong, where=where, code="DP810", fix="send the result.zip again, as run.py wrote it")
    return result
