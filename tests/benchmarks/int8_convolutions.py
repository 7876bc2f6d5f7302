"""Convolutions whose weight is int8 behind DequantizeLinear: which forms DirectML computes right, and what they gain.

    python -m tests.benchmarks.int8_convolutions [--release 1.24.4]           forms, then memory, load and time
    python -m tests.benchmarks.int8_convolutions --only gains --form float16
    python -m tests.benchmarks.int8_convolutions --write FOLDER --size 224    the networks, for ``dmlprep bench``

Forms are graphs of one DequantizeLinear and one convolution, against the formula in float64. The gains are those of a
network with the convolutions of ResNet-50 (23.5 million weights from a seed, no fully connected layer), once with
plain weights and once with each form; ``kept`` is the number of DequantizeLinear nodes that the session has.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnx.reference
from onnx import helper, numpy_helper

import dmlprep
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, dml_host, dml_status

Array = np.ndarray[Any, Any]
Zero = Literal["none", "zeros", "some"]

CLOSE = {"float32": 1e-5, "float16": 4e-3}
"""max|difference| / max|reference|; those of ``fused_kernels``."""

KIND = {"float32": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16}

STAGES = ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))
"""Blocks, inner and outer channels of ResNet-50 (He et al. 2015, table 1)."""


@dataclass(frozen=True)
class Form:
    """How the weight of a convolution is stored.

    Attributes:
        opset: of the model; 17 has DequantizeLinear-13, 20 has 19, 21 has 21.
        dtype: of the activations.
        stored: ``plain``, ``dequantize`` with scales of the activations' type, ``contrib`` for com.microsoft's
            DequantizeLinear, ``cast`` for FP32 scales and a Cast behind, ``arithmetic`` for Cast and Mul.
        channels: a scale for each output channel; else one for the tensor.
        zero: zero points: none, zeros, or any number.
    """

    opset: int = 20
    dtype: str = "float16"
    stored: Literal["plain", "dequantize", "contrib", "cast", "arithmetic"] = "dequantize"
    channels: bool = True
    zero: Zero = "none"

    def __str__(self) -> str:
        if self.stored == "plain":
            return f"{self.dtype}, plain weights"
        each = "a scale a channel" if self.channels else "one scale"
        zero = {"none": "no zero points", "zeros": "zero points of 0", "some": "zero points"}[self.zero]
        return f"{self.dtype}, opset {self.opset}, {self.stored}, {each}, {zero}"


class Network:
    """A graph that grows by convolutions."""

    def __init__(self, form: Form) -> None:
        self.form, self.nodes, self.tensors = form, list[onnx.NodeProto](), list[onnx.TensorProto]()

    def constant(self, name: str, values: Array) -> str:
        self.tensors.append(numpy_helper.from_array(values, name))
        return name

    def weight(self, name: str, values: Array, axis: int) -> str:
        """``values`` [channels in and out, sizes] as the form stores them; the name of what the convolution reads."""
        form = self.form
        if form.stored == "plain":
            return self.constant(name, values.astype(form.dtype))
        over = tuple(n for n in range(values.ndim) if n != axis) if form.channels else None
        top = np.abs(values).max(over, keepdims=True)
        scale = (np.maximum(top, 1e-6) / 127).astype(form.dtype if form.stored != "cast" else np.float32)
        rng = np.random.default_rng(len(self.tensors))
        zeros = rng.integers(-20, 20, scale.shape) if form.zero == "some" else np.zeros(scale.shape, int)
        numbers = np.clip(np.rint(values / scale.astype(np.float64)) + zeros, -128, 127).astype(np.int8)
        kind, flat = KIND[form.dtype], (-1,) if form.channels else ()
        stored = self.constant(f"{name}_numbers", numbers)
        if form.stored == "arithmetic":
            scales = self.constant(f"{name}_scales", scale)
            self.nodes.append(helper.make_node("Cast", [stored], [f"{name}_wide"], f"{name}_cast", to=kind))
            self.nodes.append(helper.make_node("Mul", [f"{name}_wide", scales], [name], f"{name}_mul"))
            return name
        inputs = [stored, self.constant(f"{name}_scales", scale.reshape(flat))]
        if form.zero != "none":
            inputs.append(self.constant(f"{name}_zeros", zeros.astype(np.int8).reshape(flat)))
        out = f"{name}_wide" if form.stored == "cast" and form.dtype != "float32" else name
        domain = "com.microsoft" if form.stored == "contrib" else ""
        label = f"{name}_dequantize"
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [out], label, domain=domain, axis=axis))
        if out != name:
            self.nodes.append(helper.make_node("Cast", [out], [name], f"{name}_cast", to=kind))
        return name

    def model(self, inputs: dict[str, tuple[int, ...]], outputs: list[str]) -> onnx.ModelProto:
        kind = KIND[self.form.dtype]
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs], self.tensors,
        )  # fmt: skip
        imports = [helper.make_opsetid("", self.form.opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=8 if self.form.opset < 19 else 10)
        return onnx.shape_inference.infer_shapes(made)


CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "Conv 3x3": ("Conv", (1, 8, 9, 9), (12, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "Conv 3x3, as many channels out as columns": ("Conv", (1, 8, 9, 9), (3, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "Conv 3x3, all sizes alike": ("Conv", (1, 3, 9, 9), (3, 3, 3, 3), {}),
    "Conv 1x1": ("Conv", (2, 64, 7, 7), (48, 64, 1, 1), {}),
    "Conv 3x3 in groups": ("Conv", (1, 16, 9, 9), (32, 4, 3, 3), {"group": 4, "strides": [2, 2]}),
    "Conv depthwise": ("Conv", (1, 32, 9, 9), (32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    "Conv of one dimension": ("Conv", (1, 16, 20), (24, 16, 3), {"dilations": [2]}),
    "Conv of three dimensions": ("Conv", (1, 4, 5, 6, 7), (6, 4, 3, 3, 3), {}),
    "ConvTranspose": ("ConvTranspose", (1, 8, 6, 6), (8, 12, 3, 3), {"strides": [2, 2]}),
    "ConvTranspose in groups": ("ConvTranspose", (1, 8, 6, 6), (8, 5, 3, 3), {"strides": [2, 2], "group": 2}),
}
"""Name -> operator, shapes of data and weight, attributes."""


def forms() -> Iterator[Form]:
    """All forms that are written, of both types."""
    for dtype, opset, channels, zero in itertools.product(
        ("float32", "float16"), (17, 20, 21), (True, False), ("none", "zeros", "some")
    ):
        yield Form(opset, dtype, "cast" if opset == 17 and dtype == "float16" else "dequantize", channels, zero)
        if opset != 20:
            yield Form(opset, dtype, "contrib", channels, zero)


def one(kind: str, form: Form) -> tuple[onnx.ModelProto, dict[str, Array], Array]:
    """A graph with one convolution: the model, what it is fed, and what the formula gives (of the stored numbers)."""
    op, data, shape, attributes = CONVOLUTIONS[kind]
    rng = np.random.default_rng(len(kind))
    # A scale of ConvTranspose goes along axis 1, whose channels all groups share.
    axis = 0 if op == "Conv" else 1
    values = rng.standard_normal(shape) * rng.uniform(0.2, 2.0, [n if a == axis else 1 for a, n in enumerate(shape)])
    net = Network(form)
    name = net.weight("w", values, axis)
    net.nodes.append(helper.make_node(op, ["x", name], ["y"], "conv", **attributes))
    x = rng.standard_normal(data).astype(form.dtype)
    model = net.model({"x": data}, ["y"])
    parts = {t.name: numpy_helper.to_array(t) for t in net.tensors}
    scale = parts["w_scales"].astype(np.float64)
    spread = [-1 if a == axis else 1 for a in range(len(shape))] if scale.size > 1 else [1] * len(shape)
    zeros = parts.get("w_zeros", np.zeros(scale.shape)).astype(np.float64).reshape(spread)
    weight = (parts["w_numbers"].astype(np.float64) - zeros) * scale.reshape(spread)
    return model, {"x": x}, _formula(op, x.astype(np.float64), weight, attributes)


def _formula(op: str, x: Array, weight: Array, attributes: dict[str, Any]) -> Array:
    """In float64, one group after the other: onnx's reference of ConvTranspose takes no groups."""
    rest = {key: value for key, value in attributes.items() if key != "group"}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], **rest)], "reference",
        [helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None) for name in ("x", "w")],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    evaluator, groups = onnx.reference.ReferenceEvaluator(model), attributes.get("group", 1)
    parts = zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True)
    return np.concatenate([evaluator.run(None, {"x": a, "w": b})[0] for a, b in parts], 1)


