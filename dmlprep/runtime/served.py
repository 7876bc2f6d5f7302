"""Sessions that a worker process serves, for any device."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from dmlprep.core.errors import CheckNotRun, InputError, UsageError
from dmlprep.core.files import parse_json
from dmlprep.core.files.run_folder import run_folder
from dmlprep.graph.model.budget import in_force
from dmlprep.process.allowance import PROCESSORS, Allowance, allowance
from dmlprep.process.child import START_LIMIT, Child, interrupted
from dmlprep.process.failure import FULL, SessionFailure, disk_full, failure
from dmlprep.process.results import read_result
from dmlprep.process.wire import read_tensor, write_tensor
from dmlprep.record import DeviceInfo
from dmlprep.runtime.types import (
    CarriedValue,
    MemoryUse,
    NodePlacement,
    NodeTiming,
    RunValue,
    SessionOptions,
    ValueInfo,
)
from dmlprep.runtime.wire import FEEDS, RESULTS, dims_from_fields, dims_to_fields

_CLOSE_SECONDS = 60.0
"""Seconds that a worker may take to release a model."""

_NO_ROOM = 1 << 20
"""If an output is truncated and fewer bytes than this are free on the disk, the disk was full."""

_PROFILE = 128 << 20
"""Limit for the size of a profile, in bytes; a run of 10,000 nodes writes 4 MB."""

_FED = itertools.count(1)
"""Numbers for the files of feeds that stay in a worker, unique over all sessions."""

Stage = Callable[[Child, Path, SessionOptions], tuple[str, SessionOptions, Callable[[], None]]]


def _in_place(_child: Child, path: Path, options: SessionOptions) -> tuple[str, SessionOptions, Callable[[], None]]:
    return str(path.resolve()), options, lambda: None


@contextlib.contextmanager
def _in_its_words(child: Child, where: str) -> Iterator[None]:
    """End the worker if an answer that is parsed in this ``with`` block does not follow ``wire.py``.

    Raises:
        SessionFailure: the answer does not follow ``wire.py``.
    """
    try:
        yield
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, StopIteration, RecursionError) as error:
        child.kill()
        raise failure("protocol", f"{child.name} returned an invalid answer: {error!r}", where) from error


class SessionHost:
    """Opens sessions that one worker process serves, one after another or several together.

    A worker takes 0.4 s (CPU) to several seconds (DirectML on Linux) to start. So callers with many models keep one
    host. A worker that died is replaced at the next ``open``. The sessions that it served stay dead, and their methods
    fail.

    Args:
        start: starts a new worker.
        device: returns the device's description from the worker's facts.
        stage: puts a model where the worker can read it. It returns the name and the options to send, and a function to
            call after the load.
        needs: returns the files of a model, for a worker that confines itself to them before it opens the first model.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        device: Callable[[Mapping[str, str]], DeviceInfo],
        stage: Stage | None = None,
        *,
        needs: Callable[[Path, SessionOptions], set[Path]] | None = None,
    ) -> None:
        self._start, self._describe, self._needs = start, device, needs
        self._stage = stage or _in_place
        self._readable: set[Path] = set()
        self._former: list[Child] = []
        self._child: Child | None = None
        self.begun: Child | None = None
        self._facts: dict[str, str] = {}
        self._ids = itertools.count(1)

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts that the worker reported (versions, driver, adapter), by name. Starts a worker if there is none."""
        self.worker()
        return self._facts

    def worker(self) -> Child:
        """Return the living worker; start one if there is none.

        Raises:
            SessionFailure: it does not start.
            CheckNotRun: the runtime of the device is not installed, or is being replaced.
        """
        if self._child is None or not self._child.alive:
            if self._child is not None:
                self._child.kill()
            child, self.begun = self.begun, None
            if child is None or not child.alive:
                child = self._start()
            try:
                answer = child.ask([["hello"]], limit=START_LIMIT, where=child.name)
            except BaseException:
                child.kill()
                raise
            self._facts = _facts(answer)
            self._child = child
        return self._child

    def begin(self) -> None:
        """Start the worker without waiting: it imports its modules while the caller does other work.

        If it does not start, the next ``open`` reports the failure.
        """
        if self._child is None and self.begun is None:
            with contextlib.suppress(SessionFailure, CheckNotRun):
                self.begun = self._start()

    def open(self, path: Path, options: SessionOptions | None = None) -> Session:
        """Load a model in the worker, and return its session.

        Raises:
            SessionFailure: it cannot be loaded; ``where`` is the model.
            CheckNotRun: no worker can start, or the adapter of ``options`` failed its self-test.
            OutputError: the disk with the temporary files is full.
            UsageError: the user's memory limit is not valid.
        """
        options = options or SessionOptions()
        child, confining = self._serving(path, options)
        number = next(self._ids)
        name, sent, loaded = self._stage(child, path, options)
        try:
            answer = child.ask(
                [*confining, *option_lines(sent), ["load", str(number), name]],
                limit=options.time_limit,
                memory=options.memory_limit,
                allowance=_allowed(options),
                where=str(path),
            )
        finally:
            loaded()
        with _in_its_words(child, str(path)):
            values = {
                kind: tuple(ValueInfo(r[1], r[2], dims_from_fields(r[3:])) for r in answer if r[0] == kind)
                for kind in ("input", "output")
            }
            took = [_seconds(row) for row in answer if row[0] == "took"]
        # Only a session knows its adapter and driver.
        device = self._describe({**self._facts, **_facts(answer)})
        session = Session(child, number, path, options, device, values["input"], values["output"])
        session.load_seconds = took[0] if took else None
        return session

    def may_read(self, paths: Iterable[Path]) -> None:
        """Let a worker that confines itself also read these files of models that are opened later.

        This is optional: a worker that may not read a model is replaced by a new one.
        """
        self._readable.update(path.resolve() for path in paths)

    def _serving(self, path: Path, options: SessionOptions) -> tuple[Child, list[list[str]]]:
        """Return a worker that may read the model, and the request lines that confine it.

        There are no lines if the worker is already confined, or never confines itself.
        """
        child = self.worker()
        if self._needs is None:
            return child, []
        needed = self._needs(path, options)
        while child.confined and not all(_may_read(child.readable, file) for file in needed):
            # The kernel never returns rights that were dropped. A worker that still serves a model stays alive.
            self._former.append(child)
            for one in self._former:
                if not one.sessions:
                    one.kill()
            self._former = [one for one in self._former if one.alive]
            self._child = None
            child = self.worker()
        if child.confined:
            return child, []
        self._readable |= needed
        child.readable |= self._readable | {run_folder().resolve()}
        child.confined = True
        return child, [["confine", *map(str, sorted(child.readable))]]

    def memory(self) -> MemoryUse:
        """Return the memory that the worker has used so far, in bytes.

        Raises:
            SessionFailure: the worker does not answer.
        """
        child = self.worker()
        answer = child.ask([["memory"]], limit=START_LIMIT, where=child.name)
        with _in_its_words(child, child.name):
            held = {row[1]: int(row[2]) for row in answer if row[0] == "memory"}
            if min(held.values(), default=0) < 0:
                raise ValueError("the worker reported a negative amount of memory")
        return MemoryUse(**{name: held.get(name) for name in MemoryUse.__dataclass_fields__})

    def close(self) -> None:
        """End the worker and all sessions of this host."""
        if self.begun is not None:
            self.begun.kill()
        for child in (*self._former, self._child):
            if child is not None:
                child.close()
        self.begun = self._child = None
        self._former = []

    def __enter__(self) -> SessionHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _may_read(readable: Set[Path], file: Path) -> bool:
    """Return whether a file, or a folder above it, is in the set of readable paths."""
    return file in readable or not readable.isdisjoint(file.parents)


def _seconds(row: Sequence[str]) -> float:
    """Return the seconds of a ``took`` row of an answer.

    Raises:
        ValueError: they are not a valid time.
    """
    seconds = float(row[1])
    if not 0 <= seconds < math.inf:  # NaN is not
        raise ValueError(f"{row[1]} seconds")
    return seconds


def _allowed(options: SessionOptions, fed: int = 0) -> Allowance | None:
    """Return the limits of a request, from the size of the model and of its feeds (``fed`` bytes).

    Return ``None`` if the size of the model is unknown.
    """
    if options.model_bytes is None:
        return None
    limits = in_force()
    return allowance(options.model_bytes + fed, limits.run_bytes, limits.run_seconds)


def _facts(answer: list[list[str]]) -> dict[str, str]:
    return {row[1]: row[2] for row in answer if row[0] == "device" and len(row) == 3}


def option_lines(options: SessionOptions) -> list[list[str]]:
    """Return the worker's ``option`` lines for the options of a session."""
    names = ("optimization", "threads", "log_level")
    sent: dict[str, object] = {name: getattr(options, name) for name in names}
    flags = ("profile", "record_placement", "unfused", "disable_metacommands", "cpu_fallback")
    sent |= {name: int(getattr(options, name)) for name in flags}
    if options.device_id is not None:
        sent["device_id"] = options.device_id
    if options.open_by != "provider":
        sent["open_by"] = options.open_by
    if options.performance_preference != "default":
        sent["performance_preference"] = options.performance_preference
    sent |= {f"dim:{name}": size for name, size in options.free_dimensions.items()}
    sent |= {f"denotation:{name}": size for name, size in options.denotations.items()}
    sent |= {f"config:{key}": value for key, value in options.config.items()}
    return [["option", key, str(value)] for key, value in sent.items()]


