"""Load a packaged model on DirectML and run it, with the settings that the DirectML provider of ONNX Runtime requires.

    model = Model("app")                      # the folder of model.json
    outputs = model.run({"image": array})     # numpy arrays by name

Requires numpy and either onnxruntime-directml or onnxruntime-windowsml, but not dmlprep. See also ``README.md``.
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

from .app_errors import (
    AdapterMissing,
    BadInput,
    DeviceRemoved,
    ModelError,
    OutOfMemory,
    PackageDamaged,
    RuntimeMissing,
    check_release,
    translated,
)
from .buckets import Choice, choose
from .device import adapters, find_adapter, listed

__all__ = [
    "AdapterMissing",
    "BadInput",
    "Choice",
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

_NO_BUCKETS = "the package has no buckets: its model has the sizes of its contract"
_LOG = logging.getLogger("dmlprep_loader")
_ONE_AT_A_TIME = threading.RLock()
"""Lock for DirectML sessions, which are created and run one at a time. Some drivers crash otherwise, even with two
different sessions."""

Array = np.ndarray
Read = Callable[[str], bytes]


def read_contract(read: Read) -> dict[str, Any]:
    """Read the contract (``model.json``), check its digest, and return its content.

    ``read`` returns the content of a named file as bytes.

    Raises:
        PackageDamaged: the contract or its digest is missing or changed, or the contract has an unknown format.
    """
    raw = _bytes(read, CONTRACT)
    if _bytes(read, DIGEST).decode("ascii", "replace") != f"{hashlib.sha256(raw).hexdigest()}  {CONTRACT}\n":
        raise PackageDamaged(CONTRACT, f"does not match {DIGEST}")
    contract = json.loads(raw.decode("utf-8"))
    if contract.get("format") != FORMAT:
        raise PackageDamaged(CONTRACT, f"has format {contract.get('format')}, but this loader reads {FORMAT}")
    return dict(contract)


def _bytes(read: Read, name: str) -> bytes:
    try:
        return read(name)
    except (OSError, KeyError) as error:
        raise PackageDamaged(name, "is missing") from error


class Model:
    """A model of a package, ready to run. Threads may share it.

    Args:
        folder: the folder of ``model.json``.
        adapter: the DXGI number of the adapter (0 is the adapter of the desktop). Or ``high_performance`` or
            ``minimum_power``, a vendor (``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``), or a part of the adapter's name.
        device: ``dml``; ``cpu`` for the CPU only; ``dml-or-cpu`` for the CPU if DirectML is not available. Then
            ``notice`` gives the reason.
        sizes: sizes of the dimensions that the contract leaves free, by name or by denotation, such as ``DATA_BATCH``.
            For a package with buckets (models of fixed sizes): the sizes of the app's inputs. ``padding`` then reports
            how many elements the inputs lack in the chosen bucket. Without sizes, the first bucket is loaded.
        disable_metacommands: use DirectML's own shaders instead of the vendor's kernels.
        warm_up: run once with zeros now, so that the app's first run is as fast as the later ones.
        read: a function that returns the content of a named file as bytes, instead of ``folder``: for apps that encrypt
            the model. The loader checks this content against the contract, as it does with files.

    Attributes:
        contract: the content of ``model.json``.
        device: the device that runs the model: ``dml`` or ``cpu``; empty after ``close``.
        notice: the reason why the model runs on the CPU although DirectML was requested; otherwise empty.
        bucket: the name of the loaded bucket; empty for a package without buckets.
        padding: for each dimension that needs some, how many elements the app must add to its inputs for this bucket.
            The loader adds nothing: the right values depend on the model.

    Raises:
        ModelError: the model cannot be loaded; the subclass gives the reason.
        ValueError: ``device`` is unknown.
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
        self._sessions: dict[str, Any] = {}  # by bucket
        self._lost: ModelError | None = None
        self.contract = read_contract(self._read)
        self._part: Mapping[str, Any] = self.contract
        self._free: dict[str, int] = {}
        self.device = ""
        self.notice = ""
        self.bucket = ""
        self.padding: dict[str, int] = {}
        self.reopen(device)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The inputs of the loaded model, as the contract describes them: name, type, shape, size in bytes."""
        return list(self._part["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The outputs of the loaded model, as the contract describes them."""
        return list(self._part["outputs"])

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return the bucket and the padding for these sizes, without loading anything.

        Raises:
            BadInput: no bucket is large enough, the package has no buckets, or a dimension is unknown or missing.
        """
        if not self._buckets:
            raise BadInput(_NO_BUCKETS)
        try:
            return choose(self._buckets, sizes)
        except ValueError as error:
            raise BadInput(str(error)) from error

    @property
    def _buckets(self) -> list[dict[str, Any]]:
        return list(self.contract.get("buckets") or ())

    def reopen(self, device: str = "dml", *, sizes: Mapping[str, int] | None = None) -> None:
        """Close all sessions and open a new one: after ``DeviceRemoved`` or ``OutOfMemory``, or for other sizes.

        ``device`` and ``sizes`` are those of ``Model``. Without sizes, the previous ones are used. Without ``device``,
        it is ``dml``, even if the model ran on the CPU.

        Raises:
            ModelError: the model cannot be loaded; the subclass gives the reason.
            ValueError: ``device`` is unknown.
        """
        if device not in ("dml", "cpu", "dml-or-cpu"):
            raise ValueError(f"unknown device {device!r}: dml, cpu or dml-or-cpu")
        with _ONE_AT_A_TIME:
            self._go_to(self._sizes if sizes is None else dict(sizes))
            self.close()
            raw = self._checked()
            self.notice = ""
            try:
                self._open(raw, CPU if device == "cpu" else DML)
            except ModelError as error:
                if device != "dml-or-cpu":
                    raise
                self.close()
                self.notice = f"DirectML is not available: the model runs on the CPU, which is slower: {error}"
                _LOG.warning(self.notice)
                self._open(raw, CPU)

    def take(self, sizes: Mapping[str, int]) -> None:
        """Switch to the bucket for these sizes, in all threads that share this model.

        The first switch to a bucket opens its session. Sessions of other buckets stay open until ``close`` or
        ``reopen``. Each has its own copy of the weights on the device. After an error, the previous bucket remains
        loaded.

        Raises:
            BadInput: no bucket is large enough, the package has no buckets, or a dimension is unknown or missing.
            ModelError: the bucket cannot be loaded, or the model is closed or has lost its device.
        """
        with _ONE_AT_A_TIME:
            if not self._buckets:
                raise BadInput(_NO_BUCKETS)
            before = (self._sizes, self._part, self._free, self.bucket, self.padding)
            self._demand_open()
            self._go_to(dict(sizes))
            try:
                if self.bucket not in self._sessions:
                    self._open(self._checked(), DML if self.device == "dml" else CPU)
            except ModelError:
                self._sessions.pop(self.bucket, None)
                self._sizes, self._part, self._free, self.bucket, self.padding = before
                raise

    def _go_to(self, sizes: dict[str, int]) -> None:
        """Choose the bucket for these sizes, and store it with its padding; open no session.

        Without sizes of the buckets' dimensions, it is the first bucket. Sizes of other dimensions set free dimensions.
        """
        if not self._buckets:
            self._part, self.bucket, self.padding, own = self.contract, "", {}, {}
        else:
            own = {name: size for name, size in sizes.items() if name in self._buckets[0]["sizes"]}
            choice = self.choose(own) if own else Choice(self._buckets[0])
            self._part, self.bucket, self.padding = choice.bucket, choice.name, dict(choice.padding)
        self._sizes = sizes
        self._free = {name: size for name, size in sizes.items() if name not in own}

    def close(self) -> None:
        """Close all sessions and free their memory."""
        with _ONE_AT_A_TIME:
            self._lost, self.device = None, ""
            self._sessions.clear()

    def _demand_open(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))
        if not self._sessions:
            raise ModelError("the model is closed: call reopen()")

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once, and return its outputs as arrays by name.

        The inputs are arrays, by the names of the contract. Other threads wait until the run ends.

        Raises:
            BadInput: an array is missing or unknown, or has the wrong type or shape.
            DeviceRemoved, OutOfMemory: the session can no longer be used; the message gives the next step.
            ModelError: the model is closed, or any other error of the runtime.
        """
        with _ONE_AT_A_TIME:
            feeds = {one["name"]: self._fitting(one, inputs) for one in self.inputs}
            if strange := sorted(set(inputs) - set(feeds)):
                raise BadInput(f"the model has no input {strange[0]!r}; it has: {', '.join(feeds)}")
            names = [one["name"] for one in self.outputs]
            self._demand_open()
            try:
                return dict(zip(names, self._sessions[self.bucket].run(names, feeds)))  # noqa: B905 - Python 3.9 has no strict
            except Exception as error:
                wrong = translated(error)
                if isinstance(wrong, (DeviceRemoved, OutOfMemory)):
                    self._sessions.clear()
                    self._lost = wrong
                raise wrong from error

    def _checked(self) -> dict[str, bytes]:
        """Check the files against the contract, and return the content of the model's files as bytes, by name.

        Other files of the contract are checked only if they are in the folder. Data files in a folder are checked but
        not returned: ONNX Runtime reads them itself.
        """
        model, data = self._part["model"]["file"], self._part["model"]["data"]
        contents: dict[str, bytes] = {}
        for name, entry in self.contract["files"].items():
            needed = name in (model, *data)
            by_path = self._folder is not None and name in data
            if not needed and (self._folder is None or not (self._folder / name).is_file()):
                continue  # an app may omit the README and the sample
            size, digest, raw = self._digest(name, keep=needed and not by_path)
            if size != entry["bytes"]:
                raise PackageDamaged(name, f"has {size} bytes, but {CONTRACT} lists {entry['bytes']}")
            if digest != entry["sha256"]:
                raise PackageDamaged(name, f"was changed: its SHA-256 is not the one in {CONTRACT}")
            if raw is not None:
                contents[name] = raw
        return contents

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
        check_release(onnxruntime, provider, self._part["target"]["lowest_onnxruntime"])
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        settings.enable_mem_pattern = provider != DML
        known = {d for one in self.inputs for d in one["shape"] if isinstance(d, str)}
        for name, size in self._free.items():
            if name in known:
                settings.add_free_dimension_override_by_name(name, size)
            elif name in self.contract["denotations"]:
                settings.add_free_dimension_override_by_denotation(name, size)
            else:
                raise BadInput(f"no free dimension {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
        model, data = self._part["model"]["file"], self._part["model"]["data"]
        source: bytes | str = raw[model]
        if data and self._folder is not None:
            source = str(self._folder / model)
        elif data:
            pieces = [raw[name] for name in data]
            settings.add_external_initializers_from_files_in_memory(data, pieces, [len(piece) for piece in pieces])
        providers: list[object] = [CPU] if provider == CPU else [(provider, self._provider_options()), CPU]
        try:
            # Without this, onnxruntime would retry on the CPU after a failure and hide the error.
            session = onnxruntime.InferenceSession(source, settings, providers=providers, enable_fallback=False)
        except Exception as error:
            raise translated(error) from error
        if provider not in session.get_providers():
            raise RuntimeMissing(f"the session has no {provider}; it has {', '.join(session.get_providers())}")
        self._sessions[self.bucket], self.device = session, "dml" if provider == DML else "cpu"
        if self._warm_up and (feeds := self._zeros()) is not None:
            self.run(feeds)

    def _provider_options(self) -> dict[str, str]:
        more = {"disable_metacommands": "true"} if self._disable_metacommands else {}
        return {"device_id": str(self._adapter_number()), **more}

    def _adapter_number(self) -> int:
        if isinstance(self._adapter, int):
            return self._adapter
        try:
            rows = adapters()
            if self._adapter not in PREFERENCES:
                return find_adapter(self._adapter, rows).number
        except (OSError, ValueError) as error:
            raise AdapterMissing(str(error)) from error
        chosen = [one.number for one in rows if self._adapter in one.preferences]
        if not chosen:
            raise AdapterMissing(f"DXGI lists no adapter for {self._adapter}; {listed(rows)}")
        return chosen[0]

    def _shape(self, one: Mapping[str, Any]) -> list[int | str]:
        return [self._free.get(d, d) if isinstance(d, str) else d for d in one["shape"]]

    def _zeros(self) -> dict[str, Array] | None:
        """Return inputs of zeros, or ``None`` if a size is unknown."""
        if any(isinstance(d, str) for one in self.inputs for d in self._shape(one)):
            return None
        return {one["name"]: np.zeros(self._shape(one), _dtype(one)) for one in self.inputs}  # type: ignore[arg-type]

    def _fitting(self, one: Mapping[str, Any], inputs: Mapping[str, Array]) -> Array:
        """Return the array of an input as a contiguous array, after a check of its type and shape."""
        name = one["name"]
        if name not in inputs:
            raise BadInput(f"input {name!r} is missing")
        array = np.ascontiguousarray(inputs[name]).reshape(np.shape(inputs[name]))
        wanted, shape = self._shape(one), array.shape
        if array.dtype != _dtype(one):
            raise BadInput(f"input {name!r} is {array.dtype}, but the model needs {one['type']}")
        wrong = (size != shape[axis] for axis, size in enumerate(wanted) if not isinstance(size, str))
        if len(shape) != len(wanted) or any(wrong):
            why = f"; the bucket {self.bucket} has fixed sizes: pad the input" if self.bucket else ""
            raise BadInput(f"input {name!r} is {list(shape)}, but the model needs {wanted}{why}")
        return array


def _dtype(one: Mapping[str, Any]) -> Any:
    try:
        return np.dtype(object if one["type"] == "string" else one["type"])
    except TypeError as error:
        raise BadInput(f"{one['name']!r} is {one['type']}, which numpy does not have") from error
