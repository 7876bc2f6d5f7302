"""Foreign models: ``python -m tests.benchmarks.foreign [FOLDER ...] [--nodes] [--out table.json]``.

Every .onnx file below the folders, those that the ``onnx`` package ships, and with ``--nodes`` the node cases of its
backend tests. For each model ONNX Runtime itself runs on made feeds (dmlprep's own, of seed 0), then ``prepare`` runs
with ``@static-fp32``, and the result is run on other feeds and, where the model comes with test data, on those. What
counts:

    prepared   the result is there, and gives what the original gives
    refused    no result, with the code of the refusal; of models that ONNX Runtime runs, these are what is left to do
    wrong      a result is there, and gives something else: a failure
    fault      exit code 70, or an exception: a failure
    not run    ONNX Runtime does not run the model on made feeds, or gives other outputs each time, as kernels do that
               read memory that nobody wrote; whatever dmlprep says of it

One worker serves all runs, one thread each. Models that take longer than ``--limit`` seconds are refused as DP-time.
The exit code is 1 where a model is wrong or a fault, or where less than 97 % of those that run are prepared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dmlprep
from dmlprep import runtime
from dmlprep.errors import CheckNotRun, DmlprepError, InternalError
from dmlprep.model import Model
from dmlprep.parity import make_feeds
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, cpu_host
from tests.benchmarks.conformance import bits, fault

SHARE = 0.97
RTOL, ATOL = 1e-3, 1e-5
"""For results held against test data, which other machines made."""

FILLS = (0x55, 0xAA)
"""What fresh memory holds in two more runs of a model that may not repeat."""

_PERTURB = "MALLOC_PERTURB_"

Sets = list[tuple[list[Any], list[Any]]]


@dataclass
class Row:
    """What became of one model."""

    name: str
    outcome: str
    code: str = ""
    what: str = ""
    seconds: float = 0.0


class Kept:
    """A host that a run does not end: starting a worker for each of a thousand small models takes the most time."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host

    def __enter__(self) -> SessionHost:
        return self._host

    def __exit__(self, *_: object) -> None:
        pass


def files(folders: Iterable[Path]) -> Iterator[tuple[str, Path, Sets]]:
    """Models of folders, with the test data beside them."""
    for folder in folders:
        for path in sorted(folder.rglob("*.onnx")):
            yield str(path.relative_to(folder.parent)), path, list(_beside(path))


def _beside(path: Path) -> Iterator[tuple[list[Any], list[Any]]]:
    def tensors(kind: str, data: Path) -> list[Any]:
        found = sorted(data.glob(f"{kind}_*.pb"), key=lambda p: int(re.findall(r"\d+", p.name)[-1]))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(str(p))) for p in found]

    for data in sorted(path.parent.glob("test_data_set_*")):
        with contextlib.suppress(Exception):  # sequences and optionals
            yield tensors("input", data), tensors("output", data)


