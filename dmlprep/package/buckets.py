"""The runs that a package is made of: one, or one for each bucket; and their contracts as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.package.building import build_contract, data_files, not_proved, open_run
from dmlprep.package.contract import Bucket, Contract
from dmlprep.record import RunRecord
from dmlprep.record.buckets import BUCKETS, BucketsFile


@dataclass(frozen=True)
class Run:
    """A run with its model; ``name`` is empty without buckets, ``unproven`` has the reasons if it did not pass."""

    name: str
    sizes: dict[str, int]
    model: Model
    path: Path
    record: RunRecord
    unproven: list[str]


@dataclass(frozen=True)
class Runs:
    """All runs of a package, at least one; ``digests`` has the SHA-256 that a file must have, by its name."""

    all: list[Run]
    digests: dict[str, str]

    @property
    def sources(self) -> list[Path]:
        """The models and their data files, each once."""
        return list(dict.fromkeys(file for run in self.all for file in (run.path, *data_files(run.model))))

    @property
    def unproven(self) -> list[str]:
        """What was not proved, with the name of the bucket."""
        return [f"{run.name}: {text}" if run.name else text for run in self.all for text in run.unproven]


def open_runs(folder: Path) -> Runs:
    """Open the runs in a folder that ``prepare`` wrote.

    Args:
        folder: or the model in it, for that one alone; or ``buckets.json``.

    Raises:
        InputError: the folder has no run, or its files do not belong together.
    """
    listed = folder if folder.name == BUCKETS else folder / BUCKETS
    if not listed.is_file():
        model, path, record = open_run(folder)
        return Runs([Run("", {}, model, path, record, not_proved(record))], {path.name: record.output_sha256})
    if folder.is_dir() and (folder / "model.onnx").is_file():
        what, fix = "a model and buckets are in this folder", f"name one of them: model.onnx, or {BUCKETS}"
        raise InputError(what, where=str(folder), code="DP820", fix=fix)
    found = BucketsFile.read(listed)
    runs = []
    digests = {found.data.file: found.data.sha256} if found.data is not None else {}
    for one in found.buckets:
        model, path, record = open_run(listed.parent / one.file)
        if record.output_sha256 != one.sha256:
            what = f"{BUCKETS} is about another {one.file} than the one beside it"
            raise InputError(what, where=str(listed), code="DP820", fix="prepare the buckets again")
        runs.append(Run(one.name, one.sizes, model, path, record, not_proved(record)))
        digests[one.file] = one.sha256
    read = {file.name for one in runs for file in data_files(one.model)}
    if found.data is not None and found.data.file not in read:
        what = f"{BUCKETS} names a data file {found.data.file!r}, which no model of it reads"
        raise InputError(what, where=str(listed), code="DP820", fix="prepare the buckets again")
    return Runs(runs, digests)


def joined(runs: Runs, language: str) -> Contract:
    """The contract of all runs, without its files."""
    contracts = [build_contract(one.model, one.path, one.record, language, {}, one.unproven) for one in runs.all]
    if not runs.all[0].name:
        return contracts[0]
    buckets = [_bucket(run, contract) for run, contract in zip(runs.all, contracts, strict=True)]
    return msgspec.structs.replace(contracts[0], buckets=buckets, unproven=runs.unproven)


def _bucket(run: Run, contract: Contract) -> Bucket:
    same: Sequence[str] = [name for name in Bucket.__struct_fields__ if name not in ("name", "sizes")]
    return Bucket(name=run.name, sizes=run.sizes, **{name: getattr(contract, name) for name in same})
