"""Write a frame around a model's graph."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.framing.building import Nodes
from dmlprep.framing.frame import Frame, Picture, Result, note_frame
from dmlprep.framing.pictures import prepared
from dmlprep.framing.results import finished
from dmlprep.model import Model
from dmlprep.rewriting.builder import move_readers, replace_outputs
from dmlprep.rewriting.names import Names

__all__ = ["write_frame"]


def write_frame(model: Model, frame: Frame) -> list[ir.Node]:
    """Write all of a frame, and the note of it.

    Returns:
        the new nodes.

    Raises:
        ModelRefused: DP014, its constants are more than may be made of the model.
    """
    names = Names(model.ir)
    made: list[ir.Node] = []
    for picture in frame.pictures:
        made += _frame_input(model, picture, names)
    for result in frame.results:
        made += _frame_output(model, result, names)
    note_frame(model.ir, frame)
    return made


def _frame_input(model: Model, picture: Picture, names: Names) -> list[ir.Node]:
    graph = model.ir.graph
    index = next(i for i, v in enumerate(graph.inputs) if v.name == picture.name)
    old = graph.inputs[index]
    dtype = {"uint8": ir.DataType.UINT8, "float16": ir.DataType.FLOAT16, "float32": ir.DataType.FLOAT}[picture.type]
    new = ir.Value(
        name=picture.name, type=ir.TensorType(dtype), shape=ir.Shape(picture.shape), doc_string=old.doc_string
    )
    old.name = names.value(f"{picture.name}_unframed")
    nodes = Nodes(graph, names, model.budget, picture.name)
    inside = prepared(nodes, picture, new)
    move_readers(old, inside)
    replace_outputs(graph, old, inside)
    graph.inputs[index] = new
    if len(graph):
        graph.insert_before(graph[0], nodes.made)
    else:
        graph.extend(nodes.made)
    return nodes.made


def _frame_output(model: Model, result: Result, names: Names) -> list[ir.Node]:
    graph = model.ir.graph
    index = next(i for i, v in enumerate(graph.outputs) if v.name == result.name)
    old = graph.outputs[index]
    nodes = Nodes(graph, names, model.budget, result.name)
    values = finished(nodes, result, old)
    old.name = names.value(f"{result.name}_unframed")
    for value, name in zip(values, result.made, strict=True):
        value.name = name
    graph.outputs[index : index + 1] = values
    graph.extend(nodes.made)
    return nodes.made
