"""Sessions of ONNX Runtime and DirectML, the DirectML runtime on Linux, and third-party model tools.

All of it runs in child processes. ``open_cpu`` and ``open_dml`` load a model. ``cpu_host`` and ``dml_host`` keep one
worker for many models. ``dml_status`` runs a self-test and shows whether DirectML is available.
"""

from dmlprep.process.failure import SessionFailure
from dmlprep.runtime.adapters import Adapter, choose_adapter, choose_gpu
from dmlprep.runtime.dml import another_release, dml_host, dml_status, open_dml
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.session import cpu_host, open_cpu, open_evaluator
from dmlprep.runtime.types import DATA_FOLDER, CarriedValue, DmlStatus, RunValue, SessionOptions, ValueInfo

__all__ = [
    "DATA_FOLDER",
    "Adapter",
    "CarriedValue",
    "DmlStatus",
    "RunValue",
    "Session",
    "SessionFailure",
    "SessionHost",
    "SessionOptions",
    "ValueInfo",
    "another_release",
    "choose_adapter",
    "choose_gpu",
    "cpu_host",
    "dml_host",
    "dml_status",
    "open_cpu",
    "open_dml",
    "open_evaluator",
]