def resnet(form: Form, size: int, width: float = 1.0, seed: int = 1) -> onnx.ModelProto:
    """The convolutions of ResNet-50 with their biases, Relu and sums; the mean of the last picture comes out.

    ``width`` is a factor of all channels.
    """
    rng, net, count = np.random.default_rng(seed), Network(form), itertools.count()

    def conv(x: str, into: int, out: int, kernel: int, stride: int = 1, relu: bool = True) -> str:
        n = next(count)
        values = rng.standard_normal((out, into, kernel, kernel)) * np.sqrt(1.0 / (into * kernel * kernel))
        weight = net.weight(f"w{n}", values, 0)
        bias = net.constant(f"b{n}", (rng.standard_normal(out) * 0.01).astype(form.dtype))
        net.nodes.append(
            helper.make_node(
                "Conv", [x, weight, bias], [f"c{n}"], f"conv{n}", strides=[stride] * 2, pads=[kernel // 2] * 4
            )
        )
        if relu:
            net.nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"], f"relu{n}"))
        return f"r{n}" if relu else f"c{n}"

    channels = round(64 * width)
    x = conv("x", 3, channels, 7, 2)
    net.nodes.append(
        helper.make_node("MaxPool", [x], ["pooled"], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    )
    x = "pooled"
    for stage, (blocks, narrow, wide) in enumerate(STAGES):
        inner, outer = round(narrow * width), round(wide * width)
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = conv(x, channels, inner, 1)
            y = conv(y, inner, inner, 3, stride)
            y = conv(y, inner, outer, 1, relu=False)
            side = conv(x, channels, outer, 1, stride, relu=False) if not block else x
            net.nodes.append(helper.make_node("Add", [y, side], [f"sum{stage}_{block}"]))
            net.nodes.append(helper.make_node("Relu", [f"sum{stage}_{block}"], [f"out{stage}_{block}"]))
            x, channels = f"out{stage}_{block}", outer
    net.nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"]))
    return net.model({"x": (1, 3, size, size)}, ["y"])


NETWORKS = (
    Form(20, "float32", "plain"),
    Form(20, "float32"),
    Form(20, "float32", zero="zeros"),
    Form(21, "float32"),
    Form(17, "float32", "contrib", zero="zeros"),
    Form(20, "float16", "plain"),
    Form(20, "float16"),
    Form(20, "float16", zero="zeros"),
    Form(20, "float16", channels=False),
    Form(21, "float16"),
    Form(17, "float16", "contrib", zero="zeros"),
    Form(17, "float16", "cast"),
    Form(20, "float16", "arithmetic"),
)


def tell_forms(host: SessionHost, folder: Path, word: str) -> None:
    for form in forms():
        if word not in str(form):
            continue
        faults, aside = [], set[str]()
        for kind in CONVOLUTIONS:
            model, feeds, expected = one(kind, form)
            onnx.save(model, folder / "one.onnx")
            try:
                session = host.open(folder / "one.onnx", SessionOptions(record_placement=True))
                got = session.run(feeds)["y"].astype(np.float64)
                aside |= {n.op_type for n in session.placement() if "Dml" not in n.provider}
                session.close()
            except SessionFailure as failure:
                faults.append(f"{kind}: {failure.kind} fails, {' '.join(failure.message.split())[:120]}")
                continue
            worst = float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))
            if not worst <= CLOSE[form.dtype]:
                faults.append(f"{kind}: wrong numbers, {worst:.2g}")
        on = f"; not on DirectML: {', '.join(sorted(aside))}" if aside else ""
        print(f"{form}: {len(CONVOLUTIONS) - len(faults)} of {len(CONVOLUTIONS)} right{on}", flush=True)
        for fault in faults:
            print(f"    {fault}", flush=True)


