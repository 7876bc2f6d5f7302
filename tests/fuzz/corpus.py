"""What the mutations start from: the project's fixtures, ONNX's own backend models, and what earlier runs found."""

from __future__ import annotations

import io
import random
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from dmlprep import api
from dmlprep.record import Check, RunError, RunRecord, Verdict, finding
from dmlprep.record.bisected import Bisected
from dmlprep.record.run_record import RunFacts
from tests.package.images import put_image, put_libraries

__all__ = ["Corpus", "standard"]

ROOT = Path(__file__).resolve().parents[2]
_LARGEST = 256 << 10
"""Bytes of a model that is mutated: larger ones are slower, and no more wicked."""


@dataclass
class Corpus:
    """Parents, by kind, in a fixed order: the same seed takes the same ones."""

    models: list[bytes] = field(default_factory=list)
    recipes: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    kits: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)
    bisection: bytes = b""
    """The record of a bisection."""
    feeds: list[bytes] = field(default_factory=list)
    configs: list[bytes] = field(default_factory=list)
    """``genai_config.json`` of folders that were found."""
    result: bytes = b""
    """The model of the run whose record is the first one."""
    package: dict[str, bytes] = field(default_factory=dict)
    """The files of that run's package, and an app's program and libraries beside them."""

    def add(self, folder: Path) -> None:
        """Take what earlier runs kept or found: every file below ``folder`` that is of a kind."""
        for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
            parents = self.of(file.name)
            if parents is not None:
                parents.append(file.read_bytes())

    def of(self, name: str) -> list[bytes] | None:
        """The parents among which a file of that name belongs."""
        if name.endswith("genai_config.json"):
            return self.configs
        # how a finding is run, and what lies beside a language model
        if name == "command.json" or name.endswith(("tokenizer.json", "_config.json", "params.json")):
            return None
        kinds = {".onnx": self.models, ".toml": self.recipes, ".json": self.records, ".npz": self.feeds}
        return kinds.get(Path(name).suffix)


def standard(work: Path, *, onnx_models: int = 1000) -> Corpus:
    """The corpus that every run begins with.

    Args:
        work: a folder to make the records and kits in.
        onnx_models: how many of ONNX's backend models, evenly spread over all.
    """
    corpus = Corpus()
    for folder in ("models", "broken"):
        for file in sorted((ROOT / "fixtures" / folder).glob("*.onnx")):
            if file.stat().st_size <= _LARGEST:
                corpus.models.append(file.read_bytes())
    corpus.models += _backend(onnx_models)
    corpus.recipes = [file.read_bytes() for file in sorted((ROOT / "recipes").glob("*.toml"))]
    corpus.add(ROOT / "fixtures" / "found")
    _records(corpus, work)
    return corpus


def _backend(count: int) -> list[bytes]:
    if not count:
        return []
    files = sorted((Path(onnx.__file__).parent / "backend/test/data").glob("*/*/model.onnx"))
    found = {str(file): file.read_bytes() for file in files}
    # Those of single operators are made by onnx's own code, and its packages have no files of them.
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found |= {f"node/{case.name}": case.model.SerializeToString() for case in cases if case.model is not None}
    small = [data for _, data in sorted(found.items()) if len(data) < _LARGEST]
    return small[:: max(1, len(small) // count)]


@cache
def _prepared(work: Path) -> tuple[bytes, bytes, bytes, dict[str, bytes]]:
    """A record, a kit, a result and its package, as the commands make them; the record names no machine."""
    model = ROOT / "fixtures/models/residual_mlp_deep.onnx"
    api.prepare(model, out=work / "prepared", pins={"batch": 1}, device="cpu", force=True)
    kit = work / "kit.zip"
    api.pack_kit(work / "prepared/model.onnx", out=kit, force=True)
    app = work / "app"
    api.package_model(work / "prepared", out=app, language="python", unproven=True, force=True)
    put_image(app / "app.exe", library=False, imports=["KERNEL32.dll", "onnxruntime.dll"])
    put_libraries(app)
    package = {f"app/{file.name}": file.read_bytes() for file in sorted(app.iterdir()) if file.is_file()}
    return (
        (work / "prepared/run.json").read_bytes(),
        kit.read_bytes(),
        (work / "prepared/model.onnx").read_bytes(),
        package,
    )


def _bisection() -> bytes:
    """A record with all that a bisection can tell."""
    values = ["h1", "h2", "y"]
    said = Bisected(
        reference="o.onnx",
        candidate="m.onnx",
        nodes=["conv", "relu"],
        op_types=["Conv", "Relu"],
        values=values,
        places=[0, 3, 7],
        errors=[1e-7, 0.5, None],
        total_nodes=9,
        bound=1e-3,
        settings=[("basic", "passed", "0.0001"), ("all", "failed", "0.5")],
        files=["repro/model.onnx"],
        runs=12,
    )
    verdict = Verdict(Check("agreement"), "failed", reason="parts")
    record = RunRecord(
        command="bisect",
        input="m.onnx",
        exit_code=1,
        error=RunError("the models first differ at conv"),
        verdicts=[verdict],
        findings=[finding("DP706", "parts", node="conv")],
        facts=RunFacts(bisection=said),
    )
    return record.to_json()


def _records(corpus: Corpus, work: Path) -> None:
    record, kit, corpus.result, corpus.package = _prepared(work)
    corpus.records.append(record)
    corpus.kits.append(kit)
    corpus.bisection = _bisection()
    made = io.BytesIO()
    np.savez(made, x=np.zeros((1, 64), np.float32), y=np.arange(6, dtype=np.int64).reshape(2, 3))
    corpus.feeds.append(made.getvalue())


def parent(rng: random.Random, parents: list[bytes]) -> bytes:
    """One of them; the latest found are taken more often."""
    if len(parents) > 50 and rng.random() < 0.3:
        return parents[-1 - rng.randrange(min(200, len(parents)))]
    return rng.choice(parents)
