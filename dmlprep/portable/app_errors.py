"""The errors of a packaged model in an app. Each message gives the next step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .hresult import diagnose, error_text

_REMOVED = (
    "close other programs that use the GPU, wait a second and call reopen(). If it happens again, use smaller inputs, "
    "disable_metacommands=True or another driver, or run on the CPU with reopen(device='cpu')"
)
_MEMORY = (
    "free other models and GPU programs, use a smaller batch or smaller inputs, then call reopen(); or run on the CPU "
    "with reopen(device='cpu')"
)


class ModelError(RuntimeError):
    """The base class of all errors in this module."""


class PackageDamaged(ModelError):
    """A file of the package is missing, or differs from the contract (``model.json``). ``file`` is its name."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} {what}: copy the package again completely")
        self.file = file


class RuntimeMissing(ModelError):
    """ONNX Runtime with DirectML is not installed, or is older than the model needs."""


class AdapterMissing(ModelError):
    """No adapter matches the request, several match, or the adapter cannot be used."""


class BadInput(ModelError):
    """An input is missing, or has another type or shape than the contract."""


class DeviceRemoved(ModelError):
    """The GPU was removed, hung or was reset (887A0005, 887A0006, 887A0007, 887A0020).

    ``Model.reopen`` makes a new session.
    """


class OutOfMemory(ModelError):
    """The GPU or the system is out of memory (8007000E)."""


def translated(error: Exception) -> ModelError:
    """Return, without raising it, the error of this module for an error of ONNX Runtime.

    An error without a class of its own becomes a ``ModelError``.
    """
    text = error_text(error)
    cause = diagnose(text)
    if cause is not None and cause.removed:
        return DeviceRemoved(f"the GPU stopped answering ({cause}): {_REMOVED}")
    memory = isinstance(error, MemoryError) or "bad allocation" in text or "Failed to allocate memory" in text
    if memory or (cause is not None and cause.code == "8007000E"):
        return OutOfMemory(f"out of memory ({cause or 'system memory'}): {_MEMORY}")
    if cause is not None and cause.code in ("887A0002", "887A0004", "C0262002"):
        return AdapterMissing(f"the adapter cannot be used ({cause}): choose another, or install its driver")
    return ModelError(f"{cause}: {text}" if cause is not None else text)


def requirement(target: Mapping[str, Any]) -> str:
    """Return the package on PyPI with ONNX Runtime and DirectML, and its oldest release, as pip needs them.

    ``target`` is that of the contract. The last release of onnxruntime-directml is 1.24, and the first one of
    onnxruntime-windowsml 1.23.
    """
    lowest = _release(target["lowest_onnxruntime"])
    if target["name"].startswith("ort-") and _release(target["onnxruntime"]) <= (1, 24):
        return "onnxruntime-directml>={}.{}".format(*lowest)
    return "onnxruntime-windowsml>={}.{}".format(*max(lowest, (1, 23)))


def check_release(onnxruntime: Any, provider: str, target: Mapping[str, Any]) -> None:
    """Check that the installed onnxruntime can run the model.

    Raises:
        RuntimeMissing: it lacks the execution provider ``provider``, or is older than the ``target`` of the contract
            allows. Only the first two numbers of the versions count.
    """
    here, lowest = str(onnxruntime.__version__), target["lowest_onnxruntime"]
    available = onnxruntime.get_available_providers()
    install = f'pip install "{requirement(target)}"'
    if provider not in available:
        fix = f"pip uninstall onnxruntime, then {install}"
        raise RuntimeMissing(f"onnxruntime {here} has no {provider} (it has {', '.join(available)}): {fix}")
    if _release(here) < _release(lowest):
        raise RuntimeMissing(f"onnxruntime {here} is older than {lowest}, the oldest version for this model: {install}")


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