def written(folder: Path, size: int, word: str, width: float = 1.0) -> Iterator[tuple[Form, Path]]:
    """The networks, one file each."""
    for number, form in enumerate(NETWORKS):
        if word not in str(form):
            continue
        path = folder / f"{number:02d}.onnx"
        onnx.save(resnet(form, size, width), path)
        yield form, path


def tell_gains(release: str, folder: Path, size: int, runs: int, word: str) -> None:
    x, exact = np.random.default_rng(7).standard_normal((1, 3, size, size)), None
    print("       MB:  file  device  estimate  shared   load s   ms a run   error  kept  not on DirectML")
    for form, path in written(folder, size, word):
        with dml_host(release) as host:
            began = time.perf_counter()
            session = host.open(path, SessionOptions(record_placement=True))
            loaded = time.perf_counter() - began
            feeds = {"x": x.astype(form.dtype)}
            y = session.run(feeds)["y"].astype(np.float64)
            held, placed, spent = host.memory(), session.placement(), []
            for _ in range(runs):
                began = time.perf_counter()
                session.run(feeds)
                spent.append(time.perf_counter() - began)
        exact = y if exact is None else exact
        found = dmlprep.check(path).facts.memory
        aside = {n.op_type for n in placed if "Dml" not in n.provider}
        print(
            f"{form}\n         {path.stat().st_size / 1e6:>8.1f}{(held.device_peak or 0) / 1e6:>8.1f}"
            f"{(found.peak if found else 0) / 1e6:>10.1f}{(held.shared_peak or 0) / 1e6:>8.1f}{loaded:>9.2f}"
            f"{np.median(spent) * 1e3 if spent else 0:>11.1f}{np.max(np.abs(y - exact)) / np.max(np.abs(exact)):>9.2g}"
            f"{sum(n.op_type == 'DequantizeLinear' for n in placed):>5}  {', '.join(sorted(aside)) or '-'}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    parser.add_argument("--only", choices=("forms", "gains"))
    parser.add_argument("--form", default="", help="only forms whose description has this text")
    parser.add_argument("--size", type=int, default=64, help="height and width of the network's picture")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each network")
    parser.add_argument("--width", type=float, default=1.0, help="of the networks that --write writes")
    parser.add_argument("--write", type=Path, help="write the networks into this folder, and stop")
    arguments = parser.parse_args()
    if arguments.write is not None:
        arguments.write.mkdir(parents=True, exist_ok=True)
        for form, path in written(arguments.write, arguments.size, arguments.form, arguments.width):
            print(f"{path.name}: {form}")
        return 0
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    print(status.device)
    with tempfile.TemporaryDirectory() as name:
        if arguments.only != "gains":
            with dml_host(arguments.release) as host:
                tell_forms(host, Path(name), arguments.form)
        if arguments.only != "forms":
            tell_gains(arguments.release, Path(name), arguments.size, arguments.runs, arguments.form)
    return 0


if __name__ == "__main__":
    sys.exit(main())
