"""Trials of an island search: run the true-FP16 reference with some nodes kept in FP32, measure, remember."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dmlprep.errors import InputError, ModelRefused
from dmlprep.model import Model, freeze
from dmlprep.model.ranked import ranked_outputs
from dmlprep.model.walk import graphs, label
from dmlprep.precision.half import WIDE
from dmlprep.precision.places import nodes_by_place, place_in
from dmlprep.precision.reference import Accumulation, Rounding, reference_model
from dmlprep.precision.selected import ranked_error, sized_by_data
from dmlprep.precision.types import Types, solve_types
from dmlprep.precision.view import UNTYPED

if TYPE_CHECKING:
    from dmlprep.model.runner import Runner

__all__ = ["Convert", "Feeds", "Progress", "Setting", "Trial", "Trials", "graph_digest", "output_error"]

Feeds = Mapping[str, np.ndarray[Any, Any]]
Progress = Callable[[float, str], None]
Convert = Callable[[Model, Mapping[int, str]], object]
"""Converts a model in place, keeping the nodes given by ``id(node)`` in FP32."""

_CLEARLY = 4.0
"""A feed whose error exceeds the tolerance this many times settles a trial: the other feeds can wait."""


@dataclass(frozen=True)
class Trial:
    """One run of the reference: nodes kept in FP32, largest error of an output, seconds (0 where remembered)."""

    kept: tuple[str, ...]
    error: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """How trials run.

    Attributes:
        tolerance: largest error of an output that is accepted.
        mode, rounding: of the reference.
        max_trials: how many runs of the reference are allowed.
        journal: a file that remembers them.
        key: what the remembered ones depend on.
        progress: told of each.
    """

    tolerance: float
    mode: Accumulation
    rounding: Rounding
    max_trials: int
    journal: Path | None
    key: str
    progress: Progress


def output_error(
    want: Mapping[str, np.ndarray[Any, Any]], got: Mapping[str, np.ndarray[Any, Any]], names: Iterable[str]
) -> float:
    """The largest error of the floating outputs; infinity where one is not finite.

    An output's error is max|difference| / max|reference|, or the angle between the two where that says more (small
    values beside one large one), scaled so that a cosine of 0.999 counts as 0.02: parity bounds both.

    Elements that are not finite in the reference (a masked row), or masks themselves, are left out. Integer outputs
    follow from floating ones by comparisons and are judged by parity's own rules.
    """
    worst = 0.0
    for name in names:
        reference, result = np.asarray(want[name]), np.asarray(got[name])
        if reference.dtype.kind != "f" or reference.size == 0:
            continue
        if reference.shape != result.shape:
            return float("inf")
        wide = reference.astype(np.float64)
        told = np.isfinite(wide) & (wide > _MASK)
        wide, short = wide[told], result[told].astype(np.float64)
        if not np.isfinite(short).all():
            return float("inf")
        scale = float(np.abs(wide).max(initial=0.0))
        if not scale:
            worst = max(worst, float(np.abs(short).max(initial=0.0)))
            continue
        wide, short = wide / scale, short / scale
        worst = max(worst, float(np.abs(wide - short).max()), _ANGLE * _angle(wide, short))
    return worst


_MASK = -1e30
"""Outputs at or below this are masks: they would scale the differences of all others."""

_ANGLE = 0.02 / math.acos(0.999)


def _angle(wide: np.ndarray[Any, Any], short: np.ndarray[Any, Any]) -> float:
    """Between two tensors taken as vectors, in radians."""
    lengths = math.sqrt(float(wide @ wide) * float(short @ short))
    if wide.size < 2 or not lengths:
        return 0.0
    # by the difference of the unit vectors: 1 - cosine would be lost in rounding
    half = float(np.linalg.norm(wide / np.linalg.norm(wide) - short / np.linalg.norm(short))) / 2
    return 2 * math.asin(min(half, 1.0))


class _Journal:
    """Errors by the set of nodes kept, and measurements by name, in a file where one is given."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._key = path, key
        self._trials: dict[str, float] = {}
        self._measured: dict[str, Any] = {}
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(
                "the journal's folder does not exist", where=str(path), fix="make it, or name another file"
            )
        if path is not None and path.exists():
            try:
                stored = json.loads(path.read_text())
                if stored["key"] == key:
                    self._trials, self._measured = dict(stored["trials"]), dict(stored.get("measured", {}))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    "this is no journal of an island search", where=str(path), fix="remove it, or name another file"
                ) from error

    def trial(self, kept: Sequence[str]) -> float | None:
        return self._trials.get(_digest(kept))

    def put_trial(self, kept: Sequence[str], error: float) -> None:
        self._trials[_digest(kept)] = error
        self._write()

    def measured(self, name: str, kept: Sequence[str]) -> Any:
        return self._measured.get(f"{name} {_digest(kept)}")

    def put_measured(self, name: str, kept: Sequence[str], what: Any) -> None:
        self._measured[f"{name} {_digest(kept)}"] = what
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        part = self._path.with_name(self._path.name + ".part")
        part.write_text(json.dumps({"key": self._key, "trials": self._trials, "measured": self._measured}))
        os.replace(part, self._path)


def _digest(kept: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:24]


