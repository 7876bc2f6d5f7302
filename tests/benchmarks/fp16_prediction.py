"""The error of FP16 that the emulation predicts, compared with the error on DirectML, for convolutional networks.

    python -m tests.benchmarks.fp16_prediction                  all networks
    python -m tests.benchmarks.fp16_prediction resnet long_8    some of them
    python -m tests.benchmarks.fp16_prediction model.onnx:N=1   a file, with the sizes to pin

Each network becomes FP16 as a whole, without islands. The last column is the larger error, divided by the smaller one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from dmlprep import api
from fixtures.builder import Net
from tests.fixtures_index import FOLDER

LIMIT = 2.5
"""The largest ratio of the two errors that counts as predicted."""
_PINS = {"batch": 1, "height": 64, "width": 64, "N": 1}
_FILES = ("residual_cnn", "depthwise_cnn", "unet_resize", "detector_raw", "super_resolution", "opset22_cnn")
_SETTINGS = {"step.fp16.islands": "off", "step.fp16.allow": ["little-gain"], "parity.tolerance": "loose"}


def _ended(net: Net, x: str, channels: int, classes: int = 100) -> onnx.ModelProto:
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weights = net.normal(classes, channels, std=channels**-0.5 * 2), net.normal(classes, std=0.05)
    net.output(net.op("Gemm", flat, *weights, transB=1), "logits", "float32", [1, classes])
    return net.model(17)


def resnet() -> onnx.ModelProto:
    """A ResNet-18 of half the width, for pictures of 224 pixels: its last convolutions sum 2304 products."""
    net = Net("resnet", 1)
    x = net.op("Relu", net.batch_norm(net.conv(net.input("x", "float32", [1, 3, 224, 224]), 3, 32, 7, stride=4), 32))
    channels = 32
    for wide in (32, 64, 128, 256):
        for _ in range(2):
            stride = 1 if wide == channels else 2
            y = net.op("Relu", net.batch_norm(net.conv(x, channels, wide, stride=stride, bias=False), wide))
            y = net.batch_norm(net.conv(y, wide, wide, bias=False, gain=0.7), wide)
            short = x if wide == channels else net.conv(x, channels, wide, 1, stride=stride, gain=0.7)
            x, channels = net.op("Relu", net.op("Add", y, short)), wide
    return _calibrated(_ended(net, x, channels))


def mobilenet() -> onnx.ModelProto:
    """A MobileNetV2 for pictures of 224 pixels: 17 blocks. The last ones sum 960 products for 49 pixels."""
    net = Net("mobilenet", 2)
    low, high = net.scalar(0.0), net.scalar(6.0)

    def layer(x: str, cin: int, cout: int, size: int = 1, stride: int = 1, group: int = 1) -> str:
        return net.batch_norm(net.conv(x, cin, cout, size, stride=stride, group=group, bias=False), cout)

    x = net.op("Clip", layer(net.input("x", "float32", [1, 3, 224, 224]), 3, 32, 3, 2), low, high)
    channels = 32
    for expand, wide, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(count):
            stride, inner = first if index == 0 else 1, channels * expand
            y = net.op("Clip", layer(x, channels, inner), low, high) if expand > 1 else x
            y = layer(net.op("Clip", layer(y, inner, inner, 3, stride, inner), low, high), inner, wide)
            x, channels = net.op("Add", x, y) if channels == wide and stride == 1 else y, wide
    return _calibrated(_ended(net, net.op("Clip", layer(x, channels, 1280), low, high), 1280))


def _calibrated(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give each BatchNormalization the mean and variance of its input, as training would; return the same model."""
    weights = {w.name: w for w in model.graph.initializer}
    (fed,) = model.graph.input
    shape = [d.dim_value for d in fed.type.tensor_type.shape.dim]
    feeds = {fed.name: np.random.default_rng(0).standard_normal([4, *shape[1:]]).astype(np.float32)}
    for node in [n for n in model.graph.node if n.op_type == "BatchNormalization"]:
        part = onnx.ModelProto()
        part.CopyFrom(model)
        part.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
        del part.graph.output[:]
        part.graph.output.append(onnx.ValueInfoProto(name=node.input[0]))
        session = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
        (data,) = session.run(None, feeds)
        for name, value in zip(node.input[3:], (data.mean((0, 2, 3)), data.var((0, 2, 3))), strict=True):
            weights[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))
    return model


