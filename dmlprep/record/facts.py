"""What a run found, besides its steps, verdicts and findings."""

from __future__ import annotations

import msgspec

from dmlprep.record.bisected import Bisected
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.language_models import CheckedModelFacts, GenaiFacts, Needs
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTables
from dmlprep.record.origin import Origin
from dmlprep.record.outlook import Outlook
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.speed import Bench


class RunFacts(msgspec.Struct, omit_defaults=True):
    """What a run found. Each command sets what it knows.

    Attributes:
        digests: SHA-256 of all files that were read, by path.
        files: that the result depends on.
        placement_before, placement_after: before and after the steps of ``prepare``.
        placement: of a model as it is (``check``).
        memory: of the device that a session needs.
        best_opset: at which most of the model runs on DirectML.
        prepare: what ``prepare`` would do to the model.
        prepare_fails: why ``prepare`` would fail on it; empty where it would not.
        genai: what ``genai prepare`` made.
        models: of a folder that ``genai check`` looked at, by section of the config.
        needs: memory that the decoder of that folder needs.
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