class Session:
    """A model that is loaded in a worker. Every method may raise ``SessionFailure``.

    A method with feeds or outputs raises ``OutputError`` if the disk with the temporary files is full, and
    ``InputError`` for text that ONNX Runtime cannot read.

    ``load_seconds``: the seconds that the worker took to create the session; ``None`` if unknown.
    """

    def __init__(
        self,
        child: Child,
        number: int,
        path: Path,
        options: SessionOptions,
        device: DeviceInfo,
        inputs: tuple[ValueInfo, ...],
        outputs: tuple[ValueInfo, ...],
    ) -> None:
        self.child, self._number, self._options = child, number, options
        self._fed_bytes = 0
        self.path, self.device, self.inputs, self.outputs = path, device, inputs, outputs
        self._owner: SessionHost | None = None
        self._timings: tuple[NodeTiming, ...] | None = None
        self._closed = False
        self.load_seconds: float | None = None
        child.sessions += 1

    def owned_by(self, host: SessionHost) -> Session:
        """Make this session close ``host`` when it closes, and return this session."""
        self._owner = host
        return self

    @property
    def alive(self) -> bool:
        """True if the worker is alive, so that the session can answer."""
        return self.child.alive

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Run the model; return the outputs named in ``outputs``, or all, as arrays by name.

        An output that is not a tensor is refused with a ``SessionFailure``: see ``run_any``.
        """
        result: dict[str, np.ndarray] = {}
        for name, value in self.run_any(feeds, outputs).items():
            if value is None:
                raise failure("run", f"output {name} is empty", str(self.path))
            if not isinstance(value, np.ndarray):
                raise failure("run", f"output {name} is a sequence, not a tensor", str(self.path))
            result[name] = value
        return result

    def run_any(
        self, feeds: Mapping[str, np.ndarray | list[np.ndarray]], outputs: Sequence[str] | None = None
    ) -> dict[str, RunValue]:
        """Run the model like ``run``, but accept and return also sequences (lists) and empty optionals (``None``)."""
        return self._outputs(self._fed(feeds, outputs, "run"), outputs)

    def hold(self, values: Sequence[CarriedValue], *, shared: bool) -> None:
        """Make the session keep values between the runs of ``step``; they replace those of an earlier call.

        ``shared``: input and output of each value share one memory. Its initial content is zeros, or undefined on
        DirectML on Linux. Otherwise an output of one step is the input of the next one.
        """
        lines = [["keep", one.input, one.output, one.dtype, *dims_to_fields(one.shape)] for one in values]
        self._ask([*lines, ["hold", str(self._number), "shared" if shared else "grown"]])

    def step(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Run once with the values that ``hold`` keeps, and with ``feeds``; return the outputs named in ``outputs``."""
        result: dict[str, np.ndarray] = {}
        for name, value in self._outputs(self._fed(feeds, outputs, "step"), outputs).items():
            if not isinstance(value, np.ndarray):
                raise failure("run", f"output {name} is not a tensor", str(self.path))
            result[name] = value
        return result

    def _outputs(self, answer: list[list[str]], outputs: Sequence[str] | None) -> dict[str, RunValue]:
        """Return the outputs in the answer of a run, and check that all wanted ones are present."""
        with _in_its_words(self.child, str(self.path)):
            values = self._values(answer)
            wanted = outputs if outputs is not None else [value.name for value in self.outputs]
            if missing := [name for name in wanted if name not in values]:
                raise ValueError(f"output {missing[0]} is missing")
        return values

    def bind(self, feeds: Mapping[str, np.ndarray | list[np.ndarray]], outputs: Sequence[str] | None = None) -> None:
        """Send feeds to the worker for later calls of ``time``; ``outputs`` as in ``run``."""
        self._fed(feeds, outputs, "bind")

    def time(self, count: int, seconds: float, *, on_device: bool = False) -> tuple[float, ...]:
        """Run with the feeds of ``bind``, up to ``count`` times; return the seconds of each run.

        The worker measures them. After the first, no run starts later than ``seconds`` after the beginning.
        ``on_device``: inputs are on the device already, and outputs stay there. Otherwise the time of a run includes
        both copies.
        """
        how = "device" if on_device else "host"
        answer = self._ask([["time", str(self._number), how, str(count), repr(float(seconds))]], seconds)
        with _in_its_words(self.child, str(self.path)):
            took = tuple(_seconds(row) for row in answer if row[0] == "took")
            if not 1 <= len(took) <= count:
                raise ValueError(f"{len(took)} times of {count} runs")
        return took

    def _fed(
        self, feeds: Mapping[str, np.ndarray | list[np.ndarray]], outputs: Sequence[str] | None, word: str
    ) -> list[list[str]]:
        """Send these feeds and output names with the request ``word``; return the answer."""
        if not self.child.alive:
            raise failure("crash", f"{self.child.name} has ended", str(self.path))
        declared = {value.name: value for value in self.inputs}
        lines: list[list[str]] = []
        files: list[Path] = []
        folder = self.child.exchange / FEEDS
        self._fed_bytes = 0
        # Windows does not let a file be replaced while a worker has it mapped, so each needs a new name.
        prefix = "feed" if word == "run" else f"{word}{next(_FED)}-"
        try:
            folder.mkdir(exist_ok=True)
            for name, value in feeds.items():
                dtype = declared[name].dtype if name in declared else ""
                if isinstance(value, list):
                    lines.append(["feedsequence", name, str(len(value)), dtype])
                for index, array in enumerate(value if isinstance(value, list) else [value]):
                    file = folder / f"{prefix}{len(files)}-{index}"
                    files.append(file)
                    self._fed_bytes += np.asarray(array).nbytes
                    element = dtype.removeprefix("seq(tensor(").rstrip(")") if isinstance(value, list) else dtype
                    lines.append(_feed_line(name, element, array, file))
            lines += [["want", name] for name in (outputs if outputs is not None else ())]
            return self._ask([*lines, [word, str(self._number)]])
        except OSError as error:
            if error.errno in FULL:
                raise disk_full(folder, error) from error
            raise failure("protocol", f"the exchange folder cannot be written: {error}", str(self.path)) from error
        finally:
            for file in files:
                _discard(file)

    def _values(self, answer: list[list[str]]) -> dict[str, RunValue]:
        result: dict[str, RunValue] = {}
        rows = iter(answer)
        for row in rows:
            if row[0] == "value":
                result[row[1]] = self._tensor(row)
            elif row[0] == "sequence":
                result[row[1]] = [self._tensor(item) for item in _next(rows, int(row[2]))]
            elif row[0] == "none":
                result[row[1]] = None
        return result

    def _tensor(self, row: list[str]) -> np.ndarray:
        path = self.child.exchange / RESULTS / Path(row[3]).name
        shape = tuple(int(size) for size in row[4:])
        try:
            # This is a copy, because the worker could truncate a mapped file and crash this process. The output was in
            # the worker's memory, so no more than its memory limit is read.
            return read_tensor(path, row[2], shape, limit=self._options.memory_limit or None)
        except (OSError, ValueError, TypeError, MemoryError) as error:
            if shutil.disk_usage(self.child.exchange).free < _NO_ROOM:
                raise disk_full(self.child.exchange, OSError(FULL[0], os.strerror(FULL[0]))) from error
            raise failure("protocol", f"output {row[1]}: {error}", str(self.path)) from error
        finally:
            _discard(path)

    def placement(self) -> tuple[NodePlacement, ...]:
        """Return the provider of each node, before fusion.

        Raises:
            UsageError: the session was opened without ``record_placement``.
        """
        if not self._options.record_placement:
            raise UsageError("the session was opened without record_placement")
        answer = self._ask([["placement", str(self._number)]])
        with _in_its_words(self.child, str(self.path)):
            return tuple(NodePlacement(r[4], r[2], r[3], r[1]) for r in answer if r[0] == "node")

    def timings(self) -> tuple[NodeTiming, ...]:
        """Return the time of each kernel over all runs so far.

        The first call ends the profiling, so later calls return the same times.

        Raises:
            UsageError: the session was opened without ``profile``.
        """
        if not self._options.profile:
            raise UsageError("the session was opened without profile")
        if self._timings is None:
            answer = self._ask([["timings", str(self._number)]])
            with _in_its_words(self.child, str(self.path)):
                path = self.child.exchange / RESULTS / Path(answer[0][1]).name
                try:
                    self._timings = parse_profile(read_result(path, _PROFILE))
                except OSError as error:
                    raise failure("protocol", f"the profile cannot be read: {error}", str(self.path)) from error
        return self._timings

    def _ask(self, lines: list[list[str]], seconds: float = 0.0) -> list[list[str]]:
        """Send a request to the worker, with ``seconds`` of additional time; return the answer."""
        allowed = _allowed(self._options, self._fed_bytes)
        return self.child.ask(
            lines,
            limit=self._options.time_limit + seconds,
            memory=self._options.memory_limit,
            allowance=allowed and replace(allowed, seconds=allowed.seconds + PROCESSORS * seconds),
            where=str(self.path),
        )

    def close(self) -> None:
        """Release the model. A worker that was started only for this session ends."""
        if self._closed:
            return
        self._closed = True
        self.child.sessions -= 1
        if self._owner is not None:
            self._owner.close()
        elif self.child.alive:
            if interrupted():
                self.child.kill()  # the next open starts another worker
                return
            # If the worker fails now, all its answers have already arrived.
            with contextlib.suppress(SessionFailure):
                self.child.ask([["close", str(self._number)]], limit=_CLOSE_SECONDS, memory=0, where=str(self.path))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _next(rows: Iterator[list[str]], count: int) -> list[list[str]]:
    """Return the next ``count`` rows, the items of a sequence.

    Raises:
        ValueError: there are fewer rows.
    """
    items = list(itertools.islice(rows, count))
    if len(items) < count:
        raise ValueError(f"a sequence of {count} tensors ends early")
    return items


