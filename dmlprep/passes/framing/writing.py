"""Write a frame into a model: nodes before its inputs and after its outputs."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.rewriting.builder import move_readers, replace_outputs
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.framing.building import Nodes, dtype_of
from dmlprep.passes.framing.frame import Detect, Frame, Picture, Result, note_frame
from dmlprep.passes.framing.outputs import detected, finished
from dmlprep.passes.framing.pictures import prepared
from dmlprep.passes.framing.resolve import refused


def write_frame(model: Model, frame: Frame) -> list[ir.Node]:
    """Write a whole frame into ``model`` in place, and its note into the metadata; return the new nodes.

    Raises:
        ModelRefused: DP014, its constants exceed the limit for the model; DP305, the model has a value with the name of
            a new output.
    """
    names = Names(model.ir)
    new_nodes: list[ir.Node] = []
    for picture in frame.pictures:
        new_nodes += _frame_input(model, picture, names)
    for result in frame.results:
        new_nodes += _frame_output(model, result, names)
    if frame.detect is not None:
        new_nodes += _frame_boxes(model, frame.detect, names)
    note_frame(model.ir, frame)
    return new_nodes


def _frame_input(model: Model, picture: Picture, names: Names) -> list[ir.Node]:
    graph = model.ir.graph
    index = next(i for i, v in enumerate(graph.inputs) if v.name == picture.name)
    old = graph.inputs[index]
    kind, shape = ir.TensorType(dtype_of(picture.type)), ir.Shape(picture.shape)
    new = ir.Value(name=picture.name, type=kind, shape=shape, doc_string=old.doc_string)
    old.name = names.value(f"{picture.name}_unframed")
    nodes = Nodes(graph, names, model.budget, picture.name)
    inside = prepared(nodes, picture, new)
    move_readers(old, inside)
    replace_outputs(graph, old, inside)
    graph.inputs[index] = new
    if len(graph):
        graph.insert_before(graph[0], nodes.new_nodes)
    else:
        graph.extend(nodes.new_nodes)
    return nodes.new_nodes


def _frame_output(model: Model, result: Result, names: Names) -> list[ir.Node]:
    graph = model.ir.graph
    index = next(i for i, v in enumerate(graph.outputs) if v.name == result.name)
    old = graph.outputs[index]
    _reserve(names, result.name, [name for name in result.outputs if name != result.name])
    nodes = Nodes(graph, names, model.budget, result.name)
    values = finished(nodes, result, old)
    old.name = names.value(f"{result.name}_unframed")
    for value, name in zip(values, result.outputs, strict=True):
        value.name = name
    graph.outputs[index : index + 1] = values
    graph.extend(nodes.new_nodes)
    return nodes.new_nodes


def _frame_boxes(model: Model, detect: Detect, names: Names) -> list[ir.Node]:
    graph = model.ir.graph
    outputs = {v.name: v for v in graph.outputs}
    replaced = [outputs[name] for name in detect.raw_outputs]
    _reserve(names, replaced[0].name or "", detect.outputs)
    nodes = Nodes(graph, names, model.budget, "detected")
    values = detected(nodes, detect, replaced)
    for value, name in zip(values, detect.outputs, strict=True):
        value.name = name
    graph.outputs[:] = [v for v in graph.outputs if v not in replaced] + values
    graph.extend(nodes.new_nodes)
    return nodes.new_nodes


def _reserve(names: Names, about: str, outputs: list[str]) -> None:
    """Reserve the names ``outputs`` for new outputs, before any node uses them.

    Raises:
        ModelRefused: DP305, the model already has such a name.
    """
    for name in outputs:
        if names.value(name) != name:
            raise refused(f"frame of {about}", f"the model already has a value {name!r}", "rename it when exporting")
