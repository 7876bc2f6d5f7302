"""The smallest set of nodes to keep in FP32 so that the true-FP16 reference meets a tolerance.

First what the range profile proves (values beyond 65504, and what reads them), then what the measured error points at,
more and more of it until the tolerance is met, then less again. Every trial is one run of the reference; all are
remembered, so that a search that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlprep.errors import InputError
from dmlprep.model import Model, freeze
from dmlprep.model.walk import label, nodes
from dmlprep.precision.constants import from_big_constant
from dmlprep.precision.contribution import error_growth
from dmlprep.precision.half import FP16_MAX
from dmlprep.precision.plan import COMPRESSES
from dmlprep.precision.profile import Range, profile
from dmlprep.precision.reference import Accumulation, Rounding, reference_model
from dmlprep.precision.selected import sized_by_data

if TYPE_CHECKING:
    from dmlprep.passes.base import Runner

__all__ = ["MAX_TRIALS", "Islands", "Trial", "find_islands", "output_error"]

MAX_TRIALS = 12

Feeds = Mapping[str, np.ndarray[Any, Any]]
Progress = Callable[[float, str], None]
Convert = Callable[[Model, Mapping[int, str]], object]
"""Converts a model in place, keeping the nodes given by ``id(node)`` in FP32."""


@dataclass(frozen=True)
class Trial:
    """One run of the reference: labels kept in FP32, largest error of an output, seconds (0 where remembered)."""

    kept: tuple[str, ...]
    error: float
    seconds: float


@dataclass
class Islands:
    """What a search found.

    Attributes:
        met: whether the tolerance is met.
        error: of the result, see ``output_error``.
        keep: label of each node to keep in FP32 -> why, with numbers.
        whole: the result keeps every node in FP32, so FP16 gains nothing.
        trials: all runs of the reference, in order.
        ranges: the range profile, where it was needed.
    """

    met: bool
    error: float
    keep: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    trials: list[Trial] = field(default_factory=list)
    ranges: dict[str, Range] = field(default_factory=dict)

    def recipe_lines(self) -> str:
        """TOML for the fp16 step that gives this result without a search."""
        if not self.keep:
            return "keep_nodes = []"
        rows = "".join(f"  {json.dumps(name)},  # {why}\n" for name, why in self.keep.items())
        return f"keep_nodes = [\n{rows}]"


def output_error(
    want: Mapping[str, np.ndarray[Any, Any]], got: Mapping[str, np.ndarray[Any, Any]], names: Iterable[str]
) -> float:
    """The largest of max|difference| / max|reference| over the floating outputs; infinity where one is not finite.

    Elements that are not finite in the reference (a masked row) are left out where both agree. Integer outputs follow
    from floating ones by comparisons and are judged by parity's own rules.
    """
    worst = 0.0
    for name in names:
        reference, result = np.asarray(want[name]), np.asarray(got[name])
        if reference.dtype.kind != "f" or reference.size == 0:
            continue
        if reference.shape != result.shape:
            return float("inf")
        wide, short = reference.astype(np.float64), result.astype(np.float64)
        finite = np.isfinite(wide)
        if not np.isfinite(short[finite]).all():
            return float("inf")
        scale = float(np.abs(wide[finite]).max(initial=0.0))
        off = float(np.abs(wide[finite] - short[finite]).max(initial=0.0))
        worst = max(worst, off / scale if scale else off)
    return worst


class _Journal:
    """Trials by the set of nodes kept, in a file where one is given."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._key = path, key
        self._known: dict[str, float] = {}
        if path is not None and path.exists():
            try:
                stored = json.loads(path.read_text())
                self._known = stored["trials"] if stored["key"] == key else {}
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    "this is no journal of an island search", where=str(path), fix="remove it, or name another file"
                ) from error

    def get(self, kept: Sequence[str]) -> float | None:
        return self._known.get(_digest(kept))

    def put(self, kept: Sequence[str], error: float) -> None:
        self._known[_digest(kept)] = error
        if self._path is None:
            return
        part = self._path.with_name(self._path.name + ".part")
        part.write_text(json.dumps({"key": self._key, "trials": self._known}))
        os.replace(part, self._path)


def _digest(kept: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:24]