def node_cases(folder: Path) -> Iterator[tuple[str, Path, Sets]]:
    """The node cases of onnx's backend tests."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model is not None:
            path = folder / "node.onnx"
            path.write_bytes(case.model.SerializeToString())
            yield f"node/{case.name}", path, [(list(i), list(o)) for i, o in case.data_sets or []]


class Bench:
    """Runs models, all on one host."""

    def __init__(self, host: SessionHost, folder: Path, limit: float) -> None:
        self.host, self.folder, self.limit = host, folder, limit

    def run(self, name: str, path: Path, sets: Sets) -> Row:
        began = time.perf_counter()
        row = self._run(name, path, sets)
        if (row.outcome == "wrong" or row.code == "DP701") and not self._repeats(path):
            row = Row(name, "not run", "", "ONNX Runtime gives other outputs on the same feed each time")
        row.seconds = round(time.perf_counter() - began, 2)
        return row

    def _run(self, name: str, path: Path, sets: Sets) -> Row:
        try:
            model = Model.open(path)
            feeds = make_feeds(model, count=1)[0]
        except CheckNotRun as error:
            return Row(name, "not run", error.code, f"no feeds can be made: {error}")
        except DmlprepError as error:
            # What ONNX Runtime would run on cannot be made of a model that is not read: its test data tell.
            if self._answers(path, sets) is not None:
                return Row(name, "refused", error.code, str(error))
            return Row(name, "not run", error.code, str(error))
        before = self._on(path, [feeds])
        if isinstance(before, str):
            return Row(name, "not run", "", before)
        out = self.folder / "out.onnx"
        out.unlink(missing_ok=True)
        settings = ['parity.dml="off"', 'parity.noise="off"', f"parity.time_limit={self.limit}"]
        try:
            record = dmlprep.prepare(path, out=out, recipe="@static-fp32", settings=settings, force=True)
        except InternalError as error:
            return Row(name, "fault", "70", str(error))
        except DmlprepError as error:
            return Row(name, "refused", error.code, str(error))
        if record.exit_code:
            code = record.error.code if record.error is not None else ""
            return Row(name, "refused", code or f"exit {record.exit_code}", str(record.error))
        return self._held(name, path, out, sets, model)

    def _held(self, name: str, path: Path, out: Path, sets: Sets, model: Model) -> Row:
        """Whether the result gives what the original gives, on feeds that the proof did not have."""
        others = make_feeds(model, count=1, seed=7)
        before, after = self._on(path, others), self._on(out, others)
        if not isinstance(before, str):
            if isinstance(after, str):
                return Row(name, "wrong", "", f"the result does not run: {after}")
            if (worst := _worst(after[0], before[0])) is not None:
                return Row(name, "wrong", "", f"off by {worst:.2g} on other made feeds")
        wanted = self._answers(path, sets)
        if wanted is not None and self._answers(out, sets) is None:
            return Row(name, "wrong", "", "not as in its test data, which the original gives")
        return Row(name, "prepared")

    def _repeats(self, path: Path) -> bool:
        """Whether the original itself gives the same each time: some kernels read memory that nobody wrote."""
        model = Model.open(path)
        feeds = [*make_feeds(model, count=2), *make_feeds(model, count=1, seed=7)]
        runs = [self._on(path, feeds) for _ in range(8)]
        for fill in FILLS:
            with _fresh_memory_holds(fill), cpu_host() as host:
                runs.append(Bench(host, self.folder, self.limit)._on(path, feeds))
        first = runs[0]
        return not any(
            isinstance(run, str) or isinstance(first, str) or _worst(a, b) is not None
            for run in runs
            for a, b in zip(first, run, strict=False)
        )

    def _answers(self, path: Path, sets: Sets) -> bool | None:
        """True where a model gives what its test data say, ``None`` where it does not, or there are none."""
        if not sets:
            return None
        try:
            with self.host.open(path, SessionOptions(time_limit=self.limit, threads=1)) as session:
                names = [value.name for value in session.inputs]
                for inputs, outputs in sets:
                    feeds = {n: bits(v) for n, v in zip(names, inputs, strict=False) if v is not None}
                    found = list(session.run_any(feeds).values())
                    if _worst(found, list(outputs)) is not None:
                        return None
        except (SessionFailure, ValueError, TypeError):
            return None
        return True

    def _on(self, path: Path, feeds: list[dict[str, np.ndarray[Any, Any]]]) -> list[list[Any]] | str:
        """Outputs for each feed, or why there are none."""
        try:
            with self.host.open(path, SessionOptions(time_limit=self.limit, threads=1)) as session:
                return [list(session.run_any(feed).values()) for feed in feeds]
        except SessionFailure as error:
            return f"{error.kind}: {error.message}"


@contextlib.contextmanager
def _fresh_memory_holds(fill: int) -> Iterator[None]:
    """Let glibc fill what processes that start within the block allocate; elsewhere memory holds what it holds."""
    before = os.environ.get(_PERTURB)
    os.environ[_PERTURB] = str(fill ^ 0xFF)  # glibc fills what it gives with the complement, what it gets back with it
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PERTURB]
        else:
            os.environ[_PERTURB] = before


def _worst(found: list[Any], wanted: list[Any]) -> float | None:
    if len(found) != len(wanted):
        return 1.0
    faults = [fault(f, w, RTOL, ATOL) for f, w in zip(found, wanted, strict=True)]
    return max((f for f in faults if f is not None), default=None)


def _shown(rows: list[Row]) -> str:
    counts = Counter((row.outcome, row.code) for row in rows)
    lines = [f"{outcome:9} {code:8} {count:5}" for (outcome, code), count in sorted(counts.items())]
    ran = [row for row in rows if row.outcome != "not run"]
    good = sum(row.outcome == "prepared" for row in ran)
    share = good / len(ran) if ran else 1.0
    return "\n".join([*lines, f"of {len(ran)} that ONNX Runtime runs on made feeds, {good} are prepared: {share:.2%}"])


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--nodes", action="store_true", help="onnx's node cases too")
    parser.add_argument("--out", type=Path, help="a JSON table of all rows")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one load or run")
    parser.add_argument("--only", default="", help="a pattern that names must match")
    parser.add_argument("--most-bytes", type=int, default=1 << 30, help="larger files are left out")
    options = parser.parse_args()
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)
    shipped = Path(onnx.__file__).parent / "backend" / "test" / "data"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as made, cpu_host() as host:
        runtime.cpu_host = lambda: Kept(host)  # type: ignore[assignment, return-value]
        folder = Path(made)
        bench = Bench(host, folder, options.limit)
        cases = [files([shipped, *options.folders]), node_cases(folder) if options.nodes else iter(())]
        for name, path, sets in (case for source in cases for case in source):
            if not re.search(options.only, name) or path.stat().st_size > options.most_bytes:
                continue
            try:
                row = bench.run(name, path, sets)
            except Exception as error:  # as the command line: a bug of ours
                row = Row(name, "fault", "70", f"{type(error).__name__}: {error}")
            rows.append(row)
            if row.outcome not in ("prepared", "not run"):
                print(f"{row.outcome} {row.code} {row.name}: {row.what[:300]}", flush=True)
    print(_shown(rows))
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    ran = [row for row in rows if row.outcome != "not run"]
    bad = any(row.outcome in ("wrong", "fault") for row in ran)
    return int(bad or sum(row.outcome == "prepared" for row in ran) < SHARE * len(ran))


if __name__ == "__main__":
    sys.exit(main())
