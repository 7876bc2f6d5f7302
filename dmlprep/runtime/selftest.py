"""Check DirectML with small models whose results follow from formulas, before any verdict.

Some graphics drivers open sessions, run, report success and compute wrong results. The expected results come from numpy
in 64 bits, never from another session. The FP16 probe records how the device computes in FP16. Devices differ in this,
which explains differences that are not faults.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.portable.hresult import diagnose
from dmlprep.process.failure import SessionFailure
from dmlprep.runtime.served import SessionHost
from dmlprep.runtime.types import Fp16Traits, SessionOptions

OPSET = 17
"""The opset of the models. Every release since 1.15 has DirectML kernels of this opset for the operators of the
models."""

FP32_BOUND = 1e-5
"""Largest max |d| / max |reference|: for a sum of up to 147 FP32 products, 2^-24 each, with slack for the order."""

FP16_BOUND = 5e-3
"""The same for FP16: inputs and outputs rounded to FP16 (2^-11 to nearest, 2^-10 toward zero), sums of 64 products
in FP32."""

_TIME_LIMIT = 120.0


@dataclass(frozen=True)
class Case:
    """One model with a known result: nodes (onnx.NodeProto), feeds, its one output, and the bound of the error.

    The error is max |d| / max |expected|. Feeds named ``w`` or ``scales`` become constants of the model.
    """

    name: str
    nodes: list[Any]
    feeds: dict[str, np.ndarray]
    expected: np.ndarray
    bound: float


@dataclass(frozen=True)
class SelfTest:
    """The result of the self-test, with the names of the models that passed.

    ``failures`` has one sentence for each failed model, or one if the worker failed. It is empty if the device is
    reliable.
    """

    passed: tuple[str, ...]
    failures: tuple[str, ...]
    fp16: Fp16Traits


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _convolution(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """Return a convolution without padding of [1, C, H, W] with [M, C, K, K], computed in 64 bits."""
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    result: np.ndarray = np.einsum("nchwij,mcij->nmhw", view[:, :, ::stride, ::stride], w.astype(np.float64))
    return result


def cases() -> Iterator[Case]:
    """Yield the models of the self-test."""
    from onnx.helper import make_node as node

    x, w = _random(1, 1, 3, 32, 32), _random(2, 8, 3, 7, 7)
    convolve = [node("Conv", ["x", "w"], ["y"], strides=[2, 2])]
    yield Case("Conv FP32", convolve, {"x": x, "w": w}, _convolution(x, w, 2), FP32_BOUND)
    a, b = _random(3, 2, 33, 64), _random(4, 2, 64, 17)
    multiply = [node("MatMul", ["a", "b"], ["y"])]
    product = a.astype(np.float64) @ b.astype(np.float64)
    yield Case("MatMul FP32", multiply, {"a": a, "b": b}, product, FP32_BOUND)
    ha, hb = a.astype(np.float16), b.astype(np.float16)
    half = (ha.astype(np.float64) @ hb.astype(np.float64)).astype(np.float16)
    yield Case("MatMul FP16", multiply, {"a": ha, "b": hb}, half, FP16_BOUND)
    hx, hw = x.astype(np.float16), (w / 8).astype(np.float16)
    half = _convolution(hx, hw, 2).astype(np.float16)
    yield Case("Conv FP16", convolve, {"x": hx, "w": hw}, half, FP16_BOUND)
    big = np.array([2**40 + 1, -(2**40), 3, -7], np.int64)
    yield Case("Add int64", [node("Add", ["p", "q"], ["y"])], {"p": big, "q": big[::-1].copy()}, big + big[::-1], 0.0)
    image = _random(5, 1, 2, 5, 6)
    sizes = np.repeat(np.repeat(image, 2, axis=2), 3, axis=3)
    modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    resize = node("Resize", ["x", "", "scales"], ["y"], **modes)
    scales = np.array([1, 1, 2, 3], np.float32)
    yield Case("Resize nearest", [resize], {"x": image, "scales": scales}, sizes, 0.0)
    first, second = _random(7, 3, 4, 5), _random(8, 3, 4, 5)
    # DirectML 1.14 refuses this model on the CPU Vulkan driver, and most other models too.
    yield Case("Add FP32", [node("Add", ["p", "q"], ["y"])], {"p": first, "q": second}, first + second, FP32_BOUND)
    logits = _random(6, 4, 50) * 5
    exp = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares = exp / exp.sum(1, keepdims=True)
    yield Case("Softmax FP32", [node("Softmax", ["x"], ["y"], axis=1)], {"x": logits}, shares, FP32_BOUND)
    chain = [
        node("MatMul", ["a", "b"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        node("ReduceMean", ["t"], ["y"], axes=[2], keepdims=0),
    ]
    yield Case("a fused chain", chain, {"a": a, "b": b}, np.maximum(product, 0).mean(axis=1), FP32_BOUND)


def _save(case: Case, path: Path) -> None:
    import onnx
    from onnx import helper

    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in case.feeds.items()}
    constant = {"w", "scales"} & case.feeds.keys()
    output = np.dtype(np.float32) if case.expected.dtype == np.float64 else case.expected.dtype
    graph = helper.make_graph(
        case.nodes,
        "selftest",
        [helper.make_tensor_value_info(n, kinds[n], case.feeds[n].shape) for n in case.feeds if n not in constant],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(output), case.expected.shape)],
        [onnx.numpy_helper.from_array(case.feeds[name], name) for name in sorted(constant)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8), path)


def _run(host: SessionHost, case: Case, folder: Path, adapter: SessionOptions) -> np.ndarray:
    path = folder / "selftest.onnx"
    _save(case, path)
    # No node may run on the CPU instead of DirectML, which would make the test meaningless.
    where = {"device_id": adapter.device_id, "performance_preference": adapter.performance_preference}
    options = SessionOptions(time_limit=_TIME_LIMIT, cpu_fallback=False, **where)  # type: ignore[arg-type]
    with host.open(path, options) as session:
        feeds = {name: array for name, array in case.feeds.items() if name not in ("w", "scales")}
        return session.run(feeds)["y"]


def _fault(actual: np.ndarray, case: Case) -> str:
    if actual.shape != case.expected.shape:
        return f"the shape is {list(actual.shape)}, not {list(case.expected.shape)}"
    difference = np.abs(actual.astype(np.float64) - case.expected.astype(np.float64))
    scale = float(np.abs(case.expected.astype(np.float64)).max())
    worst = float(difference.max()) / scale
    return "" if worst <= case.bound else f"the result is off by {worst:.2g} of its largest value"


def failures_text(failures: Sequence[str]) -> str:
    """Return the failures of a self-test as one line.

    Equal failures of several models appear once, with their number.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for failure in failures:
        alike[_without_numbers(failure.partition(": ")[2] or failure)].append(failure)
    texts = []
    for first, *more in alike.values():
        name, _, fault = first.partition(": ")
        texts.append(f"{len(more) + 1} of the models ({name} ...): {fault}" if more else first)
    return "; ".join(texts)


