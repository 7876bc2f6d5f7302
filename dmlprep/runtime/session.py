"""Open a session: on the CPU, or on DirectML where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from dmlprep.errors import CheckNotRun
from dmlprep.record import DeviceInfo
from dmlprep.runtime.child import Child
from dmlprep.runtime.environment import install_line, python
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.types import SessionOptions

__all__ = ["cpu_host", "open_cpu", "open_evaluator", "open_on", "python_worker"]


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
    return DeviceInfo("cpu", [f"ONNX Runtime {facts.get('onnxruntime', '?')}"])


def cpu_host() -> SessionHost:
    """A host for sessions on the CPU provider of the installed ONNX Runtime."""
    return SessionHost(lambda: python_worker("cpu", "the CPU worker"), _cpu_device)


def open_cpu(path: Path, options: SessionOptions | None = None, host: SessionHost | None = None) -> Session:
    """Load a model on the CPU, in a child process.

    Args:
        host: the host to serve it from; without one the session has a worker of its own, which ends with it.

    Raises:
        SessionFailure: the model cannot be loaded, or the worker died of it.
    """
    return open_on(host, cpu_host, path, options)


def open_evaluator(path: Path, options: SessionOptions | None = None) -> Session:
    """Load a model in onnx's reference evaluator, in a child process: numpy, slow, for what ONNX Runtime cannot load.

    Raises:
        SessionFailure: the model cannot be loaded, or the worker died of it.
    """

    def host() -> SessionHost:
        return SessionHost(
            lambda: python_worker("evaluator", "the evaluator"),
            lambda facts: DeviceInfo("onnx reference evaluator", [f"onnx {facts.get('onnx', '?')}"]),
        )

    return open_on(None, host, path, options)


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
