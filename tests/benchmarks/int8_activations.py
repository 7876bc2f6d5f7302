"""INT8 activations on DirectML, compared with FP16: error and time of three convolutional networks.

    python -m tests.benchmarks.int8_activations FOLDER [--gpu auto] [--only NAME,...] [--seconds 3]

Errors are relative to FP32 on the CPU. The forms run in turns, with inputs and outputs on the device.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

import dmlprep
from dmlprep.parity.bench.statistics import ratio_of_times
from dmlprep.report.speed import ratio_text
from dmlprep.runtime import Session, SessionFailure, SessionOptions, dml_host, open_cpu
from fixtures.builder import Net
from tests.benchmarks.device_shares import mobilenet, resnet50
from tests.benchmarks.graph_capture import arguments, feeds, in_turns, milliseconds


def small_unet() -> onnx.ModelProto:
    """A U-Net of four levels, 256 x 256."""
    net, skips = Net("small_unet", 9), list[str]()
    x, scales = net.input("x", "float32", [1, 3, 256, 256]), net.weight(np.array([1, 1, 2, 2], np.float32))
    modes: Any = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    for step, (before, width) in enumerate(((3, 32), (32, 64), (64, 128), (128, 256), (384, 128), (192, 64), (96, 32))):
        if step > 3:
            x = net.op("Concat", net.op("Resize", x, "", scales, **modes), skips.pop(), axis=1)
        x = net.op("Relu", net.conv(net.op("Relu", net.conv(x, before, width)), width, width))
        if step < 3:
            skips.append(x)
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    net.output(net.conv(x, width, 4, 1), "y", "float32", [1, 4, 256, 256])
    return net.model(17)


MODELS = {"small_unet": small_unet, "mobilenet": mobilenet, "resnet50": resnet50}
STATIC: dict[str, dict[str, Any]] = {
    "QDQ per tensor": {},
    "QDQ per channel": {"per_channel": True},
    "QLinearConv": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8},
}


def forms(folder: Path, name: str) -> dict[str, Path]:
    """Write a model in FP32, FP16 and the INT8 forms; return the files."""
    paths = {form: folder / f"{name} {form}.onnx" for form in ("FP32", "FP16", *STATIC, "ConvInteger")}
    onnx.save(MODELS[name](), full := paths["FP32"])
    settings = {"step.fp16.islands": "off", "parity.seeds": 1}
    dmlprep.prepare(full, out=paths["FP16"], recipe="@vision-fp16", device="cpu", settings=settings, force=True)
    for form, more in STATIC.items():
        quantize_static(full, paths[form], SimpleNamespace(get_next=partial(next, iter(feeds(full, 3)), None)), **more)
    quantize_dynamic(full, paths["ConvInteger"], ["Conv", "MatMul", "Gemm"], weight_type=QuantType.QUInt8)
    return paths


def main() -> None:
    """Run the command line."""
    chosen = arguments(__doc__, MODELS)
    print("| model | form | error | ms | times FP16 |\n|---|---|---|---|---|", flush=True)
    options = SessionOptions(gpu=chosen.gpu)
    for name in chosen.only.split(","):
        paths = forms(chosen.folder, name)
        (feed,) = feeds(paths["FP32"], seed=7)
        sessions, cells = dict[str, Session](), dict[str, str]()
        with open_cpu(paths["FP32"]) as reference, dml_host(session=options) as host:
            exact = reference.run(feed)
            for form, path in paths.items():
                try:
                    session = host.open(path, options)
                    ((key, one),) = session.run(feed).items()
                    cells[form] = f"{np.abs(one - exact[key]).max() / np.abs(exact[key]).max():.2g}"
                    sessions[form] = session
                except SessionFailure as error:
                    cells[form] = str(error)
            times = in_turns(sessions, feed, chosen.seconds)
        for form, rounds in times.items():
            cells[form] += f" | {milliseconds(rounds)} | {ratio_text(ratio_of_times('', times['FP16'], rounds))}"
        print("\n".join(f"| {name} | {form} | {cell} |" for form, cell in cells.items()), flush=True)


if __name__ == "__main__":
    main()
