"""Handle the requests of a worker: open a model in ONNX Runtime, receive feeds, run, and answer as in ``wire.py``.

All workers use ``serve`` and ``answers``, also those without sessions.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dmlprep.portable.hresult import error_text
from dmlprep.portable.ortoptions import adapter_number, choose_device, providers, session_settings
from dmlprep.portable.process import no_crash_dialog, peak_memory
from dmlprep.process.confinement import confine
from dmlprep.process.wire import decode, encode, numpy_dtype, read_tensor, write_tensor
from dmlprep.runtime.stepping import Held
from dmlprep.runtime.types import DATA_FOLDER
from dmlprep.runtime.wire import RESULTS, dims_to_fields

_ELEMENT = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}
# onnx.TensorProto.DataType of the types that numpy has no name for.
_EXOTIC = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20}


_REQUESTS = ("hello", "load", "run", "hold", "step", "bind", "time", "memory", "placement", "timings", "close")
"""The methods of a worker that answer a request of the same name."""


def element_name(kind: str) -> str:
    """Return numpy's name of an element type: ``float32`` for ``tensor(float)``.

    Types that are not tensors stay unchanged.
    """
    name = kind[len("tensor(") : -1] if kind.startswith("tensor(") else kind
    return _ELEMENT.get(name, name)


class Refused(Exception):
    """A request cannot be fulfilled, and the worker continues. ``kind``: ``load``, ``run`` or ``protocol``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Bound:
    """Feeds of a session by input, and names of the requested outputs, ready to run.

    Attributes:
        call: a function that runs once; inputs and outputs are in the host's memory.
        values: whether ``feeds`` are ONNX Runtime's own tensors.
        on_device: a function that runs once; inputs and outputs are in the device's memory. ``None`` until it is first
            used.
    """

    names: list[str]
    feeds: dict[str, object]
    call: Callable[[], Any]
    values: bool = False
    on_device: Callable[[], Any] | None = None


