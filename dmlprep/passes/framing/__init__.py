"""Frames: pre- and post-processing as ONNX nodes of the model, from the app's pictures to the results that it needs."""

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
