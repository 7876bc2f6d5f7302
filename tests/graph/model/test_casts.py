"""The type that a Cast gives, at every opset."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import dmlprep
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.texts import cast_target
from dmlprep.passes import Context, make_pass


def _cast(attribute: ir.Attr | None) -> ir.Node:
    return ir.Node("", "Cast", [ir.Value(name="x")], [attribute] if attribute is not None else [])


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [
        (ir.AttrInt64("to", 10), ir.DataType.FLOAT16),
        (ir.AttrString("to", "INT64"), ir.DataType.INT64),
        (ir.AttrString("to", "half"), None),
        (ir.AttrInt64("to", 999), None),
        (ir.AttrFloat32("to", 1.0), None),
        (ir.RefAttr("to", "kind", ir.AttributeType.INT), None),
        (None, None),
    ],
)
def test_what_a_cast_gives(attribute: ir.Attr | None, kind: ir.DataType | None) -> None:
    assert cast_target(_cast(attribute)) == kind


def test_a_model_of_before_opset_6(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    nodes = [helper.make_node("Cast", ["x"], ["h"], to="FLOAT16"), helper.make_node("Cast", ["h"], ["y"], to="FLOAT")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 5)], ir_version=3), path)
    found = dmlprep.check(path)
    assert {f.code for f in found.findings} >= {"DP507"}  # no release has a kernel for it
    record = dmlprep.prepare(path, out=tmp_path / "out", device="cpu", settings={"parity.cpu": False})
    assert record.error is not None
    assert record.error.code == "DP507"
    model = Model(ir.from_proto(onnx.load(path)))
    options = {"islands": "off", "allow": ["little-gain"]}
    make_pass("fp16", options).run(model, Context(find_target("latest")))
