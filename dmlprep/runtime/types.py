"""The types of sessions: their options, their results, and the state of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from dmlprep.record import DeviceInfo

DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""Config key for the folder that external data paths are relative to. With it, the worker passes the model as bytes.
ONNX Runtime reads the key only then; otherwise data files must be in the model's folder."""

NO_SPINNING = {"session.intra_op.allow_spinning": "0"}
"""Config of a session whose runs are not timed: threads that spin while they wait only cost processor time."""

Dim = int | str | None
"""One dimension of a shape: a size, the name of a free dimension, or ``None`` if unknown."""

RunValue = np.ndarray | list[np.ndarray] | None
"""The value of one output: a tensor, a sequence of tensors, or an empty optional."""

Optimization = Literal["disabled", "basic", "extended", "all"]

Preference = Literal["default", "high_performance", "minimum_power"]
"""The provider's ``performance_preference``."""

OpenBy = Literal["provider", "device", "policy"]


@dataclass(frozen=True)
class SessionOptions:
    """How a model is loaded and run.

    Attributes:
        optimization: graph optimisation level of ONNX Runtime.
        threads: threads of the CPU provider, 0 for all cores.
        time_limit: seconds that one load or one run may take.
        memory_limit: private memory that the worker may use, in bytes (mapped weight files do not count); 0 for no
            limit. ``None``: the environment variable ``DMLPREP_MEMORY_LIMIT``, or 80 % of the system memory.
        model_bytes: size of the model's files in bytes. The limits of memory and CPU time follow from it and from the
            size of the inputs (``allowance``). ``None``: only ``time_limit`` and ``memory_limit`` apply, as for
            devices.
        free_dimensions: size by dim_param name, applied to the graph inputs.
        denotations: size by dimension denotation (``DATA_BATCH``), applied to the graph inputs.
        config: further session config entries of ONNX Runtime.
        device_id: DirectML adapter in DXGI's order. ``None``: the adapter of ``performance_preference``, otherwise
            number 0. A software adapter is only used if its number is set.
        performance_preference: DirectML adapter by preference; not together with ``device_id``.
        disable_metacommands: use DirectML's own shaders instead of the vendor's kernels.
        unfused: DirectML runs each node separately (``ep.dml.disable_graph_fusion``).
        cpu_fallback: nodes without a DirectML kernel run on the CPU; otherwise such a model fails to load.
        profile: record the time of each node, for ``Session.timings``.
        record_placement: record the provider of each node, for ``Session.placement``.
        log_level: lowest severity in the worker's log, 0 (verbose) to 4 (fatal).
        open_by: how DirectML is chosen on Windows. ``provider``: by the provider list of the session. ``device``: by
            ONNX Runtime's device with the adapter's number. ``policy``: by ONNX Runtime, which prefers a GPU. Windows
            ML applications use the last two, which need ONNX Runtime 1.23.
        release: the release of ONNX Runtime, for DirectML on Linux: the nearest installed one (``release_for``); empty
            for the default one. Other systems have only one.
        gpu: the GPU for DirectML on Linux, by ``auto``, its number, its vendor or a part of its name. Empty: lavapipe,
            which computes on the CPU.
    """

    optimization: Optimization = "all"
    threads: int = 0
    time_limit: float = 600.0
    memory_limit: int | None = None
    model_bytes: int | None = None
    free_dimensions: Mapping[str, int] = field(default_factory=dict)
    denotations: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    device_id: int | None = None
    performance_preference: Preference = "default"
    disable_metacommands: bool = False
    unfused: bool = False
    cpu_fallback: bool = True
    profile: bool = False
    record_placement: bool = False
    log_level: int = 3
    open_by: OpenBy = "provider"
    release: str = ""
    gpu: str = ""


@dataclass(frozen=True)
class ValueInfo:
    """A graph input or output as the session declares it.

    ``dtype`` is numpy's name of the element type (``float32``, ``bfloat16``, ``string``), or ONNX's name of a type that
    is not a tensor (``seq(tensor(float))``). ``shape`` has sizes, names of free dimensions, and ``None`` for unknown
    ones. It is empty for a type that is not a tensor.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class CarriedValue:
    """A value that a session keeps between steps: an output of one step that is an input of the next.

    ``input`` and ``output`` are names of the graph (``past_key_values.0.key``, ``present.0.key``). ``shape`` is that of
    the memory that both share, or of the first input if the value grows (``[1, 4, 0, 32]``).
    """

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NodePlacement:
    """One node with the provider that runs it.

    ``provider`` is ONNX Runtime's name, such as ``DmlExecutionProvider``.
    """

    name: str
    op_type: str
    domain: str
    provider: str


@dataclass(frozen=True)
class NodeTiming:
    """The time of one kernel over all runs of the session: ``seconds`` in total, in ``calls`` calls.

    A fused DirectML partition is one kernel. On DirectML, the time is that of recording the work on the CPU, because
    the queue is asynchronous.
    """

    name: str
    op_type: str
    provider: str
    seconds: float
    calls: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a worker in bytes; ``None`` if the system does not report it.

    Attributes:
        peak: the largest use of system memory, including mapped files and shared libraries.
        committed: the largest private memory, on Windows.
        device: the present use of the adapter's own memory and of the system memory that the adapter reads, together.
        device_peak: the largest use of the adapter's own memory; on Windows at the moments of the queries.
        shared_peak: the same for the system memory that the adapter reads.
    """

    peak: int | None = None
    committed: int | None = None
    device: int | None = None
    device_peak: int | None = None
    shared_peak: int | None = None


@dataclass(frozen=True)
class Fp16Traits:
    """How a device rounds FP32 values to FP16, and what it does with values beyond 65504 and with denormals."""

    rounding: Literal["nearest-even", "toward-zero", "other", "unknown"] = "unknown"
    overflow: Literal["infinity", "saturates", "unknown"] = "unknown"
    denormals: Literal["kept", "flushed", "unknown"] = "unknown"


@dataclass(frozen=True)
class DmlStatus:
    """The state of DirectML on this machine: available or not, and how the device computes in FP16.

    Attributes:
        reason: why it is not available; empty if it is available.
        device: the device that answered; ``None`` if there is none.
        fix: the remedy, if the reason does not include it.
        code: why it is not available. DP803: DirectML is missing. DP804: it is broken.
        native_fp16: True: FP16 arithmetic in 16 bits. False: in FP32 with FP16 stores. ``None``: unknown.
    """

    available: bool
    reason: str = ""
    device: DeviceInfo | None = None
    fix: str = ""
    code: Literal["DP803", "DP804"] = "DP803"
    fp16: Fp16Traits = Fp16Traits()
    native_fp16: bool | None = None


_ON_CPU = ("llvmpipe", "lavapipe", "swiftshader")
"""Drivers that compute on the CPU. Vulkan and Wine's DXGI show this only in the adapter's name."""


def is_software(adapter: str) -> bool:
    """Return whether the adapter of this name is one that computes on the CPU."""
    return any(name in adapter.casefold() for name in _ON_CPU)
