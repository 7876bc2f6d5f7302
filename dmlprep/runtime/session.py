"""Open a session: on the CPU, in onnx's reference evaluator, or on any host."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, InputError
from dmlprep.process.child import Child
from dmlprep.record import DeviceInfo
from dmlprep.runtime.environment import install_line, python
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.types import DATA_FOLDER, SessionOptions


def python_worker(device: str, name: str) -> Child:
    """Start a worker on the installed ONNX Runtime.

    ``device`` is ``cpu``, ``dml``, or ``evaluator``: onnx's reference evaluator, which needs no ONNX Runtime. ``name``
    is for messages.

    Raises:
        CheckNotRun: DP805, no ONNX Runtime is installed.
        SessionFailure: the worker does not start.
    """
    if device != "evaluator" and find_spec("onnxruntime") is None:
        fix = install_line() if sys.platform == "win32" else f"{python()} -m pip install onnxruntime"
        raise CheckNotRun("no ONNX Runtime is installed", fix=fix, code="DP805")
    return Child.of_file(str(Path(__file__).with_name("worker.py")), name, [device])


def _cpu_device(facts: Mapping[str, str]) -> DeviceInfo:
    version = facts.get("onnxruntime", "?")
    return DeviceInfo("cpu", [f"ONNX Runtime {version}"], "cpu", onnxruntime=version)


def _needs(path: Path, options: SessionOptions) -> set[Path]:
    """Return the real paths of a model and its data files. A data file outside the data folder is omitted."""
    from google.protobuf.message import DecodeError

    from dmlprep.graph.model.wire import data_locations

    path = path.resolve()
    folder = Path(options.config.get(DATA_FOLDER, path.parent)).resolve()
    with contextlib.suppress(OSError, ValueError, DecodeError, InputError):  # the worker reports the error
        files = ((folder / location).resolve() for location in data_locations(path))
        return {path, *(file for file in files if file.is_relative_to(folder) and file.is_file())}
    return {path}


def _confined_host(device: str, name: str, describe: Callable[[Mapping[str, str]], DeviceInfo]) -> SessionHost:
    needs = _needs if sys.platform.startswith("linux") else None
    return SessionHost(lambda: python_worker(device, name), describe, needs=needs)


def cpu_host() -> SessionHost:
    """Return a host (one worker for many sessions) on the CPU provider of the installed ONNX Runtime.

    On Linux its worker confines itself before it opens a model (``process/confinement.py``).
    """
    return _confined_host("cpu", "the CPU worker", _cpu_device)


def open_cpu(path: Path, options: SessionOptions | None = None, host: SessionHost | None = None) -> Session:
    """Load a model on the CPU in the worker of ``host``, or in a new worker that ends with the session.

    Raises:
        CheckNotRun: DP805, no ONNX Runtime is installed.
        SessionFailure: the model cannot be loaded, or the worker crashed.
    """
    return open_on(host, cpu_host, path, options)


def open_evaluator(path: Path, options: SessionOptions | None = None) -> Session:
    """Load a model in onnx's reference evaluator, in a child process.

    It is slow, for models that ONNX Runtime cannot load.

    Raises:
        SessionFailure: the model cannot be loaded, or the worker crashed.
    """

    def device(facts: Mapping[str, str]) -> DeviceInfo:
        return DeviceInfo("onnx reference evaluator", [f"onnx {facts.get('onnx', '?')}"], "evaluator")

    return open_on(None, lambda: _confined_host("evaluator", "the evaluator", device), path, options)


def open_on(
    host: SessionHost | None, make: Callable[[], SessionHost], path: Path, options: SessionOptions | None
) -> Session:
    """Open a session on ``host``, or on a new host that ends with the session."""
    if host is not None:
        return host.open(path, options)
    own = make()
    try:
        return own.open(path, options).owned_by(own)
    except BaseException:
        own.close()
        raise
