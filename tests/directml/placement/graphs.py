"""Models written as ONNX text."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.directml.placement import PlacedNode, Placement, place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

__all__ = ["node", "parsed", "placed"]


def parsed(text: str, opset: int = 17, *, domain: str = "") -> Model:
    """A model of ``g (...) => (...) {...}``; with ``domain`` it imports that too, at version 1."""
    more = f', "{domain}" : 1' if domain else ""
    head = f'<ir_version: 8, opset_import: ["" : {opset}{more}]>'
    return Model(ir.from_proto(onnx.parser.parse_model(head + text)))


def placed(text: str, opset: int = 17, target: str = "ort-1.24", *, domain: str = "") -> Placement:
    """Where the nodes of ``text`` run."""
    return place(parsed(text, opset, domain=domain), find_target(target))


def node(placement: Placement, op: str) -> PlacedNode:
    """The only node of an operator."""
    (found,) = [n for n in placement.nodes if n.op == op]
    return found