def graph_digest(model: Model) -> str:
    """Of the graph as it is now (pinned, simplified), and of the file that holds its weights."""
    found = hashlib.sha256(freeze(model.ir).proto.SerializeToString(deterministic=True))
    if model.path is not None and model.path.exists():
        status = model.path.stat()
        found.update(f"{model.path.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    return found.hexdigest()


class Trials:
    """Runs trials on one model, which is not changed.

    Attributes:
        done: all trials, in order.
        computing: of each trial's nodes kept that was converted, the places of the nodes that compute in FP32.
    """

    def __init__(self, model: Model, convert: Convert, runner: Runner, feeds: list[Feeds], setting: Setting) -> None:
        self.model, self.feeds, self.runner, self.setting = model, feeds, runner, setting
        self._convert = convert
        self.outputs = [v.name or "" for v in model.ir.graph.outputs]
        follows = sized_by_data(model)
        self._judged = [name for name in self.outputs if name not in follows]
        self._ranked = [one for one in ranked_outputs(model) if not follows.intersection(one.names)]
        self.done: list[Trial] = []
        self._known: dict[frozenset[str], float] = {}
        self._journal = _Journal(setting.journal, setting.key)
        self._want: list[dict[str, np.ndarray[Any, Any]]] = []

    @property
    def left(self) -> int:
        """How many trials may still be run."""
        return self.setting.max_trials - len(self.done)

    def meets(self, kept: Iterable[str]) -> bool:
        """Whether a set of nodes kept in FP32 meets the tolerance."""
        return self.measure(kept) <= self.setting.tolerance

    def converted(self, kept: Iterable[str]) -> Model:
        """The model with all but these nodes in FP16, as the final conversion will make it."""
        model = self.model.copy()
        places = nodes_by_place(model.ir)
        self._convert(model, {id(places[name]): "island" for name in kept})
        return model

    def computing(self, kept: Iterable[str]) -> dict[str, None]:
        """Places of the nodes that compute in FP32 once these are kept, in the order of the graph."""
        return dict.fromkeys(_in_fp32(self.converted(kept)))

    def measure(self, kept: Iterable[str]) -> float:
        """The largest error of an output with these nodes in FP32; a set measured before is no new trial."""
        names = tuple(sorted(kept))
        if (known := self._known.get(frozenset(names))) is not None:
            return known
        started = time.monotonic()
        error = self._journal.trial(names)
        remembered = error is not None
        if error is None:
            error = self._run(self.converted(names))
            self._journal.put_trial(names, error)
        seconds = 0.0 if remembered else time.monotonic() - started
        self._known[frozenset(names)] = error
        self.done.append(Trial(names, error, seconds))
        self._say(names, error, remembered)
        return error

    def remember(self, name: str, kept: Sequence[str], compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives (plain JSON), or what it gave when the search was stopped."""
        found = self._journal.measured(name, kept)
        if found is None:
            found = compute()
            self._journal.put_measured(name, kept, found)
        return found

    def say(self, share: float, text: str) -> None:
        """Tell of a measurement between trials, ``share`` done."""
        self.setting.progress(self._share, f"{text}, {share:.0%} done")

    @property
    def _share(self) -> float:
        return min(len(self.done) / self.setting.max_trials, 0.99)

    def _run(self, converted: Model) -> float:
        if not self._want:
            self.setting.progress(self._share, "FP32 reference")
            self._want = [dict(self.runner.run(self.model, one, self.outputs)) for one in self.feeds]
        shadow = reference_model(converted, self.setting.mode, self.setting.rounding)
        error = self._worst(shadow)
        if error > self.setting.tolerance:
            return error
        # What rounds nothing but weights is no part of what rounds everything: its errors are others, and prepare's
        # verdict from the CPU provider looks at them. A file that does not run there says nothing here.
        with contextlib.suppress(ModelRefused):
            error = max(error, self._worst(converted))
        return error

    def _worst(self, model: Model) -> float:
        error = 0.0
        for want, one in zip(self._want, self.feeds, strict=True):
            error = max(error, self._error(want, dict(self.runner.run(model, one, self.outputs))))
            if error > self.setting.tolerance * _CLEARLY:
                break
        return error

    def _error(self, want: dict[str, np.ndarray[Any, Any]], got: dict[str, np.ndarray[Any, Any]]) -> float:
        error = output_error(want, got, self._judged)
        if error <= self.setting.tolerance or not self._ranked:
            return error
        # scores that are as good as equal come in another order: their rows are the same all the same
        alone = [name for name in self._judged if not any(name in one.names for one in self._ranked)]
        rows = [min(output_error(want, got, one.names), ranked_error(want, got, one)) for one in self._ranked]
        return max(output_error(want, got, alone), *rows)

    def _say(self, names: Sequence[str], error: float, remembered: bool) -> None:
        taken = [t.seconds for t in self.done if t.seconds]
        left = sum(taken) / len(taken) * self.left if taken else 0.0
        self.setting.progress(
            self._share,
            f"trial {len(self.done)}{' (remembered)' if remembered else ''}: {len(names)} nodes in FP32, "
            f"error {error:.2g} (tolerance {self.setting.tolerance:.2g}), at most {left:.0f} s left",
        )


def _in_fp32(model: Model) -> list[str]:
    types = solve_types(model.ir)
    found = []
    for path, graph in graphs(model.ir):
        for node in graph:
            if (
                node.op_type not in UNTYPED
                and node.op_type not in ("Constant", "If", "Loop", "Scan")
                and any(_is_wide(types, v) for v in (*node.inputs, *node.outputs))
            ):
                found.append(place_in(path, label(node)))
    return found


def _is_wide(types: Types, value: ir.Value | None) -> bool:
    kind = types.get(value) if value is not None else None
    return isinstance(kind, ir.TensorType) and kind.dtype in WIDE