def _graph_digest(model: Model) -> str:
    """Of the graph as it is now (pinned, simplified), and of the file that holds its weights."""
    found = hashlib.sha256(freeze(model.ir).proto.SerializeToString(deterministic=True))
    if model.path is not None and model.path.exists():
        status = model.path.stat()
        found.update(f"{model.path.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    return found.hexdigest()


class _Search:
    def __init__(
        self, model: Model, convert: Convert, runner: Runner, feeds: list[Feeds], tolerance: float, options: _Options
    ) -> None:
        self.model, self.convert, self.runner, self.feeds = model, convert, runner, feeds
        self.tolerance, self.options = tolerance, options
        self.outputs = [v.name or "" for v in model.ir.graph.outputs]
        follows = sized_by_data(model)
        self.judged = [name for name in self.outputs if name not in follows]
        self.trials: list[Trial] = []
        self.journal = _Journal(options.journal, options.key)
        options.progress(0.0, "FP32 reference")
        self.want = [runner.run(model, one, self.outputs) for one in feeds]

    def converted(self, kept: Iterable[str]) -> Model:
        model = self.model.copy()
        wanted = set(kept)
        self.convert(model, {id(n): "island" for n in nodes(model.ir) if label(n) in wanted})
        return model

    def measure(self, kept: Iterable[str]) -> float:
        names = tuple(sorted(kept))
        known = self.journal.get(names)
        started = time.monotonic()
        if known is None:
            shadow = reference_model(self.converted(names), self.options.mode, self.options.rounding)
            known = 0.0
            for want, one in zip(self.want, self.feeds, strict=True):
                got = self.runner.run(shadow, one, self.outputs)
                known = max(known, output_error(want, got, self.judged))
                if known > self.tolerance * 4:
                    break  # clearly missed: the other feeds can wait
            self.journal.put(names, known)
        seconds = time.monotonic() - started
        self.trials.append(Trial(names, known, seconds))
        share = len(self.trials) / self.options.max_trials
        left = seconds * (self.options.max_trials - len(self.trials))
        self.options.progress(
            min(share, 0.99),
            f"trial {len(self.trials)}: {len(names)} nodes in FP32, error {known:.2g} "
            f"(tolerance {self.tolerance:.2g}), at most {left:.0f} s left",
        )
        return known

    @property
    def left(self) -> int:
        return self.options.max_trials - len(self.trials)


@dataclass(frozen=True)
class _Options:
    mode: Accumulation
    rounding: Rounding
    max_trials: int
    journal: Path | None
    key: str
    progress: Progress


def find_islands(
    model: Model,
    convert: Convert,
    runner: Runner,
    feeds: Iterable[Feeds],
    tolerance: float,
    *,
    mode: Accumulation = "storage",
    rounding: Rounding = "nearest",
    max_trials: int = MAX_TRIALS,
    journal: Path | None = None,
    settings: str = "",
    progress: Progress = lambda share, text: None,
) -> Islands:
    """Search for the smallest set of nodes that must stay in FP32; ``model`` is not changed.

    Args:
        model: the FP32 model.
        convert: converts a copy, as the final conversion will.
        feeds: inputs by name, one mapping a run; the worst of them counts.
        tolerance: largest max|difference| / max|reference| of any output that is accepted.
        journal: a file that remembers trials, so that a search that was stopped goes on where it was.
        settings: what else the trials depend on (the options of ``convert``); another text starts a search anew.

    Raises:
        ModelRefused: the model does not run in FP32, or does not convert.
        InputError: ``journal`` is some other file.
    """
    every = list(feeds)
    key = f"{_graph_digest(model)} {tolerance} {mode} {rounding} {len(every)} {settings}"
    options = _Options(mode, rounding, max_trials, journal, key, progress)
    search = _Search(model, convert, runner, every, tolerance, options)
    error = search.measure(())
    if error <= tolerance:
        return Islands(True, error, trials=search.trials)
    ranges = profile(model, runner, every, progress=progress)
    reasons = _beyond_range(model, ranges)
    if reasons:
        error = search.measure(reasons)
        if error <= tolerance:
            return Islands(True, error, reasons, False, search.trials, ranges)
    keep = _by_error(search, reasons)
    result = keep if keep is not None else dict.fromkeys(_float_labels(model), "nothing less meets the tolerance")
    error = next(t.error for t in reversed(search.trials) if set(t.kept) == set(result)) if keep is not None else 0.0
    return Islands(keep is not None, error, result, keep is None, search.trials, ranges)


def _float_labels(model: Model) -> list[str]:
    return [label(n) for n in model.ir.graph if n.op_type != "Constant"]


def _beyond_range(model: Model, ranges: Mapping[str, Range]) -> dict[str, str]:
    """Nodes whose results FP16 cannot hold, and the nodes that read those results."""
    reasons: dict[str, str] = {}
    for node in model.ir.graph:
        for value in node.outputs:
            measured = ranges.get(value.name or "")
            if measured is None or not measured.overflows:
                continue
            if from_big_constant(value):  # a mask is no activation: the converter lowers it
                continue
            reasons[label(node)] = f"{label(node)} peaks at {measured.peak:.2g} > {FP16_MAX:g}"
            for reader in value.consumers():
                if reader.op_type in COMPRESSES:  # the converter computes these before it casts down
                    continue
                reasons.setdefault(label(reader), f"reads {value.name}, which peaks at {measured.peak:.2g}")
    return reasons


def _by_error(search: _Search, base: dict[str, str]) -> dict[str, str] | None:
    """Keep the nodes where error grows most: twice as many each trial until it is enough, then fewer by halves."""
    growth = error_growth(
        search.model,
        search.converted(base),
        search.runner,
        search.feeds,
        rounding=search.options.rounding,
        progress=search.options.progress,
    )
    order = [label(n) for n in search.model.ir.graph]
    place = {name: i for i, name in enumerate(order)}
    candidates = [name for name in growth if name not in base and growth[name][0] > 0]
    ranked = sorted(candidates, key=lambda name: (-growth[name][1], place[name]))
    early = sorted(candidates, key=lambda name: place[name])

    def chosen(ranking: list[str], count: int) -> dict[str, str]:
        return base | {
            name: f"the error grows from {max(0.0, growth[name][0] - growth[name][1]):.2g} "
            f"to {growth[name][0]:.2g} here"
            for name in ranking[:count]
        }

    for ranking in (ranked, early):
        low, high, count = 0, None, 1 if ranking is ranked else max(1, len(ranking) // 8)
        budget = search.left if ranking is early else max(1, search.left // 2)
        while budget > 0 and search.left > 0 and count <= len(ranking):
            budget -= 1
            if search.measure(chosen(ranking, count)) <= search.tolerance:
                high = count
                break
            low, count = count, count * (4 if ranking is ranked else 2)
        while high is not None and high - low > max(1, high // 8) and search.left > 0:
            middle = (low + high) // 2
            if search.measure(chosen(ranking, middle)) <= search.tolerance:
                high = middle
            else:
                low = middle
        if high is not None:
            return chosen(ranking, high)
    return None
