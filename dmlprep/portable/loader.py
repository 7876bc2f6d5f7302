"""Load a packaged model on DirectML and run it, with the settings that its provider in ONNX Runtime requires."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from .app_errors import (
    AdapterMissing,
    BadInput,
    DeviceRemoved,
    ModelError,
    OutOfMemory,
    PackageDamaged,
    RuntimeMissing,
    translated,
)
from .app_files import PackageFiles, Read
from .app_sessions import CPU, DML, SESSIONS, AppSession, new_settings, open_session, runtime
from .buckets import Choice, choose
from .device import adapters, find_adapter, listed
from .vendors import KINDS, find_device

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFERENCES = ("high_performance", "minimum_power")
Device = Literal["dml", "cpu", "dml-or-cpu"]

_PROVIDERS: dict[Device, tuple[str, ...]] = {"dml": (DML,), "cpu": (CPU,), "dml-or-cpu": (DML, CPU)}
"""The providers for each device, in the order in which they are tried."""
_NO_BUCKETS = "the package has no buckets: its model has the sizes of its contract"
_LOG = logging.getLogger("dmlprep_model")


class Tensor(TypedDict):
    """One input or output, as the contract describes it; ``model.schema.json`` explains the fields."""

    name: str
    type: str
    shape: list[int | str]
    denotations: list[str]
    layout: str
    bytes: int | None
    gpu_bytes: int | None
    gpu_alignment: int
    meaning: str
    about: str
    range: list[float] | None
    picture: dict[str, Any] | None


class Model:
    """A model of a package, ready to run. Threads may share it.

    Args:
        folder: the folder of ``model.json``. By default, that of this Python package, or the one above it.
        adapter: the DXGI number of the adapter (0 is the adapter of the desktop). Or ``high_performance`` or
            ``minimum_power``, a vendor (``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``), or a part of the adapter's name.
        device: ``dml``; ``cpu`` for the CPU only; ``dml-or-cpu`` for the CPU if DirectML is not available.
        sizes: sizes of the dimensions that the contract leaves free, by name or by denotation, such as ``DATA_BATCH``.
            For a package with buckets (models of fixed sizes): the sizes of the app's inputs. ``padding`` then reports
            how many elements the inputs lack in the chosen bucket. Without sizes, the first bucket is loaded.
        disable_metacommands: use DirectML's own shaders instead of the vendor's kernels.
        warm_up: run once with zeros now, so that the app's first run is as fast as the later ones.
        read: a function that returns the content of a named file as bytes, instead of ``folder``: for apps that encrypt
            the model. The loader checks this content against the contract, as it does with files.
        prefer: ``npu`` or ``gpu``: run the original, if the package has it, on the execution provider of a hardware
            vendor (Windows ML) for such a device, otherwise for the other kind. Without one, and by default, ``device``
            applies. Not used if ``device`` is ``cpu``.
        libraries: path of the library of each vendor's provider, by name of the provider. By default those that the
            package ``windowsml`` lists as installed. ONNX Runtime loads them as code.

    Attributes:
        contract: the content of ``model.json``.
        asked: the requested device.
        device: the device that runs the model: ``dml``, ``cpu`` or the name of a vendor's provider; empty if no session
            is open.
        evidence: how ``device`` is known, such as "ONNX Runtime assigned 12 of 12 nodes to DmlExecutionProvider".
        notice: why the model does not run on the requested device, which is also logged; otherwise empty.
        bucket: the name of the loaded bucket; empty for a package without buckets.
        padding: for each dimension that needs some, how many elements the app must add to its inputs for this bucket.
            The loader adds nothing: the right values depend on the model.

    Raises:
        ModelError: the model cannot be loaded; the subclass gives the reason.
        ValueError: ``device`` or ``prefer`` is unknown.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        adapter: int | str = 0,
        device: Device = "dml",
        sizes: Mapping[str, int] | None = None,
        disable_metacommands: bool = False,
        warm_up: bool = True,
        read: Read | None = None,
        prefer: str = "",
        libraries: Mapping[str, str | PathLike[str]] | None = None,
    ) -> None:
        if prefer not in ("", *KINDS):
            raise ValueError(f"unknown prefer {prefer!r}: npu, gpu or empty")
        self._files = PackageFiles(folder, read)
        self._adapter = adapter
        self._sizes = dict(sizes or {})
        self._disable_metacommands = disable_metacommands
        self._warm_up = warm_up
        self._lock = threading.RLock()  # held before SESSIONS
        self._sessions: dict[str, AppSession] = {}  # by bucket
        self._prefer = prefer
        self._libraries = libraries
        self._vendor: Any = None  # the OrtEpDevice of a vendor's provider that runs the model
        self._lost: ModelError | None = None
        self.contract = self._files.contract
        self._part: Mapping[str, Any] = self.contract
        self._free: dict[str, int] = {}
        self.asked: Device = device
        self.device = ""
        self.evidence = ""
        self.notice = ""
        self.bucket = ""
        self.padding: dict[str, int] = {}
        self.reopen(device)

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs of the loaded model, as the contract describes them: name, type, shape, size in bytes."""
        return list(self._part["inputs"])

    @property
    def outputs(self) -> list[Tensor]:
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

    def reopen(self, device: Device | None = None, *, sizes: Mapping[str, int] | None = None) -> None:
        """Close all sessions and open a new one: after ``DeviceRemoved`` or ``OutOfMemory``, or for other sizes.

        ``device`` and ``sizes`` are those of ``Model``; without them, the previous ones are used.

        Raises:
            ModelError: the model cannot be loaded; the subclass gives the reason.
            ValueError: ``device`` is unknown.
        """
        device = self.asked if device is None else device
        if device not in _PROVIDERS:
            raise ValueError(f"unknown device {device!r}: dml, cpu or dml-or-cpu")
        with self._lock:
            self._go_to(self._sizes if sizes is None else dict(sizes))
            self.close()
            self.asked, self.notice = device, ""
            if self._prefer and device != "cpu" and self._opened_on_vendor():
                return
            contents = self._files.checked(self._part["model"])
            providers = _PROVIDERS[device]
            try:
                for provider in providers:
                    try:
                        self._open(contents, provider)
                        break
                    except ModelError as error:
                        if provider == providers[-1]:
                            raise
                        self.close()
                        cpu = f"DirectML is not available: the model runs on the CPU, which is slower: {error}"
                        self.notice = "; ".join(filter(None, [self.notice, cpu]))
            finally:
                if self.notice:
                    _LOG.warning("%s", self.notice)

    def _opened_on_vendor(self) -> bool:
        """Open a session on a vendor's provider; return False, with the reason in ``notice``, if none runs the model.

        Raises:
            PackageDamaged, RuntimeMissing, BadInput: another device would not help.
        """
        which = ""
        try:
            self._vendor = find_device(runtime(CPU, self._part["target"]), self._prefer, self._libraries)
            which = f"{self._vendor.ep_name}: "
            self._open(self._files.checked(self._file), self._vendor.ep_name)
        except (PackageDamaged, RuntimeMissing, BadInput):
            raise
        except ModelError as error:
            self.close()
            self.notice = " ".join(f"no vendor's provider runs the model: {which}{error}".split())
            return False
        return True

    @property
    def _file(self) -> Mapping[str, Any]:
        """The file of the model for the present provider, with its data files, as the contract describes them."""
        original = self.contract.get("original") if self._vendor is not None else None
        return dict(original or self._part["model"])

    def take(self, sizes: Mapping[str, int]) -> None:
        """Switch to the bucket for these sizes, in all threads that share this model.

        The first switch to a bucket opens its session. Sessions of other buckets stay open until ``close`` or
        ``reopen``. Each has its own copy of the weights on the device. After an error, the previous bucket remains
        loaded, unless the warm-up lost the device or its memory: then call ``reopen``.

        Raises:
            BadInput: no bucket is large enough, the package has no buckets, or a dimension is unknown or missing.
            ModelError: the bucket cannot be loaded, or the model is closed or has lost its device.
        """
        with self._lock:
            if not self._buckets:
                raise BadInput(_NO_BUCKETS)
            before = (self._sizes, self._part, self._free, self.bucket, self.padding)
            self._demand_open()
            provider = {"dml": DML, "cpu": CPU}.get(self.device, self.device)
            self._go_to(dict(sizes))
            try:
                if self.bucket not in self._sessions:
                    self._open(self._files.checked(self._file), provider)
                self._report()
            except ModelError:
                with SESSIONS:
                    self._sessions.pop(self.bucket, None)
                self._sizes, self._part, self._free, self.bucket, self.padding = before
                self._report()
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
        """Close all sessions and free their memory; a run in another thread ends first."""
        with self._lock:
            self._lost, self._vendor = None, None
            with SESSIONS:
                self._sessions.clear()
            self._report()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _report(self) -> None:
        """Set ``device`` and ``evidence`` to those of the loaded session."""
        opened = self._sessions.get(self.bucket)
        self.device, self.evidence = (opened.device, opened.evidence) if opened is not None else ("", "")

    def _demand_open(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))
        if not self._sessions:
            raise ModelError("the model is closed: call reopen()")

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the model once, and return its outputs as arrays by name.

        The inputs are arrays, by the names of the contract. Other threads that run this model wait until the run ends;
        on DirectML, so do those that run, open or close other models.

        Raises:
            BadInput: an array is missing or unknown, or has the wrong type or shape.
            DeviceRemoved, OutOfMemory: the session can no longer be used; the message gives the next step.
            ModelError: the model is closed, or any other error of the runtime.
        """
        with self._lock:
            feeds = {one["name"]: self._fitting(one, inputs) for one in self.inputs}
            if strange := sorted(set(inputs) - set(feeds)):
                raise BadInput(f"the model has no input {strange[0]!r}; it has: {', '.join(feeds)}")
            names = [one["name"] for one in self.outputs]
            self._demand_open()
            try:
                answers = self._sessions[self.bucket].run(names, feeds)
            except Exception as error:
                wrong = translated(error)
                if isinstance(wrong, (DeviceRemoved, OutOfMemory)):
                    self.close()
                    self._lost = wrong
                # The frames of the traceback would keep the session, and its memory, alive.
                raise wrong from error.with_traceback(None)
            return dict(zip(names, answers))  # noqa: B905 - Python 3.9 has no strict

    def _open(self, contents: Mapping[str, bytes], provider: str) -> None:
        """Open the session of the chosen bucket with a provider, and run it once with zeros."""
        onnxruntime = runtime(provider if self._vendor is None else CPU, self._part["target"])
        settings = new_settings(onnxruntime, provider)
        known = {d for one in self.inputs for d in one["shape"] if isinstance(d, str)}
        for name, size in self._free.items():
            if name in known:
                settings.add_free_dimension_override_by_name(name, size)
            elif name in self.contract["denotations"]:
                settings.add_free_dimension_override_by_denotation(name, size)
            else:
                there = sorted(known.union(*(one["sizes"] for one in self._buckets)))
                raise BadInput(f"no free dimension {name!r}; there are: {', '.join(there) or 'none'}")
        model, data = self._file["file"], self._file["data"]
        source: bytes | str = contents[model]
        if data and self._files.folder is not None:
            source = str(self._files.folder / model)
        elif data:
            pieces = [contents[name] for name in data]
            settings.add_external_initializers_from_files_in_memory(data, pieces, [len(piece) for piece in pieces])
        providers: list[object] | None = None
        if self._vendor is None:
            providers = [CPU] if provider == CPU else [(provider, self._provider_options()), CPU]
        else:
            settings.add_provider_for_devices([self._vendor], {})
            for name, size in self.contract["fixed"].items():  # free in the original
                settings.add_free_dimension_override_by_name(name, size)
        self._sessions[self.bucket] = open_session(onnxruntime, source, settings, provider, providers)
        self._report()
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

    def _shape(self, one: Tensor) -> list[int | str]:
        return [self._free.get(d, d) if isinstance(d, str) else d for d in one["shape"]]

    def _zeros(self) -> dict[str, NDArray[Any]] | None:
        """Return inputs of zeros, or ``None`` if a size is unknown."""
        feeds: dict[str, NDArray[Any]] = {}
        for one in self.inputs:
            shape = [size for size in self._shape(one) if not isinstance(size, str)]
            if len(shape) < len(one["shape"]):
                return None
            feeds[one["name"]] = np.zeros(shape, _dtype(one))
        return feeds

    def _fitting(self, one: Tensor, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
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


def _dtype(one: Tensor) -> np.dtype[Any]:
    try:
        return np.dtype(object if one["type"] == "string" else one["type"])
    except TypeError as error:
        raise BadInput(f"{one['name']!r} is {one['type']}, which numpy does not have") from error
