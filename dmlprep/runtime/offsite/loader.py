"""Load a packaged model on DirectML, and run it, as ONNX Runtime's DirectML provider demands.

    model = Model("app")                      # the folder of model.json
    outputs = model.run({"image": array})     # numpy arrays by name

Needs numpy and one of onnxruntime-directml and onnxruntime-windowsml; nothing of dmlprep. ``README.md`` says more.

What it takes care of: the files are those of ``model.json``, the contract; memory pattern off and sequential execution;
the adapter by number, preference, vendor or name; sizes for dimensions that are free; one run at a time in the whole
process; a first run before the app's own; errors that say what the app should do.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmlprep.runtime.hresult import diagnose, error_text
from dmlprep.runtime.offsite.device import adapters, find_adapter, listed

__all__ = [
    "AdapterMissing",
    "BadInput",
    "DeviceRemoved",
    "Model",
    "ModelError",
    "OutOfMemory",
    "PackageDamaged",
    "RuntimeMissing",
    "read_contract",
]

CONTRACT, DIGEST = "model.json", "model.json.sha256"
FORMAT = 1
DML, CPU = "DmlExecutionProvider", "CPUExecutionProvider"
PREFERENCES = ("high_performance", "minimum_power")

_LOG = logging.getLogger("dmlprep_loader")
_ONE_AT_A_TIME = threading.RLock()
"""Sessions of DirectML are neither made nor run side by side: some drivers crash, even for two different sessions."""

_REMOVED = (
    "close other programs that use the GPU, wait a second and call reopen(); if it happens again, use smaller inputs, "
    "disable_metacommands=True or another driver, or run on the CPU with reopen(device='cpu')"
)
_MEMORY = (
    "free other models and GPU programs, use a smaller batch or smaller inputs, then call reopen(); or run on the CPU "
    "with reopen(device='cpu')"
)

Array = np.ndarray
Read = Callable[[str], bytes]


class ModelError(RuntimeError):
    """Base of all errors of this module."""


class PackageDamaged(ModelError):
    """A file is not the one of the contract. ``file`` names it."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} {what}: copy the package again, whole")
        self.file = file


class RuntimeMissing(ModelError):
    """There is no ONNX Runtime with DirectML here, or it is older than the model needs."""


class AdapterMissing(ModelError):
    """No adapter, or more than one, is what was asked for."""


class BadInput(ModelError):
    """An input is missing, or not of the type and shape of the contract."""


class DeviceRemoved(ModelError):
    """The GPU went away, hung or was reset (887A0005, 887A0006, 887A0007, 887A0020). ``reopen`` makes a new session."""


class OutOfMemory(ModelError):
    """The GPU, or the machine, has no memory left (8007000E)."""


def read_contract(read: Read) -> dict[str, Any]:
    """The contract, held against the digest beside it.

    Args:
        read: gives a file's bytes by its name.

    Raises:
        PackageDamaged: one of the two files is missing or changed.
    """
    raw = _bytes(read, CONTRACT)
    said = _bytes(read, DIGEST).decode("ascii", "replace")
    if said != f"{hashlib.sha256(raw).hexdigest()}  {CONTRACT}\n":
        raise PackageDamaged(CONTRACT, f"is not the one that {DIGEST} is about")
    contract = json.loads(raw.decode("utf-8"))
    if contract.get("format") != FORMAT:
        raise PackageDamaged(CONTRACT, f"is of format {contract.get('format')}, and this loader reads {FORMAT}")
    return dict(contract)


def _bytes(read: Read, name: str) -> bytes:
    try:
        return read(name)
    except (OSError, KeyError) as error:
        raise PackageDamaged(name, "is missing") from error