def _discard(file: Path) -> None:
    """Remove a file of the exchange folder; a file that is still open is removed with the folder."""
    with contextlib.suppress(PermissionError, IsADirectoryError):
        file.unlink(missing_ok=True)


def _feed_line(name: str, dtype: str, array: np.ndarray, file: Path) -> list[str]:
    array = np.asarray(array)
    try:
        write_tensor(file, array)
    except ValueError as error:
        fix = "pass text of valid Unicode without NUL characters"
        raise InputError(
            f"its feed cannot be passed to a session: {error}", where=f"input {name!r}", fix=fix
        ) from error
    file.chmod(0o644)  # the worker may be another user; the folder is closed to others
    kind = "string" if array.dtype.kind in "OUST" else array.dtype.name
    # A bfloat16 or float8 feed may contain the raw bits; then the model's declaration gives their type.
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2") and kind in ("uint16", "uint8"):
        kind = dtype
    return ["feed", name, kind, f"{FEEDS}/{file.name}", *dims_to_fields(array.shape)]


def parse_profile(raw: bytes) -> tuple[NodeTiming, ...]:
    """Return the total time of each kernel in a profile of ONNX Runtime, in the order of their first calls.

    Raises:
        ValueError: the bytes are not a profile.
    """
    text = raw.decode("utf-8", "replace").rstrip().rstrip(",")
    events = parse_json(text if text.endswith("]") else text + "]", list[dict[str, Any]], lenient=True)
    total: dict[tuple[str, str, str], tuple[float, int]] = {}
    for event in events:
        name = event.get("name", "")
        args = event.get("args", {})
        if event.get("cat") != "Node" or not name.endswith("_kernel_time") or not isinstance(args, dict):
            continue
        key = (name.removesuffix("_kernel_time"), str(args.get("op_name", "")), str(args.get("provider", "")))
        seconds, calls = total.get(key, (0.0, 0))
        total[key] = (seconds + float(event.get("dur", 0)) * 1e-6, calls + 1)
    return tuple(NodeTiming(*key, seconds, calls) for key, (seconds, calls) in total.items())
