"""The frame around a model: the app's own pictures in, what it wants to know out, in plain ONNX operators."""

from dmlprep.framing.frame import Frame, Picture, between, frame_of
from dmlprep.framing.options import PictureOptions
from dmlprep.framing.resolve import resolve
from dmlprep.framing.writing import write_frame

__all__ = ["Frame", "Picture", "PictureOptions", "between", "frame_of", "resolve", "write_frame"]
