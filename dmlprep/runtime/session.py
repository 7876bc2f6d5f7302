"""Open a session: on the CPU, or on DirectML where there is one."""

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
    """A worker on the installed ONNX Runtime; ``device`` is ``cpu`` or ``dml``, or ``evaluator``, which needs none.

    Raises:
        CheckNotRun: DP805, there is none.
    """
    if device != "evaluator" and find_spec("onnxruntime") is None:
        fix = install_line() if sys.platform == "win32" else f"{python()} -m pip install onnxruntime"
        raise CheckNotRun("no ONNX Runtime is installed", fix=fix, code="DP805")
    return Child.of_file(str(Path(__file__).with_name("worker.py")), name, [device])


def _cpu_device(facts: Mapping[str, str]) -> DeviceInfo:
    version = facts.get("onnxruntime", "?")
    return DeviceInfo("cpu", [f"ONNX Runtime {version}"], "cpu", onnxruntime=version)


def _needs(path: Path, options: SessionOptions) -> set[Path]:
    """The model and its data files, by their real paths. A data file that lies outside of its folder is left out."""
    from google.protobuf.message import DecodeError

    from dmlprep.graph.model.wire import data_locations

    path = path.resolve()
    folder = Path(options.config.get(DATA_FOLDER, path.parent)).resolve()
    with contextlib.suppress(OSError, ValueError, DecodeError, InputError):  # the worker says what is wrong with it
        files = ((folder / location).resolve() for location in data_locations(path))
        return {path, *(file for file in files if file.is_relative_to(folder) and file.is_file())}
    return {path}


def _confined_host(device: str, name: str, describe: Callable[[Mapping[str, str]], DeviceInfo]) -> SessionHost:
    needs = _needs if sys.platform.startswith("linux") else None
    return SessionHost(lambda: python_worker(device, name), describe, needs=needs)


def cpu_host() -> SessionHost:
    """A host for sessions on the CPU provider of the installed ONNX Runtime.

    On Linux its worker confines itself before it opens a model (``process/confinement.py``).
    """
    return _confined_host("cpu", "the CPU worker", _cpu_device)


def open_cpu(path: Path, options: SessionOptions | None = None, host: SessionHost | None = None) -> Session:
    """Load a model on the CPU, in a child process: that of ``host``, or one that ends with the session.

    Raises:
        SessionFailure: the model cannot be loaded, or the worker died of it.
    """
    return open_on(host, cpu_host, path, options)


def open_evaluator(path: Path, options: SessionOptions | None = None) -> Session:
    """Load a model in onnx's reference evaluator, in a child process: numpy, slow, for what ONNX Runtime cannot load.

    Raises:
        SessionFailure: the model cannot be loaded, or the worker died of it.
    """

    def device(facts: Mapping[str, str]) -> DeviceInfo:
        return DeviceInfo("onnx reference evaluator", [f"onnx {facts.get('onnx', '?')}"], "evaluator")

    return open_on(None, lambda: _confined_host("evaluator", "the evaluator", device), path, options)


def open_on(
    host: SessionHost | None, make: Callable[[], SessionHost], path: Path, options: SessionOptions | None
) -> Session:
    """Open on ``host``, or on a fresh one that ends with the session."""
    if host is not None:
        return host.open(path, options)
    own = make()
    try:
        return own.open(path, options).owned_by(own)
    except BaseException:
        own.close()
        raise
