"""Trials of a search: run, measure and remember.

A trial runs the FP16 emulation with some nodes in FP32, or a model of few bits with some nodes unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.core.files import Unfit, parse_json, read_given, unreadable
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import toml_comment, toml_string
from dmlprep.graph.model import Model, freeze
from dmlprep.graph.model.random_ops import draws
from dmlprep.graph.model.walk import graphs, join_path, label, nodes, nodes_by_path
from dmlprep.metrics import TOLERANCES, ProofRules, degenerate, faint_maps
from dmlprep.passes.precision.emulation.emulate import Accumulation, Rounding, emulate
from dmlprep.passes.precision.fp16 import WIDE
from dmlprep.passes.precision.types import computing_type, solve_types
from dmlprep.passes.precision.view import UNTYPED
from dmlprep.portable.arrays import Array
from dmlprep.portable.shares import percent
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

Feeds = Mapping[str, Array]
Convert = Callable[[Model, Mapping[int, str]], object]
"""A function that converts a model in place, with the nodes in ``id(node)`` in FP32."""

_AT_LEAST = 24
"""Trials that ignore the time limit: a model whose runs take minutes needs some trials, too."""

_CLEARLY = 4.0
"""If a feed's error exceeds the tolerance this many times, the trial is decided: it skips the other feeds."""


@dataclass(frozen=True)
class Trial:
    """One run of the emulation: nodes kept in FP32, largest error of an output, seconds (0 if remembered)."""

    keep: tuple[str, ...]
    error: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """The settings of a search.

    Attributes:
        tolerance: largest accepted error of an output, see ``metrics.output_error``.
        mode, rounding: settings of the FP16 emulation.
        max_seconds: no trial begins after this time, except the first 24.
        journal: a file that stores trials and profiles, so that an interrupted search continues.
        conversion: text of everything that the conversion depends on; with another text, the journal's entries do not
            count.
        few_bits: whether trials have weights of few bits and run directly; by default they are FP16, and emulated.
    """

    tolerance: float
    mode: Accumulation = "storage"
    rounding: Rounding = "nearest"
    max_trials: int = 100
    max_seconds: float = 120.0
    journal: Path | None = None
    conversion: str = ""
    rules: ProofRules = field(default_factory=ProofRules)
    progress: Progress = lambda share, text: None
    few_bits: bool = False


class _Stored(msgspec.Struct):
    """The contents of a journal's file."""

    key: str
    trials: dict[str, float]
    measured: dict[str, Any] = {}


