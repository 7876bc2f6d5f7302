"""Read the defaults of a kit from the run record next to the model: original, tolerance, number of feeds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core.errors import InputError, RecipeError
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.pipeline.recipe import ParitySettings, load_recipe
from dmlprep.record import Check, RunRecord
from dmlprep.record.run_record import record_beside

_BY_AUTO = ("fp32-cpu", "fp32-dml", "fp16-cpu", "fp16-dml", "quantized")
"""Tolerances that ``auto`` chooses by device. A kit uses ``auto`` instead of them, since its device may differ."""


@dataclass(frozen=True)
class FromRecord:
    """Defaults of a kit.

    Attributes:
        original: the model from which the kit's model was prepared; ``None`` without a record.
        digests: file name -> SHA-256 of the original's files when it was prepared; several files may share a name.
        tolerance: the tolerance setting of the proof on the CPU; ``auto`` if it is one of ``_BY_AUTO`` or a metric
            decided.
        seeds: number of feeds with random inputs from a seed.
        sizes, measures: settings of the recipe's ``[parity]``.
        metric: name of the user's own measure that decided; empty if none did.
    """

    original: Path | None = None
    digests: dict[str, set[str]] = field(default_factory=dict)
    tolerance: str = "auto"
    seeds: int = 2
    sizes: dict[str, int] = field(default_factory=dict)
    measures: dict[str, str] = field(default_factory=dict)
    metric: str = ""


def target_of(model: Path) -> str:
    """Return the target of the record next to the model; empty without a record.

    Raises:
        InputError: the record cannot be read.
    """
    path = record_beside(model)
    return "" if path is None else RunRecord.read(path).target


def from_record(model: Path, digest: str, files: Unchanged) -> FromRecord:
    """Return the defaults in the record next to ``model``, whose SHA-256 is ``digest``; general ones without a record.

    Args:
        files: gets the recipe as a file to watch, but not the record, to which ``kit verify`` may write.

    Raises:
        InputError: the record cannot be read or is of another model, or the original that it names is missing.
    """
    path = record_beside(model)
    if path is None:
        return FromRecord()
    record = RunRecord.read(path)
    fix = "pass the original with --reference, or prepare the model again"
    original = next((p for p in (Path(record.input), path.parent / record.input) if p.is_file()), None)
    wrong = f"the original that it names does not exist: {record.input}" if original is None else ""
    if record.output_sha256 != digest:
        wrong = "this record belongs to another model than the one next to it"
    if wrong or original is None:
        raise InputError(wrong, where=str(path), code="DP811", fix=fix)
    asked, count, metric = "auto", 2, ""
    for verdict in record.verdicts:
        if verdict.check == Check("parity", "cpu") and verdict.tolerance_setting:
            count, metric = verdict.feeds or count, verdict.metric
            base, comma, bounds = verdict.tolerance_setting.partition(",")
            if not metric:
                asked = f"auto{comma}{bounds}" if base in _BY_AUTO else f"{base}{comma}{bounds}"
    parity = _parity(record.recipe, files)
    digests = _digests(record, original.name)
    return FromRecord(original, digests, asked, count, dict(parity.sizes), dict(parity.measures), metric)


def _digests(record: RunRecord, original: str) -> dict[str, set[str]]:
    """Return file name -> SHA-256 of the files in a record, and of its input under the file name ``original``.

    Texts without 64 characters are left out.
    """
    digests: dict[str, set[str]] = {}
    for path, sha in (*record.facts.digests.items(), (original, record.input_sha256)):
        if len(sha) == 64:
            digests.setdefault(Path(path).name, set()).add(sha)
    return digests


def _parity(recipe: str, files: Unchanged) -> ParitySettings:
    if not recipe.startswith("@") and Path(recipe).is_file():
        with suppress(InputError):  # one that cannot be read gives no settings either
            files.take([Path(recipe)])
    try:
        return load_recipe(recipe).parity
    except RecipeError:  # a recipe file that was moved: sizes come from --size, or are small ones
        return ParitySettings()
