"""Measure the speed of a GPU with small models on DirectML, and bound the time of other models by it.

Each part of a run takes at least the time of its arithmetic, and at least that of its reads and writes of memory. This
is the roofline model (S. Williams, A. Waterman and D. Patterson, Communications of the ACM 52, 2009).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dmlprep.core.errors import CheckNotRun, OutputError
from dmlprep.core.files import cached_json
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import to_compact
from dmlprep.directml.placement.table import recorded_name
from dmlprep.directml.vram.work import Work
from dmlprep.record import DeviceInfo
from dmlprep.record.speed import Bound, DeviceSpeed, PartBound, Timed
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, dml_host
from dmlprep.runtime.environment import cache_folder

ELEMENTS = 1 << 26
"""Elements of the tensor that measures the memory: 256 MB in FP32, more than the caches of a GPU hold."""

SIDE = 4096
"""Rows and columns of the matrices that measure the arithmetic; a quarter on a slow GPU."""

CHANNELS, PIXELS = 256, 128
"""Channels, and rows and columns, of the picture of the convolution that measures the arithmetic."""

_RUNS, _SECONDS = 200, 0.5
"""Most runs of each model, and seconds for them. The fastest counts."""

_LONGEST = 0.5
"""Longest time of a run in seconds: Windows resets a GPU that works for two seconds."""

_PARTS = 64
"""Most fused graphs in a record."""

_LARGEST = 1 << 16
"""Largest size in bytes of a file of the cache."""

_VERSION = 1
"""Version of the measurement, a part of the cache's keys."""


def speed_folder() -> Path | None:
    """Return the folder with the speeds of devices, which may not exist; ``None`` if the user has no cache folder."""
    cache = cache_folder()
    return None if cache is None else cache / "dmlprep" / "devices"


def device_speed(
    device: DeviceInfo, measure: Callable[[], DeviceSpeed | None], folder: Path | None = None
) -> DeviceSpeed | None:
    """Return the speed of a device from the cache, or measure and cache it; ``None`` if that is not possible.

    Args:
        device: the device; its text (name and details) and the version of this measurement are the key.
        measure: measures the speed.
        folder: folder of the cache; ``None``: ``speed_folder``.
    """
    folder = folder or speed_folder()
    key = hashlib.sha256(f"{_VERSION} {device}".encode()).hexdigest()
    path = None if folder is None else folder / f"{key}.json"
    if path is not None and (cached := cached_json(path, DeviceSpeed, _LARGEST)) is not None and _is_usable(cached):
        return cached
    speed = measure()
    if speed is not None and path is not None:
        with contextlib.suppress(OSError, OutputError):  # a cache that cannot be written costs time only
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, to_compact(speed))
    return speed


def _is_usable(speed: DeviceSpeed) -> bool:
    rates = (speed.memory_fp32, speed.memory_fp16, speed.arithmetic_fp32, speed.arithmetic_fp16)
    # No device is slower than 1 per second, and smaller rates give infinite times.
    return all(isfinite(one) and one >= 1 for one in rates) and all(
        isfinite(one) and one >= 0 for one in (speed.launch_seconds, speed.copy_seconds)
    )


def measure_speed(session: SessionOptions) -> DeviceSpeed | None:
    """Measure the device of a session; ``None`` if it is not available, or a model does not run on it."""
    options = replace(session, cpu_fallback=False)
    try:
        with dml_host(session=options) as host, temporary_folder("device") as folder:
            return _measured(host, options, Path(folder) / "model.onnx")
    except (SessionFailure, CheckNotRun):
        return None