class Worker:
    """The sessions of a worker process, by number.

    Each request of the protocol is a method, which raises ``Refused`` if ONNX Runtime refuses.
    """

    def __init__(self, device: str, exchange: Path, out: BinaryIO, ort: Any = None) -> None:
        if ort is None:
            import onnxruntime

            ort = onnxruntime
        self.ort = ort
        self.device = device
        self.exchange = exchange
        self.results = exchange / RESULTS
        self.results.mkdir(exist_ok=True)
        self.out = out
        self.sessions: dict[str, Any] = {}
        self.options: dict[str, str] = {}
        self.feeds: dict[str, object] = {}
        self.sequences: dict[str, list[object]] = {}
        self.wanted: list[str] = []
        self.bound: dict[str, Bound] = {}
        self.carried: list[tuple[str, ...]] = []
        self.held: dict[str, Held] = {}
        self.fault: Exception | None = None  # of an earlier line of the request
        self.adapter: int | None = None
        self.most = (0, 0)  # peaks at the queries: the adapter's own memory, the system memory that it reads
        self.files = 0

    def say(self, *fields: str) -> None:
        """Write one line of an answer."""
        self.out.write(encode(fields))

    def hello(self) -> None:
        """Report the versions, the providers and the device."""
        self.say("device", "onnxruntime", self.ort.__version__)
        self.say("device", "providers", ",".join(self.ort.get_available_providers()))
        if self.device == "dml":
            from dmlprep.runtime.windows import provider_facts

            for key, value in provider_facts().items():
                self.say("device", key, value)

    def confine(self, *paths: str) -> None:
        """Restrict this process to reading these paths and the exchange folder, and to writing results."""
        os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.results)))
        confine(read=[*paths, self.exchange], write=[self.results])

    def load(self, number: str, model: str) -> None:
        """Open a session, and report its inputs and outputs."""
        options, self.options = self.options, {}
        settings = self.ort.SessionOptions()
        prefix = self.results / f"profile{number}"
        try:
            source = self.source(Path(model), options)
            session_settings(settings, options, self.device, str(prefix), self.ort.GraphOptimizationLevel)
            chosen = {"providers": providers(options, self.device)}
            if options.get("open_by", "provider") != "provider":
                choose_device(self.ort, settings, options)
                chosen = {}
            began = time.perf_counter()
            # Without this, onnxruntime would retry on the CPU and replace the provider's error with its own.
            session = self.ort.InferenceSession(source, settings, **chosen, enable_fallback=False)
            took = time.perf_counter() - began
        except Exception as error:
            raise Refused("load", error_text(error)) from error
        if self.device == "dml" and "DmlExecutionProvider" not in session.get_providers():
            raise Refused("load", "ONNX Runtime did not add the DirectML provider to the session")
        self.sessions[number] = session
        self.say("took", repr(took))
        if self.device == "dml":
            self.adapter = adapter_number(options)
            from dmlprep.runtime.windows import session_facts

            for key, fact in session_facts(options).items():
                self.say("device", key, fact)
        for word, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
            for value in values:
                shape = value.shape if value.type.startswith("tensor(") else []
                dims = dims_to_fields([d or None if isinstance(d, str) else d for d in shape])
                self.say(word, value.name, element_name(value.type), *dims)

    def source(self, model: Path, options: dict[str, str]) -> str | bytes:
        """Return the model's path, or its content as bytes.

        The content is returned if ``options`` set the folder of the data files, or if ONNX Runtime cannot open the
        path. ``options`` then get that folder, if it is not set. On Windows, 1.24.4 refuses a file name with
        characters outside the code page ("No Unicode translation"). A folder's name may have them.
        """
        key = f"config:{DATA_FOLDER}"
        if key not in options and (sys.platform != "win32" or model.name.isascii()):
            return str(model)
        options.setdefault(key, str(model.parent))
        return model.read_bytes()

    def feed(self, name: str, kind: str, file: str, *dims: str) -> None:
        """Read an input from its file."""
        exotic = kind in _EXOTIC
        bits = f"uint{numpy_dtype(kind).itemsize * 8}" if exotic else kind
        value: object = read_tensor(self.exchange / file, bits, tuple(map(int, dims)), mapped=True)
        if exotic:
            value = self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, _EXOTIC[kind])
        self.feed_value(name, value)

    def feed_value(self, name: str, value: object) -> None:
        """Set the value of an input, or add it to a sequence."""
        if name in self.sequences:
            self.sequences[name].append(value)
        else:
            self.feeds[name] = value

    def fed(self) -> tuple[dict[str, object], list[str]]:
        """Return the collected feeds and the names of the requested outputs, and forget them."""
        feeds, names = {**self.feeds, **self.sequences}, self.wanted
        self.feeds, self.sequences, self.wanted = {}, {}, []
        return feeds, names

    def take(self, number: str) -> Bound:
        """Return the collected feeds and requested outputs, ready to run in a session, and forget them."""
        feeds, names = self.fed()
        session = self.sessions[number]
        names = names or [value.name for value in session.get_outputs()]
        kinds = {value.name: value.type for value in session.get_outputs()}
        plain = all(isinstance(value, np.ndarray) and value.dtype != object for value in feeds.values())
        bits = any(isinstance(value, self.ort.OrtValue) for value in feeds.values())
        tensors = all(kinds.get(name, "").startswith("tensor(") for name in names)
        strings = any(kinds.get(name) == "tensor(string)" for name in names)
        if not (tensors and not strings and (plain or bits)):
            return Bound(names, feeds, lambda: session.run(names, feeds))
        make = self.ort.OrtValue.ortvalue_from_numpy
        try:
            values = {n: v if isinstance(v, self.ort.OrtValue) else make(v) for n, v in feeds.items()}
        except Exception as error:
            raise Refused("run", error_text(error)) from error
        return Bound(names, values, lambda: session.run_with_ort_values(names, values), values=True)

    def run(self, number: str) -> None:
        """Run a session with the present inputs."""
        self.say_run(self.take(number))

    def say_run(self, request: Bound) -> None:
        """Run a request, and report its results."""
        try:
            results = request.call()
        except Exception as error:
            raise Refused("run", error_text(error)) from error
        for name, result in zip(request.names, results, strict=True):
            self.answer(name, result)

    def bind(self, number: str) -> None:
        """Keep the present inputs, so that later runs reuse them."""
        self.bound[number] = self.take(number)

    def hold(self, number: str, how: str) -> None:
        """Allocate the values that a session carries from step to step: those of the earlier requests ``keep``.

        ``how``: ``shared`` if input and output of a value share one memory, ``grown`` if an output is the next input.
        """
        rows, self.carried = self.carried, []
        self.held.pop(number, None)  # before the new values are allocated
        adapter = (self.adapter or 0) if self.device == "dml" else None
        try:
            self.held[number] = Held(self.ort, self.sessions[number], adapter, rows, shared=how == "shared")
        except Exception as error:
            raise Refused("run", error_text(error)) from error

    def step(self, number: str) -> None:
        """Run one step of a session with its carried values."""
        request, held = self.take(number), self.held.get(number)
        if held is None or not request.values:
            raise Refused("run", "nothing is held" if held is None else "a step accepts only tensors")
        self.say_run(Bound(request.names, request.feeds, partial(held.step, request.feeds, request.names)))

    def time(self, number: str, how: str, count: str, seconds: str) -> None:
        """Run with the bound feeds at most ``count`` times, and report the seconds of each run.

        After the first, no run begins later than ``seconds`` after the start. The outputs of a run are freed before the
        next one. ``how``: ``host`` copies inputs and outputs in each run, ``device`` keeps them on the device.
        """
        bound = self.bound[number]
        took = []
        clock = time.perf_counter
        try:
            call = bound.call if how == "host" else self.on_device(self.sessions[number], bound)
            last = clock() + float(seconds)
            for _ in range(int(count)):
                began = clock()
                result = call()
                ended = clock()
                del result
                took.append(ended - began)
                if ended >= last:
                    break
        except Exception as error:
            raise Refused("run", error_text(error)) from error
        for one in took:
            self.say("took", repr(one))

    def on_device(self, session: Any, bound: Bound) -> Callable[[], Any]:
        """Return a function that runs once with inputs and outputs on the device.

        The function returns when the device has finished.

        Raises:
            ValueError: the device is the CPU, or a feed is not a tensor.
        """
        if bound.on_device is None:
            if self.device != "dml" or not bound.values:
                raise ValueError("only tensors can be bound to a device, and the device cannot be the CPU")
            binding = session.io_binding()
            for name, value in bound.feeds.items():
                binding.bind_ortvalue_input(name, value)  # copied to the device of the session
            for name in bound.names:
                binding.bind_output(name, "dml", self.adapter or 0)

            def call() -> None:
                session.run_with_iobinding(binding)
                binding.synchronize_outputs()

            bound.on_device = call
        return bound.on_device

    def memory(self) -> None:
        """Report the peak memory of the process and of the adapter."""
        readings: dict[str, int | None] = dict(peak_memory())
        if self.device == "dml" and self.adapter is not None:
            from dmlprep.portable.dxgi import memory_in_use

            if (held := memory_in_use(self.adapter)) is not None:
                self.most = (max(self.most[0], held[0]), max(self.most[1], held[1]))
                readings |= {"device": sum(held), "device_peak": self.most[0], "shared_peak": self.most[1]}
        for key, count in readings.items():
            if count is not None:
                self.say("memory", key, str(count))

    def close(self, number: str) -> None:
        """Close a session."""
        for kind in (self.bound, self.held, self.sessions):
            kind.pop(number, None)

    def answer(self, name: str, result: object) -> None:
        """Send one output of a run: a tensor, a sequence of tensors, or an empty optional."""
        if result is None:
            self.say("none", name)
        elif isinstance(result, list):
            self.say("sequence", name, str(len(result)))
            for item in result:
                self.value(name, item)
        else:
            self.value(name, result)

    def value(self, name: str, result: object) -> None:
        """Write a result to a file, and report its type and shape."""
        self.files += 1
        file = f"out{self.files}"
        path = self.results / file
        if isinstance(result, self.ort.OrtValue):
            kind = element_name(result.data_type())
            shape = list(result.shape())
            size = numpy_dtype(kind).itemsize * int(np.prod(shape, dtype=np.int64))
            if result.device_name() != "cpu":
                path.write_bytes(np.ascontiguousarray(result.numpy()).tobytes())
            else:
                # Write directly from ONNX Runtime's memory: numpy lacks names for some types, and a copy takes time.
                path.write_bytes((ctypes.c_uint8 * size).from_address(result.data_ptr()) if size else b"")
        else:
            array = np.asarray(result)
            kind = "string" if array.dtype.kind in "OUST" else array.dtype.name
            shape = list(array.shape)
            write_tensor(path, array)
        self.say("value", name, kind, file, *(str(size) for size in shape))

    def placement(self, number: str) -> None:
        """Report the provider of each node."""
        session = self.sessions[number]
        if not hasattr(session, "get_provider_graph_assignment_info"):
            raise Refused("run", f"onnxruntime {self.ort.__version__} does not record placement; 1.24 does")
        for part in session.get_provider_graph_assignment_info():
            for node in part.get_nodes():
                self.say("node", part.ep_name, node.op_type, node.domain, node.name)

    def timings(self, number: str) -> None:
        """End the profile, and report the name of its file."""
        self.say("file", Path(self.sessions[number].end_profiling()).name)

    def handle(self, fields: list[str]) -> bool:
        """Process one line of a request; return whether it is the last one, which needs an answer.

        An error of an earlier line is raised at the last one, so that each request gets one answer.
        """
        word, *rest = fields
        quiet: dict[str, Callable[..., None]] = {
            "option": self.options.__setitem__,
            "confine": self.confine,
            "want": self.wanted.append,
            "keep": lambda *fields: self.carried.append(fields),
            "feedsequence": lambda name, _count, _kind: self.sequences.__setitem__(name, []),
            "feed": self.feed,
        }
        if word in quiet:
            try:
                quiet[word](*rest)
            except Exception as error:  # only the last line of a request answers
                self.fault = self.fault or error
            return False
        if (fault := self.fault) is not None:
            self.fed()
            self.fault, self.options, self.carried = None, {}, []
            raise fault
        if word not in _REQUESTS:
            raise Refused("protocol", f"unknown request {word}")
        getattr(self, word)(*rest)
        return True


@contextlib.contextmanager
def answers() -> Iterator[BinaryIO]:
    """Make this process a worker, and yield the pipe for its answers.

    Native libraries print to descriptor 1, so that descriptor is redirected to standard error.
    """
    no_crash_dialog()
    pipe = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(pipe, "wb", buffering=1 << 16) as out:
        yield out


def serve(requests: BinaryIO, out: BinaryIO, handle: Callable[[list[str]], bool]) -> None:
    """Answer requests until ``quit`` or the end of the pipe.

    ``handle`` processes one line, and returns whether it needs an answer.
    """
    for line in requests:
        fields = decode(line)
        if fields == ["quit"]:
            return
        answer = ["ok"]
        try:
            if not handle(fields):
                continue
        except Refused as refused:
            answer = ["fail", refused.kind, str(refused)]
        except MemoryError as error:
            answer = ["fail", "memory", f"MemoryError: {error}"]
        except Exception as error:
            answer = ["fail", "protocol", f"{type(error).__name__}: {error_text(error)}"]
        out.write(encode(answer))
        out.flush()