def unet() -> onnx.ModelProto:
    """A U-Net for pictures of 64 pixels whose middle has 256 channels at 8 x 8 pixels."""
    net = Net("unet", 3)
    x = net.input("x", "float32", [1, 3, 64, 64])
    skips: list[tuple[str, int]] = []
    channels = 3
    for wide in (32, 64, 128):
        x = net.op("Relu", net.conv(net.op("Relu", net.conv(x, channels, wide)), wide, wide))
        skips.append((x, wide))
        x, channels = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), wide
    x, channels = net.op("Relu", net.conv(net.op("Relu", net.conv(x, 128, 256)), 256, 256)), 256
    for skip, wide in reversed(skips):
        up = net.op("ConvTranspose", x, net.normal(channels, wide, 2, 2, std=(1 / channels) ** 0.5), strides=[2, 2])
        x = net.op("Relu", net.conv(net.op("Concat", up, skip, axis=1), 2 * wide, wide))
        channels = wide
    net.output(net.op("Sigmoid", net.conv(x, channels, 1, 1)), "mask", "float32", [1, 1, 64, 64])
    return net.model(17)


def _long(side: int, channels: int) -> Callable[[], onnx.ModelProto]:
    """Return a builder of four convolutions, each of 9 * ``channels`` products for every pixel of a square."""

    def build() -> onnx.ModelProto:
        net = Net("long", side)
        x = net.input("x", "float32", [1, channels, side, side])
        for _ in range(4):
            x = net.op("Relu", net.batch_norm(net.conv(x, channels, channels, bias=False), channels))
        net.output(net.conv(x, channels, 8, 1), "y", "float32", [1, 8, side, side])
        return _calibrated(net.model(17))

    return build


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet": resnet,
    "mobilenet": mobilenet,
    "unet": unet,
    "long_4": _long(4, 256),
    "long_8": _long(8, 256),
    "long_11": _long(11, 256),
    "long_16": _long(16, 256),
    "long_7_512": _long(7, 512),
}


def errors(model: Path, pins: dict[str, int], out: Path) -> tuple[float, float]:
    """Return the largest error of an output in the emulation and on DirectML.

    Raises:
        RuntimeError: one of the two did not run.
    """
    names = {d.dim_param for i in onnx.load(model, load_external_data=False).graph.input
             for d in i.type.tensor_type.shape.dim}  # fmt: skip
    record = api.prepare(
        model, out=out, recipe="@vision-fp16", pins={n: s for n, s in pins.items() if n in names},
        settings=_SETTINGS, require_dml=True, force=True,
    )  # fmt: skip
    by_provider = {v.check.provider: v for v in record.verdicts}
    both = [[o.error for o in by_provider[p].outputs] if p in by_provider else [] for p in ("emulation", "dml")]
    if not all(both):
        raise RuntimeError(str(record.error))
    return max(both[0]), max(both[1])


def main() -> int:
    """Print the table; return 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", default=[*NETWORKS, *_FILES])
    worst = 0.0
    print("| network | emulation | DirectML | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for text in parser.parse_args().models:
            file, _, sizes = text.partition(":")
            path = Path(file) if file.endswith(".onnx") else FOLDER / "models" / f"{file}.onnx"
            if file in NETWORKS:
                path = folder / f"{file}.onnx"
                onnx.save(NETWORKS[file](), path)
            pins = {key: int(size) for key, _, size in (pair.partition("=") for pair in sizes.split(",") if pair)}
            predicted, measured = errors(path, pins or _PINS, folder / "out")
            ratio = max(predicted, measured) / max(min(predicted, measured), 1e-9)
            worst = max(worst, ratio)
            print(f"| {path.stem} | {predicted:.3g} | {measured:.3g} | {ratio:.2f} |", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
