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
    """The model: the user's ``name`` for it, and its ``file`` and ``data`` in the kit."""

    name: str
    file: str
    data: list[str]
    fp16: bool


class KitReference(msgspec.Struct, frozen=True):
    """The model that computed the expected outputs. ``itself``: the packed model, on the CPU."""

    name: str
    sha256: Digest
    itself: bool
    device: str


class KitFeed(msgspec.Struct, frozen=True):
    """Files of one feed, by input and by output."""

    inputs: dict[str, str]
    outputs: dict[str, str]


class KitCandidate(msgspec.Struct, frozen=True):
    """One of several models of a kit from ``tune``, by its name there; the first is the kit's model."""

    name: str
    model: KitModel
    tolerances: dict[Literal["dml", "cpu"], Tolerance]
    weak: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True):
    """``kit.json``. Its SHA-256 is the kit's name: it binds every file, and the result names it.

    Attributes:
        session: options in the words of ``runtime.ortoptions`` (``device_id``, ``dim:batch``).
        groups: outputs that are compared together, and by which rule.
        files: every file of the kit except ``kit.json``.
        inputs: whether the feeds were ``given`` by the user or are ``seeded``; empty in older kits.
        noise: the original's own noise, by output; ``weak``: outputs that prove nothing on these feeds, and why.
        metric: name of the user's own measure, which the kit does not hold.
        nonce: random if the packer has a key, so that no result of an earlier kit fits this one; otherwise empty.
        candidates: models to choose from, best first, with the facts in ``tuned``; empty for one model.
        bench_seconds: seconds for timing all candidates in turn.
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

    def of(self, candidate: KitCandidate) -> Manifest:
        """Return the manifest of one candidate, as if it were alone."""
        return msgspec.structs.replace(
            self, model=candidate.model, tolerances=candidate.tolerances, weak=candidate.weak, candidates=[]
        )

    def to_json(self) -> bytes:
        """Return the document; the same manifest gives the same bytes."""
        return to_json(self, order="sorted", indent=1)


class ResultFailure(msgspec.Struct, frozen=True):
    """The failure of a session."""

    stage: str
    message: str
    hresult: str
    causes: list[str]
    next_step: str


class ResultSession(msgspec.Struct, frozen=True):
    """The session. ``kernels``: how many each provider ran; ``nodes``: the same before fusion, if recorded."""

    options: dict[str, str]
    available: list[str] = []
    providers: list[str] = []
    kernels: dict[str, Count] = {}
    nodes: dict[str, Count] = {}
    nodes_elsewhere: list[str] = []
    slowest: list[str] = []
    load_seconds: float = 0.0


class ResultFeed(msgspec.Struct, frozen=True):
    """The result of one feed. dmlprep does not read the runner's own measures."""

    outputs: dict[str, str]
    missing: list[str]
    first_seconds: float
    seconds: list[float]
    metrics: list[dict[str, Any]]


class ResultOfModel(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one model."""

    outcome: Literal["passed", "failed", "not-run"]
    reason: str
    failure: ResultFailure | None
    session: ResultSession
    feeds: list[ResultFeed]


class Result(ResultOfModel, frozen=True, kw_only=True):
    """``result.json``: the result of the kit's model, and of ``others``, the candidates after it in their order.

    Attributes:
        turns: times of single runs in seconds, by the candidate's number and by round; ``untimed``: why there are none.
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
        """Return the result of one candidate, as if it were alone."""
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
    """Read ``kit.json``, and return it with the kit's name."""
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
    """Read ``result.json``, and check its seal."""
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
