"""The facts of a run besides its steps, verdicts and findings."""

from __future__ import annotations

import msgspec

from dmlprep.record.bisected import Bisected
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.generation import CheckedModelFacts, GenaiFacts, Needs
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTables
from dmlprep.record.origin import Origin
from dmlprep.record.outlook import Outlook
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.speed import Bench


class RunFacts(msgspec.Struct, omit_defaults=True):
    """The facts of a run. Each command sets those that it knows.

    Attributes:
        digests: SHA-256 of all files that were read, by path.
        files: files that the result depends on.
        placement_before, placement_after, placement: before and after the steps of ``prepare``; unchanged (``check``).
        memory: memory of the device for a session.
        best_opset: opset at which most of the model runs on DirectML.
        prepare, prepare_fails: the prediction of ``prepare``, or why it would fail.
        models, needs: the models of ``genai check`` by section of the config, and the memory for the decoder.
    """

    origin: Origin | None = None
    digests: dict[str, str] = {}
    files: list[str] = []
    placement_before: PlacementFacts | None = None
    placement_after: PlacementFacts | None = None
    placement: PlacementFacts | None = None
    memory: MemoryEstimate | None = None
    nodes: NodeTables | None = None
    best_opset: int | None = None
    prepare: Outlook | None = None
    prepare_fails: str = ""
    bucket: BucketFacts | None = None
    bench: Bench | None = None
    bisection: Bisected | None = None
    genai: GenaiFacts | None = None
    models: dict[str, CheckedModelFacts] = {}
    needs: Needs | None = None
