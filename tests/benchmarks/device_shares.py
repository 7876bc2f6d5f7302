"""The share of a GPU's speed that eight models of real size reach: a table for docs/figures.md.

``python -m tests.benchmarks.device_shares FOLDER [--gpu auto] [--only NAME,...] [--seconds 5] [--fp32]``:

1. It writes the models, with random weights and fixed sizes, into FOLDER.
2. It prepares each in FP16, on the CPU. Later runs use the files again.
3. It times both on DirectML, and prints a row for each. FOLDER/shares.json has all numbers.

``--write`` leaves the third step out, for a machine without a GPU. A device that computes on the CPU has no shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dmlprep
from dmlprep.core.errors import DmlprepError
from dmlprep.core.text.documents import to_json
from dmlprep.core.text.sizes import seconds_text
from dmlprep.portable.shares import percent
from dmlprep.record.speed import Timed
from dmlprep.report.speed import scaled, speed_text
from fixtures.builder import Net

_OPSET = 17


def _head(net: Net, x: str, channels: int, classes: int = 1000) -> onnx.ModelProto:
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    net.output(net.linear(flat, channels, classes), "logits", "float32", [1, classes])
    return net.model(_OPSET)


def resnet50() -> onnx.ModelProto:
    """ResNet-50, 224 x 224."""
    net = Net("resnet50", 1)
    x = net.op("Relu", net.conv(net.input("x", "float32", [1, 3, 224, 224]), 3, 64, 7, stride=2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(blocks):
            stride = 2 if index == 0 and width > 64 else 1
            y = net.op("Relu", net.conv(x, before, width, 1))
            y = net.op("Relu", net.conv(y, width, width, stride=stride))
            y = net.conv(y, width, 4 * width, 1, gain=0.5)
            short = x if index else net.conv(x, before, 4 * width, 1, stride=stride, gain=1.0)
            x, before = net.op("Relu", net.op("Add", y, short)), 4 * width
    return _head(net, x, before)


def mobilenet() -> onnx.ModelProto:
    """MobileNetV2, 224 x 224."""
    net = Net("mobilenet", 2)
    low, high = net.scalar(0.0), net.scalar(6.0)
    x, before = net.op("Clip", net.conv(net.input("x", "float32", [1, 3, 224, 224]), 3, 32, stride=2), low, high), 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for times, width, count, first in rows:
        for index in range(count):
            inner, stride = before * times, first if index == 0 else 1
            y = net.op("Clip", net.conv(x, before, inner, 1), low, high)
            y = net.op("Clip", net.conv(y, inner, inner, stride=stride, group=inner), low, high)
            y = net.conv(y, inner, width, 1, gain=0.7)
            x, before = net.op("Add", x, y) if stride == 1 and before == width else y, width
    return _head(net, net.op("Clip", net.conv(x, before, 1280, 1), low, high), 1280)


def _layer(net: Net, x: str, width: int, heads: int, *, text: str = "", context: int = 0) -> str:
    y = net.layer_norm(x, width)
    x = net.op("Add", x, net.attention(y, y, width, heads))
    if text:
        y = net.layer_norm(x, width)
        x = net.op("Add", x, net.attention(y, text, width, heads, context=context))
    y = net.gelu(net.linear(net.layer_norm(x, width), width, 4 * width))
    return net.op("Add", x, net.linear(y, 4 * width, width))


def bert_base() -> onnx.ModelProto:
    """BERT base, 1 x 128 tokens."""
    net, width = Net("bert_base", 3), 768
    ids = net.input("input_ids", "int64", [1, 128])
    x = net.op("Gather", net.normal(30_522, width, std=0.5), ids, axis=0)
    for _ in range(12):
        x = _layer(net, x, width, 12)
    net.output(net.layer_norm(x, width), "last_hidden_state", "float32", [1, 128, width])
    return net.model(_OPSET)


def vit_base() -> onnx.ModelProto:
    """ViT base, 196 patches of 16 x 16."""
    net, width = Net("vit_base", 4), 768
    x = net.conv(net.input("x", "float32", [1, 3, 224, 224]), 3, width, 16, stride=16, pad=0, gain=1.0)
    x = net.op("Transpose", net.op("Reshape", x, net.ints(1, width, 196)), perm=[0, 2, 1])
    for _ in range(12):
        x = _layer(net, x, width, 12)
    net.output(net.layer_norm(x, width), "last_hidden_state", "float32", [1, 196, width])
    return net.model(_OPSET)


def decoder() -> onnx.ModelProto:
    """A decoder of 12 layers, one token after 255: it reads each weight for one product."""
    net, width, heads, past = Net("decoder", 5), 1024, 16, 255
    x = net.op("Gather", net.normal(32_000, width, std=0.5), net.input("input_ids", "int64", [1, 1]), axis=0)
    size = width // heads
    for index in range(12):
        keys, values = (net.input(f"past_{index}_{one}", "float32", [1, heads, past, size]) for one in "kv")
        y = net.layer_norm(x, width)
        q, k, v = (net.heads(net.linear(y, width, width), heads, size) for _ in range(3))
        k, v = net.op("Concat", keys, k, axis=2), net.op("Concat", values, v, axis=2)
        y = net.merge(net.scores(q, k, size), v, width)
        x = net.op("Add", x, net.linear(y, width, width))
        y = net.gelu(net.linear(net.layer_norm(x, width), width, 4 * width))
        x = net.op("Add", x, net.linear(y, 4 * width, width))
    net.output(net.linear(net.layer_norm(x, width), width, 32_000), "logits", "float32", [1, 1, 32_000])
    return net.model(_OPSET)


def speech_encoder() -> onnx.ModelProto:
    """The encoder of Whisper base: 30 seconds."""
    net, width = Net("speech_encoder", 6), 512
    x = net.gelu(net.conv(net.input("x", "float32", [1, 80, 3000]), 80, width, rank=1))
    x = net.gelu(net.conv(x, width, width, stride=2, rank=1))
    x = net.op("Transpose", x, perm=[0, 2, 1])
    for _ in range(6):
        x = _layer(net, x, width, 8)
    net.output(net.layer_norm(x, width), "last_hidden_state", "float32", [1, 1500, width])
    return net.model(_OPSET)


def unet() -> onnx.ModelProto:
    """A diffusion UNet of two levels with cross-attention, 64 x 64."""
    net, context = Net("unet", 7), 768
    text = net.input("text", "float32", [1, 77, context])

    def block(x: str, before: int, width: int, side: int) -> str:
        y = net.silu(net.group_norm(x, before, 32, [1, before, side, side]))
        y = net.silu(net.group_norm(net.conv(y, before, width), width, 32, [1, width, side, side]))
        y = net.conv(y, width, width, gain=0.7)
        return net.op("Add", y, x if before == width else net.conv(x, before, width, 1, gain=0.7))

    def attend(x: str, width: int, side: int) -> str:
        y = net.op("Transpose", net.op("Reshape", x, net.ints(1, width, side * side)), perm=[0, 2, 1])
        y = net.op("Transpose", _layer(net, y, width, 8, text=text, context=context), perm=[0, 2, 1])
        return net.op("Reshape", y, net.ints(1, width, side, side))

    x = skip = attend(block(net.conv(net.input("x", "float32", [1, 4, 64, 64]), 4, 320), 320, 320, 64), 320, 64)
    x = net.conv(x, 320, 640, stride=2)
    for _ in range(2):
        x = attend(block(x, 640, 640, 32), 640, 32)
    scales = net.weight(np.array([1, 1, 2, 2], np.float32))
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = net.op("Concat", net.op("Resize", x, "", scales, **modes), skip, axis=1)
    x = attend(block(x, 960, 320, 64), 320, 64)
    net.output(net.conv(x, 320, 4), "y", "float32", [1, 4, 64, 64])
    return net.model(_OPSET)


def super_resolution() -> onnx.ModelProto:
    """Eight residual blocks of 64 channels, 360 x 640 to 720 x 1280."""
    net = Net("super_resolution", 8)
    x = first = net.conv(net.input("x", "float32", [1, 3, 360, 640]), 3, 64)
    for _ in range(8):
        x = net.op("Add", x, net.conv(net.op("Relu", net.conv(x, 64, 64)), 64, 64, gain=0.5))
    x = net.conv(net.op("Add", x, first), 64, 12)
    net.output(net.op("DepthToSpace", x, blocksize=2), "y", "float32", [1, 3, 720, 1280])
    return net.model(_OPSET)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "resnet50": (resnet50, "@vision-fp16"),
    "mobilenet": (mobilenet, "@vision-fp16"),
    "bert_base": (bert_base, "@transformer-fp16"),
    "vit_base": (vit_base, "@transformer-fp16"),
    "decoder": (decoder, "@transformer-fp16"),
    "speech_encoder": (speech_encoder, "@speech-fp16"),
    "unet": (unet, "@diffusion-fp16"),
    "super_resolution": (super_resolution, "@super-resolution-fp16"),
}


def files(folder: Path, name: str, *, half: bool) -> Iterator[tuple[str, Path]]:
    """The model in FP32 and, if it can be prepared, in FP16; files that exist are used again."""
    build, recipe = MODELS[name]
    path, out = folder / f"{name}.onnx", folder / f"{name}-fp16"
    if not path.exists():
        onnx.save(build(), path)
    yield "FP32", path
    if half and not (out / "model.onnx").exists():
        settings = {"step.fp16.islands": "off", "parity.seeds": 1}
        record = dmlprep.prepare(path, out=out, recipe=recipe, device="cpu", settings=settings, force=True)
        if record.exit_code:
            print(
                f"{name}: not prepared in FP16: {record.error or [one.reason for one in record.verdicts]}", flush=True
            )
    if half and (out / "model.onnx").exists():
        yield "FP16", out / "model.onnx"


def row(name: str, kind: str, one: Timed) -> str:
    """A row of the table."""
    if one.bound is None or one.times is None:
        return f"| {name} | {kind} | {one.not_run or 'no bound: a device that computes on the CPU'} |"
    took = one.on_device or one.times
    return (
        f"| {name} | {kind} | {scaled(one.bound.flops).strip()} | {scaled(one.bound.nbytes)}B | "
        f"{seconds_text(one.bound.seconds)} | {seconds_text(took.median)} | {percent(one.bound.share, 0)} | "
        f"{one.bound.limit} | {one.partitions} |"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", help="a GPU on Linux; on Windows, the default adapter needs no option")
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--fp32", action="store_true", help="only FP32")
    parser.add_argument("--write", action="store_true", help="time nothing")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    if not chosen.write:
        print("| model | type | FLOPs | bytes moved | lower bound | median | reached | limited by | fused graphs |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in chosen.only.split(","):
        kinds = dict(files(chosen.folder, name, half=not chosen.fp32))
        if chosen.write:
            print(name, *kinds, flush=True)
            continue
        try:
            bench = dmlprep.bench(*kinds.values(), device="dml", gpu=chosen.gpu, seconds=chosen.seconds)
        except DmlprepError as error:
            print(f"| {name} | | {error} |", flush=True)
            continue
        for kind, one in zip(kinds, bench.models, strict=True):
            print(row(name, kind, one), flush=True)
        found[name] = bench
        (chosen.folder / "shares.json").write_bytes(to_json(found))
    for bench in list(found.values())[:1]:
        print(f"\n{bench.device}")
        print(speed_text(bench.device_speed) if bench.device_speed else "no speed of the device")


if __name__ == "__main__":
    main()
