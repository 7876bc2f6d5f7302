"""Trials of a search: run a converted model, measure its error, and remember the result.

A trial runs the FP16 emulation with some nodes in FP32, or a model with weights of few bits in which some nodes are
unchanged. Sets of nodes consist of places: names, in a subgraph with the path before it.
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
"""A function that converts a model in place, except the nodes in its map of ``id(node)`` -> why."""

_AT_LEAST = 24
"""Number of trials that run even after the time limit: a model whose runs take minutes needs some trials, too."""

_CLEARLY = 4.0
"""If an error is more than this many times the tolerance, the trial skips the other feeds."""


@dataclass(frozen=True)
class Trial:
    """One trial: the places of the nodes kept in FP32, the largest error of an output, and the duration in seconds.

    The duration is 0 if the result comes from the journal.
    """

    keep: tuple[str, ...]
    error: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """The settings of a search.

    Attributes:
        tolerance: largest accepted error of an output (see ``metrics.output_error``).
        mode, rounding: settings of the FP16 emulation.
        max_trials: the largest number of trials.
        max_seconds: no trial begins after this time, except the first 24.
        journal: a file that stores trials and profiles, so that an interrupted search can continue; ``None`` for none.
        conversion: a text that changes with everything that the conversion depends on. Entries of the journal that
            were written with another text are ignored.
        rules: the rules of the proof, by which errors are judged.
        progress: called with the share done and a text.
        few_bits: true if the conversion writes weights of few bits, so that the model runs directly; false if it
            converts to FP16, which is emulated.
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
    """The content of a journal file.

    Attributes:
        key: digest of everything that the entries depend on.
        trials: digest of the kept nodes -> error.
        measured: name and digest of the kept nodes -> a measurement.
    """

    key: str
    trials: dict[str, float]
    measured: dict[str, Any] = {}


class _Journal:
    """Stores errors of trials by the set of kept nodes, and measurements by name and set; in a file if ``path`` is set.

    Entries of the file count only if its key is ``key``.
    """

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
        """Return the table and the key of an entry. An empty name means a trial, any other name a measurement."""
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

    It covers the graph in its present form (pinned, simplified), the path, size and time of its file, the feeds, the
    emulation, the conversion and dmlprep's version. It also covers the tolerance, because a trial that exceeds it far
    ends early.
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
    """Runs trials on copies of one model.

    Attributes:
        tolerance: the largest accepted error: the setting's, or the proof's bound if that is smaller.
        done: the trials so far.
        by_output: error of each output with no node kept by the search; empty if that trial has not run, or if the
            journal had it.
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
        """The number of trials that may still run, by the limits on number and time."""
        late = self.seconds > self.setting.max_seconds
        allowed = min(self.setting.max_trials, _AT_LEAST) if late else self.setting.max_trials
        return max(0, allowed - len(self.done))

    @property
    def seconds(self) -> float:
        """The duration of the search so far, in seconds."""
        return time.monotonic() - self._started

    def meets(self, keep: Iterable[str]) -> bool:
        """Return whether the outputs meet the tolerance with the nodes ``keep`` in FP32; runs a trial if needed."""
        return self.measure(keep) <= self.tolerance

    def converted(self, keep: Iterable[str]) -> Model:
        """Return a converted copy of the model, in which the nodes ``keep`` are not converted."""
        model = self.model.copy()
        places = nodes_by_path(model.ir)
        self._convert(model, {id(places[name]): "island" for name in keep})
        return model

    def computing(self, keep: Iterable[str]) -> dict[str, None]:
        """The places of all nodes that compute in FP32 if the nodes ``keep`` are kept, in the order of the graph.

        The policy of the conversion may keep more nodes than ``keep``. The values of the result are always ``None``.
        """
        return dict.fromkeys(_in_fp32(self.converted(keep)))

    def measure(self, keep: Iterable[str]) -> float:
        """The largest error of an output with the nodes ``keep`` in FP32; runs a trial if the error is not known.

        It is the number by which ``SearchJudge`` decides: the error of a state counts four times. If the error of one
        feed is over 4 times the tolerance, later feeds are skipped; their error may be larger.
        """
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
        """Return the result of ``compute`` (plain JSON), and store it in the journal; a stored result is not computed.

        ``name`` and ``keep`` identify the result.
        """
        known = self._journal.get(name, keep)
        if known is None:
            known = compute()
            self._journal.put(name, keep, known)
        return known

    def say(self, share: float, text: str) -> None:
        """Report the progress of a measurement between trials: its ``text``, and the share that is done."""
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
        with converted.held():
            emulation = emulate(converted, self.setting.mode, self.setting.rounding)
            with emulation.held():
                error = self._worst(emulation, by_output=by_output)
            # Also check weight-only rounding, as the CPU verdict does. A file that does not run there is not evidence.
            if error <= self.tolerance:
                with contextlib.suppress(ModelRefused):
                    error = max(error, self._worst(converted))
        return error

    def _leave_out_drawn(self) -> None:
        """Ignore outputs that are random: those that differ in a second run. The proof does not judge them either."""
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
    """The option ``keep_nodes`` of a step as TOML, with the reason for each node as a comment."""
    if not keep:
        return "keep_nodes = []"
    rows = "".join(f"  {toml_string(name)},  {toml_comment(why)}\n" for name, why in keep.items())
    return f"keep_nodes = [\n{rows}]"
