"""The frame around a model: the app's own pictures in, and out what it wants to know, in plain ONNX operators."""

from dmlprep.passes.framing.frame import Detect, Frame, Picture, Result, between, frame_of
from dmlprep.passes.framing.options import DetectOptions, PictureOptions, ResultOptions
from dmlprep.passes.framing.resolve import resolve
from dmlprep.passes.framing.writing import write_frame

__all__ = [
    "Detect",
    "DetectOptions",
    "Frame",
    "Picture",
    "PictureOptions",
    "Result",
    "ResultOptions",
    "between",
    "frame_of",
    "resolve",
    "write_frame",
]
