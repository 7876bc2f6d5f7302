"""The words of the room: what a session is asked, what it answers, and the protocol that every session keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from dmlprep.record import DeviceInfo

DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""Config key for the folder that external data paths are relative to. With it, the worker hands the model over as
bytes: ONNX Runtime reads the key for those only, and else keeps data files to the model's own folder."""

Dim = int | str | None
"""A size, the name of a free dimension, or nothing known."""

RunValue = np.ndarray | list[np.ndarray] | None
"""What a session gives for one output: a tensor, a sequence of tensors, or an empty optional."""

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
        memory_limit: bytes of private memory that the worker may hold (mapped weight files do not count); 0 for no
            limit, ``None`` for 80 % of the machine's memory, or what the environment variable
            ``DMLPREP_MEMORY_LIMIT`` says.
        model_bytes: bytes of the model's files: memory and processor time of its sessions follow from them and from its
            inputs (``allowance``). ``None``: only ``time_limit`` and ``memory_limit`` hold, as for what runs on a
            device.
        free_dimensions: size by dim_param name, applied to the graph inputs.
        denotations: size by dimension denotation (``DATA_BATCH``), applied to the graph inputs.
        config: further session config entries of ONNX Runtime.
        device_id: DirectML adapter in DXGI's order. ``None``: number 0, unless it is a software adapter, which only its
            number chooses; or what ``performance_preference`` asks for.
        performance_preference: DirectML adapter by preference; not together with ``device_id``.
        disable_metacommands: DirectML's own shaders in place of the vendor's kernels.
        unfused: DirectML runs each node by itself (``ep.dml.disable_graph_fusion``).
        cpu_fallback: nodes that DirectML does not take run on the CPU; else loading such a model fails.
        profile: record the time of each node, for ``Session.timings``.
        record_placement: record which provider each node went to, for ``Session.placement``.
        log_level: least severity that ONNX Runtime writes to the log of the worker, 0 (verbose) to 4 (fatal).
        open_by: how DirectML is chosen, on Windows: by ``provider``, the list of a session; by ``device``, that of ONNX
            Runtime with the adapter's number; or by ``policy``, ONNX Runtime's own choice that prefers a GPU. The last
            two, which applications of Windows ML use, need ONNX Runtime 1.23.
        release: of ONNX Runtime, for DirectML on Linux: the installed one that is nearest (``release_for``); empty for
            the default one. Elsewhere there is one.
        gpu: for DirectML on Linux: the GPU by ``auto``, its number or a part of its name; empty for lavapipe, which
            computes on the CPU.
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
    is no tensor (``seq(tensor(float))``). ``shape`` has sizes, names of free dimensions, ``None`` for unknown; it is
    empty for what is no tensor.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Kept:
    """A value that stays with a session from one step to the next: an output that the next step gets as an input.

    ``input`` and ``output`` are names of the graph (``past_key_values.0.key``, ``present.0.key``). ``shape`` is that of
    the memory that both share, or of the first input where the value grows (``[1, 4, 0, 32]``).
    """

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NodePlacement:
    """Where one node went: ``provider`` is ONNX Runtime's name (``DmlExecutionProvider``, ``CPUExecutionProvider``)."""

    name: str
    op_type: str
    domain: str
    provider: str


@dataclass(frozen=True)
class NodeTiming:
    """Time of one kernel, over all runs of the session: ``seconds`` in all, in ``calls`` calls.

    A fused DirectML partition is one kernel. On DirectML the time is that of recording the work on the CPU side, not
    of the work itself: the queue runs on.
    """

    name: str
    op_type: str
    provider: str
    seconds: float
    calls: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a worker, in bytes; ``None`` where the system does not tell.

    Attributes:
        peak: the most that lay in the machine's memory at once: mapped files and shared libraries count.
        committed: the most private memory at once, on Windows.
        device: what it holds now of the adapter's own memory and of the machine's that the adapter reads.
        device_peak: the most of the adapter's own memory at once; on Windows of the moments at which it was asked.
        shared_peak: the same of the machine's memory that the adapter reads.
    """

    peak: int | None = None
    committed: int | None = None
    device: int | None = None
    device_peak: int | None = None
    shared_peak: int | None = None


@dataclass(frozen=True)
class Fp16Traits:
    """What a device does with FP16: with FP32 values that become FP16, with those beyond 65504, with FP16 denormals."""

    rounding: Literal["nearest-even", "toward-zero", "other", "unknown"] = "unknown"
    overflow: Literal["infinity", "saturates", "unknown"] = "unknown"
    denormals: Literal["kept", "flushed", "unknown"] = "unknown"


@dataclass(frozen=True)
class DmlStatus:
    """Whether a DirectML session can be had here, and what it does with FP16.

    Attributes:
        reason: why not, empty when it can.
        fix: how the user mends it, where the reason does not say.
        code: DP803, there is none, or DP804, what is there is broken.
        native_fp16: FP16 arithmetic in 16 bits; else in FP32 with FP16 stores. ``None``: not known.
    """

    available: bool
    reason: str = ""
    device: DeviceInfo | None = None
    fix: str = ""
    code: Literal["DP803", "DP804"] = "DP803"
    fp16: Fp16Traits = Fp16Traits()
    native_fp16: bool | None = None


_ON_CPU = ("llvmpipe", "lavapipe", "swiftshader")
"""Drivers that compute on the CPU. Vulkan and Wine's DXGI have no other sign of them than the adapter's name."""


def is_software(adapter: str) -> bool:
    """Whether the adapter of this name computes on the CPU."""
    return any(name in adapter.casefold() for name in _ON_CPU)