def _measured(host: SessionHost, session: SessionOptions, path: Path) -> DeviceSpeed:
    def fastest(shape: Sequence[int], dtype: type[np.floating[Any]], op: str, *, copies: bool = False) -> float:
        feed = _save(path, op, shape, dtype)
        with host.open(path, session) as opened:
            opened.bind(feed)
            opened.time(_RUNS, _SECONDS, on_device=not copies)
            return min(opened.time(_RUNS, _SECONDS, on_device=not copies))

    launch = fastest([1], np.float32, "Neg")
    copies = fastest([1], np.float32, "Neg", copies=True)

    def memory(dtype: type[np.floating[Any]]) -> float:
        moved = 2 * ELEMENTS * np.dtype(dtype).itemsize
        return moved / _beyond(launch, fastest([ELEMENTS], dtype, "Neg"))

    def arithmetic(dtype: type[np.floating[Any]]) -> float:
        side = SIDE // 4
        seconds = fastest([side, side], dtype, "MatMul")
        if 4**3 * seconds < _LONGEST:
            side = SIDE
            seconds = fastest([side, side], dtype, "MatMul")
        product = 2 * side**3 / _beyond(launch, seconds)
        picture = [1, CHANNELS, PIXELS, PIXELS]
        convolution = 2 * 9 * CHANNELS**2 * PIXELS**2 / _beyond(launch, fastest(picture, dtype, "Conv"))
        return max(product, convolution)

    return DeviceSpeed(
        memory_fp32=memory(np.float32),
        memory_fp16=memory(np.float16),
        arithmetic_fp32=arithmetic(np.float32),
        arithmetic_fp16=arithmetic(np.float16),
        launch_seconds=launch,
        copy_seconds=max(copies - launch, 0.0),
        measured=f"{datetime.now(UTC):%Y-%m-%d}",
    )


def _beyond(launch: float, seconds: float) -> float:
    """Return the time of a run without its launch; at least a hundredth, if noise makes the launch longer."""
    return max(seconds - launch, seconds / 100)


def _save(path: Path, op: str, shape: Sequence[int], dtype: type[np.floating[Any]]) -> dict[str, np.ndarray]:
    """Write a model of one node with the input ``x`` and the output ``y`` of the same shape, and return its feed."""
    import onnx
    from onnx import helper, numpy_helper

    # Values that are not all equal: a GPU needs less power, and is faster, with zeros.
    draw = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = draw.random(shape, np.float32).astype(dtype)
    inputs, weights = ["x"], []
    more: dict[str, Any] = {}
    if op == "MatMul":
        inputs = ["x", "x"]
    elif op == "Conv":
        w = draw.random((shape[1], shape[1], 3, 3), np.float32).astype(dtype) / dtype(9 * shape[1])
        inputs, weights, more = ["x", "w"], [numpy_helper.from_array(w, "w")], {"pads": [1, 1, 1, 1]}
    values = (helper.make_tensor_value_info(name, kind, shape) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **more)], "speed", [next(values)], [next(values)], weights
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": x}


def bound(works: Sequence[Work], speed: DeviceSpeed, row: Timed) -> Bound | None:
    """Return the least time of a run of a model; ``None`` if it was not timed, or has no work on DirectML.

    Args:
        works: the work of its fused graphs and of the nodes outside of them, which run one after the other.
        row: its times. The share is of runs with inputs and outputs on the device, or if these were not timed, of runs
            with both copies.
    """
    if row.times is None or not works:
        return None
    seconds = speed.launch_seconds
    limits: dict[Literal["arithmetic", "memory", "launch"], float]
    limits = {"launch": seconds, "arithmetic": 0.0, "memory": 0.0}
    parts = []
    for work in works:
        arithmetic = work.half / speed.arithmetic_fp16 + work.single / speed.arithmetic_fp32
        memory = work.nbytes / speed.memory
        least = max(arithmetic, memory)
        limits["arithmetic" if arithmetic > memory else "memory"] += least
        seconds += least
        if work.fused:
            parts.append(PartBound(recorded_name(work.label), work.nodes, work.half + work.single, work.nbytes, least))
    best, took = seconds, row.times.median
    if row.on_device is not None:
        took = row.on_device.median
    else:
        best += speed.copy_seconds
    return Bound(
        flops=sum(work.half + work.single for work in works),
        nbytes=sum(work.nbytes for work in works),
        seconds=seconds,
        limit=max(limits, key=lambda name: limits[name]),
        share=best / took if took else 0.0,
        parts=tuple(sorted(parts, key=lambda part: -part.seconds)[:_PARTS]),
        unknown=sum(work.unknown for work in works),
    )
