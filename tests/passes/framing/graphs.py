"""A model that hands its pictures on, framed and run."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from dmlprep.graph.model import Model
from dmlprep.passes.framing import Picture, PictureOptions, resolve, write_frame

__all__ = ["handing_on", "run", "seen"]


def handing_on(shape: tuple[int, ...], kind: str = "float", opset: int = 17) -> Model:
    """``y = x``."""
    sizes = ", ".join(str(size) for size in shape)
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> g '
    text = f"{head}({kind}[{sizes}] x) => ({kind}[{sizes}] y) {{ y = Identity (x) }}"
    return Model(ir.from_proto(onnx.parser.parse_model(text)))


def run(model: Model, feeds: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs on the CPU; the model is checked before."""
    proto = ir.to_proto(model.ir)
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def seen(
    table: dict[str, Any], shape: tuple[int, ...], kind: str = "float", given: np.ndarray[Any, Any] | None = None
) -> tuple[Picture, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a model of this shape sees of pictures: the frame, the pictures, and what arrives."""
    model = handing_on(shape, kind)
    frame = resolve(model.ir, {"x": msgspec.convert(table, PictureOptions)})
    write_frame(model, frame)
    picture = frame.pictures[0]
    if given is None:
        rng = np.random.default_rng(0)
        bright = rng.integers(0, 256, picture.shape)
        given = (bright if picture.bytes else bright / 255 * picture.white).astype(picture.type)
    return picture, given, run(model, {"x": given})["y"]