class _Journal:
    """Errors by the set of nodes kept, and measurements by name; in a file if there is one."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._stored = path, _Stored(key, {}, {})
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(
                "the journal's folder does not exist", where=str(path), fix="create it, or choose another file"
            )
        if path is not None and path.exists():
            try:
                stored = parse_json(read_given(path), _Stored, lenient=True)
                if stored.key == key:
                    self._stored = stored
            except OSError as error:
                raise unreadable(error, path) from error
            except Unfit as error:
                raise InputError(
                    "not a journal of an island search", where=str(path), fix="remove it, or choose another file"
                ) from error

    def _table(self, name: str, keep: Sequence[str]) -> tuple[dict[str, Any], str]:
        """The table and the key of an entry: an error if the name is empty, a measurement otherwise."""
        digest = hashlib.sha256("\n".join(sorted(keep)).encode()).hexdigest()[:24]
        return (self._stored.measured, f"{name} {digest}") if name else (self._stored.trials, digest)

    def get(self, name: str, keep: Sequence[str]) -> Any:
        table, key = self._table(name, keep)
        return table.get(key)

    def put(self, name: str, keep: Sequence[str], what: object) -> None:
        table, key = self._table(name, keep)
        table[key] = what
        if self._path is not None:
            write_file(self._path, json.dumps(msgspec.structs.asdict(self._stored)).encode("utf-8"))


def _depends_on(model: Model, feeds: Sequence[Feeds], setting: Setting) -> str:
    """Return a digest of everything that the errors of trials depend on.

    It covers the graph in its present form (pinned, simplified), the file of its weights, the feeds, the emulation, and
    the conversion. The tolerance counts: a trial that exceeds it is shortened.
    """
    digest = hashlib.sha256(freeze(model.ir).proto.SerializeToString(deterministic=True))
    if model.path is not None and model.path.exists():
        status = model.path.stat()
        digest.update(f"{model.path.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    for feed in feeds:
        for name, array in sorted(feed.items()):
            plain = array.astype(str) if array.dtype.kind == "O" else array
            digest.update(f"{name} {plain.dtype} {plain.shape}".encode() + np.ascontiguousarray(plain).tobytes())
    how = f"{setting.mode} {setting.rounding} {setting.conversion} {setting.rules}"
    digest.update(f"{__version__} {setting.tolerance} {how}".encode())
    return digest.hexdigest()


class Trials:
    """Runs trials on one model, which is unchanged.

    Attributes:
        tolerance: the largest accepted error: the setting's, or the proof's bound if that is smaller.
        by_output: for each output, the error with all nodes in FP16, if that trial ran.
    """

    def __init__(self, model: Model, convert: Convert, runner: Runner, feeds: list[Feeds], setting: Setting) -> None:
        self.model, self.feeds, self.runner, self.setting = model, feeds, runner, setting
        self._convert = convert
        self.outputs = [v.name or "" for v in model.ir.graph.outputs]
        self._judge = setting.rules.judge(model, setting.tolerance, few_bits=setting.few_bits)
        self.tolerance = self._judge.enough
        # FP16 may select other rows: the proof compares them as sets, and the search keeps no node for them.
        self._groups = [group for group in self._judge.groups if group.kind != "rows"]
        self.done: list[Trial] = []
        self.by_output: dict[str, float] = {}
        self._started = time.monotonic()
        self._known: dict[frozenset[str], float] = {}
        key = _depends_on(model, feeds, setting) if setting.journal is not None else ""
        self._journal = _Journal(setting.journal, key)
        self._want: list[dict[str, Array]] = []
        self._weak: AbstractSet[str] = frozenset()

    @property
    def remaining(self) -> int:
        """The number of trials that may still run."""
        late = self.seconds > self.setting.max_seconds
        allowed = min(self.setting.max_trials, _AT_LEAST) if late else self.setting.max_trials
        return max(0, allowed - len(self.done))

    @property
    def seconds(self) -> float:
        """The duration of the search so far."""
        return time.monotonic() - self._started

    def meets(self, keep: Iterable[str]) -> bool:
        """Return whether a set of nodes kept in FP32 meets the tolerance."""
        return self.measure(keep) <= self.tolerance

    def converted(self, keep: Iterable[str]) -> Model:
        """The model with all but these nodes in FP16, as the final conversion will write it."""
        model = self.model.copy()
        places = nodes_by_path(model.ir)
        self._convert(model, {id(places[name]): "island" for name in keep})
        return model

    def computing(self, keep: Iterable[str]) -> dict[str, None]:
        """Places of the nodes that compute in FP32 if these nodes are kept, in the order of the graph."""
        return dict.fromkeys(_in_fp32(self.converted(keep)))

    def measure(self, keep: Iterable[str]) -> float:
        """The largest error of an output with these nodes in FP32; a known set is not a new trial."""
        names = tuple(sorted(keep))
        if (known := self._known.get(frozenset(names))) is not None:
            return known
        started = time.monotonic()
        error: float | None = self._journal.get("", names)
        remembered = error is not None
        if error is None:
            error = self._run(self.converted(names), by_output=not names)
            self._journal.put("", names, error)
        seconds = 0.0 if remembered else time.monotonic() - started
        self._known[frozenset(names)] = error
        self.done.append(Trial(names, error, seconds))
        self._say(names, error, remembered)
        return error

    def remember(self, name: str, keep: Sequence[str], compute: Callable[[], object]) -> Any:
        """Return the result of ``compute`` (plain JSON), or its stored result from an interrupted search."""
        known = self._journal.get(name, keep)
        if known is None:
            known = compute()
            self._journal.put(name, keep, known)
        return known

    def say(self, share: float, text: str) -> None:
        """Report a measurement between trials, ``share`` done."""
        self.setting.progress(self._share, f"{text}, {percent(share, 0)} done")

    @property
    def _share(self) -> float:
        return min(len(self.done) / self.setting.max_trials, 0.99)

    def _run(self, converted: Model, *, by_output: bool) -> float:
        if not self._want:
            self.setting.progress(self._share, "reference")
            self._want = [dict(self.runner.run(self.model, one, self.outputs)) for one in self.feeds]
            # Outputs that prove nothing on these feeds need no node either; the proof reports them.
            self._weak = degenerate(self._groups, self._want, TOLERANCES["fp16-emulation"]).keys()
            self._leave_out_drawn()
            self._judge = replace(self._judge, faint=faint_maps(self._groups, self._want))
        if self.setting.few_bits:
            return self._worst(converted, by_output=by_output)
        error = self._worst(emulate(converted, self.setting.mode, self.setting.rounding), by_output=by_output)
        # Also check weight-only rounding, as the CPU verdict does. A file that does not run there is not evidence.
        if error <= self.tolerance:
            with contextlib.suppress(ModelRefused):
                error = max(error, self._worst(converted))
        return error

    def _leave_out_drawn(self) -> None:
        """Leave out the outputs that differ in a second run, because the proof does not judge them either."""
        if any(draws(node) for node in nodes(self.model.ir)):
            again = self.runner.run(self.model, self.feeds[0], self.outputs)
            drawn = {
                n for n, a in again.items() if not np.array_equal(a, self._want[0][n], equal_nan=a.dtype.kind == "f")
            }
            self._groups = [group for group in self._groups if drawn.isdisjoint(group.names)]

    def _worst(self, model: Model, *, by_output: bool = False) -> float:
        worst = 0.0
        for want, one in zip(self._want, self.feeds, strict=True):
            got = self.runner.run(model, one, self.outputs)
            of_feed = 0.0
            for group in self._groups:
                error = self._judge.error(group, want, got)
                if self._weak >= set(group.names) and math.isfinite(error):
                    error = 0.0
                of_feed = max(of_feed, self._judge.counted(group, error))
                if by_output:
                    self.by_output |= {name: max(error, self.by_output.get(name, 0.0)) for name in group.names}
            worst = max(worst, self._judge.decided(of_feed, want, got))
            if worst > self.tolerance * _CLEARLY and not by_output:
                break
        return worst

    def _say(self, names: Sequence[str], error: float, remembered: bool) -> None:
        durations = [t.seconds for t in self.done if t.seconds]
        mean = sum(durations) / max(1, len(durations))
        rest = max(self.setting.max_seconds - self.seconds, mean * (_AT_LEAST - len(self.done)))
        seconds_left = max(0.0, min(mean * self.remaining, rest))
        where = "kept" if self.setting.few_bits else "in FP32"
        self.setting.progress(
            self._share,
            f"trial {len(self.done)}{' (remembered)' if remembered else ''}: {len(names)} nodes {where}, "
            f"error {error:.2g} (tolerance {self.tolerance:.2g}), at most {seconds_left:.0f} s left",
        )


def _in_fp32(model: Model) -> list[str]:
    types = solve_types(model.ir)
    others = UNTYPED | {"Constant", "If", "Loop", "Scan"}
    return [
        join_path(path, label(node))
        for path, graph in graphs(model.ir)
        for node in graph
        if node.op_type not in others and computing_type(node, types, model.ir.opset_imports) in WIDE
    ]


def keep_nodes_lines(keep: Mapping[str, str]) -> str:
    """TOML for a step that keeps nodes by name, each with the reason as a comment."""
    if not keep:
        return "keep_nodes = []"
    rows = "".join(f"  {toml_string(name)},  {toml_comment(why)}\n" for name, why in keep.items())
    return f"keep_nodes = [\n{rows}]"