class Model:
    """A model of a package, ready to run. Threads may share it.

    Args:
        folder: where ``model.json`` lies.
        adapter: the number that DXGI gives it (0 is the adapter of the desktop), ``high_performance`` or
            ``minimum_power``, a vendor (``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``) or a part of its name.
        device: ``dml``; ``cpu`` for the CPU alone; ``dml-or-cpu`` for the CPU where DirectML cannot be had. Then
            ``notice`` says why.
        sizes: sizes of dimensions that the contract leaves free, by name; or by denotation, as ``DATA_BATCH``.
        disable_metacommands: DirectML's own shaders in place of the vendor's kernels.
        warm_up: run once with zeros now, so that the first run of the app is as fast as the others.
        read: gives a file's bytes by its name, in place of ``folder``: for apps that keep the model encrypted. What
            it gives is held against the contract as files are.

    Attributes:
        contract: ``model.json``.
        device: ``dml`` or ``cpu``: what runs it.
        notice: why it runs on the CPU though DirectML was asked for; empty where it does not.

    Raises:
        ModelError: one of the errors above.
    """

    def __init__(
        self,
        folder: str | Path = ".",
        *,
        adapter: int | str = 0,
        device: str = "dml",
        sizes: Mapping[str, int] | None = None,
        disable_metacommands: bool = False,
        warm_up: bool = True,
        read: Read | None = None,
    ) -> None:
        self._folder = None if read is not None else Path(folder)
        self._read = read or (lambda name: (Path(folder) / name).read_bytes())
        self._adapter = adapter
        self._sizes = dict(sizes or {})
        self._disable_metacommands = disable_metacommands
        self._warm_up = warm_up
        self._session: Any = None
        self._lost: ModelError | None = None
        self.contract = read_contract(self._read)
        self.device = ""
        self.notice = ""
        self.reopen(device)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Inputs as the contract describes them: name, type, shape, bytes."""
        return list(self.contract["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """Outputs as the contract describes them."""
        return list(self.contract["outputs"])

    def reopen(self, device: str = "dml") -> None:
        """Make the session anew: after ``DeviceRemoved`` or ``OutOfMemory``.

        Args:
            device: as for ``Model``.
        """
        if device not in ("dml", "cpu", "dml-or-cpu"):
            raise ValueError(f"unknown device {device!r}: dml, cpu or dml-or-cpu")
        with _ONE_AT_A_TIME:
            self.close()
            raw = self._checked()
            self.notice = ""
            try:
                if device != "cpu":
                    self._open(raw, DML)
                    return
            except ModelError as error:
                if device != "dml-or-cpu":
                    raise
                self.close()
                self.notice = f"DirectML cannot be used, so the model runs on the CPU, which is slower: {error}"
                _LOG.warning(self.notice)
            self._open(raw, CPU)

    def close(self) -> None:
        """Give the session's memory back."""
        with _ONE_AT_A_TIME:
            self._session, self._lost, self.device = None, None, ""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once; other threads wait meanwhile.

        Args:
            inputs: arrays by the names of the contract.

        Raises:
            BadInput: an array is missing, or of another type or shape.
            DeviceRemoved, OutOfMemory: the session is of no use any more; the error says what to do.
            ModelError: any other error of the runtime.
        """
        feeds = {one["name"]: self._fitting(one, inputs) for one in self.inputs}
        if strange := sorted(set(inputs) - set(feeds)):
            raise BadInput(f"the model has no input {strange[0]!r}; it has: {', '.join(feeds)}")
        names = [one["name"] for one in self.outputs]
        with _ONE_AT_A_TIME:
            if self._lost is not None:
                raise type(self._lost)(str(self._lost))
            if self._session is None:
                raise ModelError("the model is closed: call reopen()")
            try:
                return dict(zip(names, self._session.run(names, feeds)))  # noqa: B905 - Python 3.9 has no strict
            except Exception as error:
                found = _translated(error)
                if isinstance(found, (DeviceRemoved, OutOfMemory)):
                    self._session, self._lost = None, found
                raise found from error

    def _checked(self) -> dict[str, bytes]:
        """Every file as the contract has it; the bytes of the model's own, unless it has data files in a folder."""
        model, data = self.contract["model"]["file"], self.contract["model"]["data"]
        kept: dict[str, bytes] = {}
        for name, entry in self.contract["files"].items():
            needed = name in (model, *data)
            by_path = self._folder is not None and name in data
            if not needed and (self._folder is None or not (self._folder / name).is_file()):
                continue  # what an app need not ship: the README, the sample
            size, digest, raw = self._digest(name, keep=needed and not by_path)
            if size != entry["bytes"]:
                raise PackageDamaged(name, f"has {size} bytes, and {CONTRACT} says {entry['bytes']}")
            if digest != entry["sha256"]:
                raise PackageDamaged(name, f"was changed: its SHA-256 is not the one in {CONTRACT}")
            if raw is not None:
                kept[name] = raw
        return kept

    def _digest(self, name: str, *, keep: bool) -> tuple[int, str, bytes | None]:
        if keep or self._folder is None:
            raw = _bytes(self._read, name)
            return len(raw), hashlib.sha256(raw).hexdigest(), raw
        digest, size = hashlib.sha256(), 0
        try:
            with (self._folder / name).open("rb") as file:
                for piece in iter(lambda: file.read(1 << 20), b""):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise PackageDamaged(name, "is missing") from error
        return size, digest.hexdigest(), None

    def _open(self, raw: Mapping[str, bytes], provider: str) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise RuntimeMissing(f"{error}: pip install onnxruntime-directml") from error
        _check_release(onnxruntime, provider, self.contract["target"]["lowest_onnxruntime"])
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        settings.enable_mem_pattern = provider != DML
        known = {d for one in self.inputs for d in one["shape"] if isinstance(d, str)}
        for name, size in self._sizes.items():
            if name in known:
                settings.add_free_dimension_override_by_name(name, size)
            elif name in self.contract["denotations"]:
                settings.add_free_dimension_override_by_denotation(name, size)
            else:
                raise BadInput(f"no free dimension {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
        model, data = self.contract["model"]["file"], self.contract["model"]["data"]
        source: bytes | str = raw[model]
        if data and self._folder is not None:
            source = str(self._folder / model)
        elif data:
            pieces = [raw[name] for name in data]
            settings.add_external_initializers_from_files_in_memory(data, pieces, [len(piece) for piece in pieces])
        chosen: Any = (provider, self._provider_options()) if provider == DML else provider
        providers = [chosen] if provider == CPU else [chosen, CPU]
        try:
            # Without this, the package would try the CPU after a failure, and hide the error.
            session = onnxruntime.InferenceSession(source, settings, providers=providers, enable_fallback=False)
        except Exception as error:
            raise _translated(error) from error
        if provider not in session.get_providers():
            raise RuntimeMissing(f"the session has no {provider}; it has {', '.join(session.get_providers())}")
        self._session, self.device = session, "dml" if provider == DML else "cpu"
        if self._warm_up and (feeds := self._zeros()) is not None:
            self.run(feeds)

    def _provider_options(self) -> dict[str, str]:
        options = {"device_id": str(self._adapter_number())}
        if self._disable_metacommands:
            options["disable_metacommands"] = "true"
        return options

    def _adapter_number(self) -> int:
        if isinstance(self._adapter, int):
            return self._adapter
        try:
            found = adapters()
            if self._adapter not in PREFERENCES:
                return find_adapter(self._adapter, found).number
        except (OSError, ValueError) as error:
            raise AdapterMissing(str(error)) from error
        chosen = [one.number for one in found if self._adapter in one.preferences]
        if not chosen:
            raise AdapterMissing(f"DXGI names no adapter for {self._adapter}; {listed(found)}")
        return chosen[0]

    def _shape(self, one: Mapping[str, Any]) -> list[int | str]:
        return [self._sizes.get(d, d) if isinstance(d, str) else d for d in one["shape"]]

    def _zeros(self) -> dict[str, Array] | None:
        """Feeds of zeros; ``None`` where a size is not known."""
        if any(isinstance(d, str) for one in self.inputs for d in self._shape(one)):
            return None
        return {one["name"]: np.zeros(self._shape(one), _dtype(one)) for one in self.inputs}  # type: ignore[arg-type]

    def _fitting(self, one: Mapping[str, Any], inputs: Mapping[str, Array]) -> Array:
        """The array of an input, contiguous."""
        name = one["name"]
        if name not in inputs:
            raise BadInput(f"input {name!r} is missing")
        array = np.ascontiguousarray(inputs[name]).reshape(np.shape(inputs[name]))
        wanted, shape = self._shape(one), array.shape
        if array.dtype != _dtype(one):
            raise BadInput(f"input {name!r} is {array.dtype}, and the model takes {one['type']}")
        fits = len(shape) == len(wanted)
        fits = fits and all(isinstance(size, str) or size == shape[axis] for axis, size in enumerate(wanted))
        if not fits:
            raise BadInput(f"input {name!r} is {list(shape)}, and the model takes {wanted}")
        return array


def _dtype(one: Mapping[str, Any]) -> Any:
    try:
        return np.dtype(object if one["type"] == "string" else one["type"])
    except TypeError as error:
        raise BadInput(f"{one['name']!r} is {one['type']}, which numpy does not have") from error


def _check_release(onnxruntime: Any, provider: str, lowest: str) -> None:
    here = str(onnxruntime.__version__)
    if provider not in onnxruntime.get_available_providers():
        said = ", ".join(onnxruntime.get_available_providers())
        raise RuntimeMissing(
            f"onnxruntime {here} has no {provider} (it has {said}): pip uninstall onnxruntime, then "
            "pip install onnxruntime-directml"
        )
    if _numbers(here) < _numbers(lowest):
        raise RuntimeMissing(f"onnxruntime {here} is older than {lowest}, the oldest that this model was made for")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2] if part.isdigit()]


def _translated(error: Exception) -> ModelError:
    """An error of ONNX Runtime in the words of this module."""
    text = error_text(error)
    found = diagnose(text)
    if found is not None and found.removed:
        return DeviceRemoved(f"the GPU stopped answering ({found}): {_REMOVED}")
    memory = isinstance(error, MemoryError) or "bad allocation" in text or "Failed to allocate memory" in text
    if memory or (found is not None and found.code == "8007000E"):
        return OutOfMemory(f"no memory is left ({found or 'on the machine'}): {_MEMORY}")
    if found is not None and found.code in ("887A0002", "887A0004", "C0262002"):
        return AdapterMissing(f"the adapter cannot be used ({found}): choose another, or install its driver")
    return ModelError(f"{found}: {text}" if found is not None else text)
