"""A run that makes one of several models with one data file: where it writes, and what its record says of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dmlprep.graph.model import Model
from dmlprep.graph.model.saving import Saved, write_sharing
from dmlprep.graph.model.shared_data import SharedData
from dmlprep.record import RunRecord
from dmlprep.record.buckets import BucketFacts


@dataclass(frozen=True)
class Sharing:
    """One of several buckets that share the data file ``data``, and appear together."""

    name: str
    sizes: Mapping[str, int]
    data: SharedData


def save_sharing(
    model: Model, target: Path, sharing: Sharing, record: RunRecord, progress: Callable[[int], None]
) -> Saved:
    """Save one of several buckets, and note what it shares with those before it."""
    saved = write_sharing(model.ir, target, sharing.data, progress=progress)
    total = sharing.data.written + sharing.data.shared
    name = sharing.data.path.name if total else ""
    record.facts.bucket = BucketFacts(sharing.name, dict(sharing.sizes), name, total, sharing.data.shared)
    return saved