def _without_numbers(fault: str) -> str:
    """Return the fault without numbers that differ between sessions: addresses, and ``Exception(3) tid(1f)``.

    An HRESULT remains, although it is a number too.
    """
    return f"{diagnose(fault)}" + re.sub(r"\([^()]*\)|\b[0-9A-Fa-f]{8,}\b", "", fault)


def self_test(host: SessionHost, adapter: SessionOptions | None = None) -> SelfTest:
    """Run the models and the FP16 probe on the adapter of ``device_id`` or ``performance_preference``.

    A model that fails in any way counts as one failure, and raises no ``SessionFailure``. If the probe fails, the FP16
    traits are unknown.
    """
    adapter = adapter or SessionOptions()
    passed: list[str] = []
    failures: list[str] = []
    with temporary_folder("selftest") as name:
        folder = Path(name)
        for case in cases():
            try:
                fault = _fault(_run(host, case, folder, adapter), case)
            except SessionFailure as error:
                fault = error.message
            if fault:
                failures.append(f"{case.name}: {fault}")
            else:
                passed.append(case.name)
        try:
            fp16 = _probe_fp16(host, folder, adapter)
        except SessionFailure:
            fp16 = Fp16Traits()
    return SelfTest(tuple(passed), tuple(failures), fp16)


def _probe_fp16(host: SessionHost, folder: Path, adapter: SessionOptions) -> Fp16Traits:
    from onnx import TensorProto, helper

    ulp = 2.0**-10  # of FP16 at 1
    # Above the middle, below it, two ties (one even upward, one even downward), and their negatives.
    probes = 1.0 + ulp * np.array([0.75, 0.25, 0.5, 1.5], np.float32)
    probes = np.concatenate([probes, -probes, np.array([1e6, -1e6, 3 * 2.0**-24, 2.0**-20], np.float32)])
    nearest = probes[:8].astype(np.float16)
    toward_zero = (np.sign(probes[:8]) * np.floor(np.abs(probes[:8]) / ulp) * ulp).astype(np.float16)
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16)]
    cast = _run(host, Case("Cast", nodes, {"x": probes}, np.zeros(probes.shape, np.float16), 1.0), folder, adapter)
    rounding: Literal["nearest-even", "toward-zero", "other"] = "other"
    if np.array_equal(cast[:8], nearest):
        rounding = "nearest-even"
    elif np.array_equal(cast[:8], toward_zero):
        rounding = "toward-zero"
    # A Cast can be exact on a device whose arithmetic flushes denormals, so an addition tests them.
    tiny = np.array([2.0**-20, 3 * 2.0**-24], np.float16)
    add = Case("Add", [helper.make_node("Add", ["a", "b"], ["y"])], {"a": tiny, "b": tiny}, tiny + tiny, 1.0)
    keeps_tiny = np.array_equal(_run(host, add, folder, adapter), tiny + tiny)
    overflow: Literal["infinity", "saturates", "unknown"] = "unknown"
    if np.isinf(cast[8:10]).all():
        overflow = "infinity"
    elif (np.abs(cast[8:10]) == 65504).all():
        overflow = "saturates"
    return Fp16Traits(rounding, overflow, "kept" if keeps_tiny else "flushed")
