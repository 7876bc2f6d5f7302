"""onnx's checker and shape inference work without the weights, and say the same as with them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import MappedTensor, Model
from dmlprep.graph.model.checking import check, infer_shapes, weightless
from dmlprep.process.onnx_worker import calls, door
from dmlprep.process.onnx_worker.door import OnnxError


def parsed(body: str, output: str = "float[2, 3] y") -> ir.Model:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x) => ({output}) {{ {body} }}'
    return ir.from_proto(onnx.parser.parse_model(text))


def test_a_valid_model_is_checked_without_its_weights(mlp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model.open(mlp_path)
    before = model.snapshot()
    monkeypatch.setattr(MappedTensor, "map_bytes", lambda *_: pytest.fail("a weight was read"))
    frozen = weightless(model.ir)
    assert {"w", "w_in"} <= {value.name for value in frozen.graph.input}
    assert [tensor.name for tensor in frozen.graph.initializer] == ["b", "zero"]
    assert model.snapshot().same_as(before)


def test_the_fault_of_a_model_is_named(mlp_path: Path) -> None:
    assert check(Model.open(mlp_path).ir) == ""
    assert "Frobnicate" in check(parsed("y = Frobnicate (x)"))
    assert "nobody" in check(parsed("y = Add (x, nobody)", "float[2, 4] y"))


def test_shapes_are_contradicted_by_the_full_check_only() -> None:
    wrong = parsed("y = Relu (x)")
    assert check(wrong, full=False) == ""
    assert "(4) vs (3)" in check(wrong)
    assert "\n" not in check(wrong)


def test_a_weight_that_was_an_input_already_stands_once(mlp_path: Path) -> None:
    proto = onnx.load(mlp_path)
    proto.ir_version = 3
    for tensor in proto.graph.initializer:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    names = [value.name for value in weightless(ir.from_proto(proto)).graph.input]
    assert len(names) == len(set(names))


def test_shapes_are_inferred_through_bodies_and_shape_arithmetic() -> None:
    model = parsed(
        "s = Shape (x) t = ReduceProd <keepdims = 0> (s) o = Range (z, t, i) y = Cast <to = 1> (o)", "float[n] y"
    )
    for name, value in (("z", 0), ("i", 1)):
        constant = ir.tensor(onnx.numpy_helper.to_array(onnx.helper.make_tensor(name, 7, [], [value])), name=name)
        model.graph.register_initializer(ir.Value(name=name, const_value=constant))
    before = ir.to_proto(model).SerializeToString()
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in infer_shapes(model).graph.value_info}
    assert shapes["s"] == [2]
    assert shapes["t"] == []
    assert ir.to_proto(model).SerializeToString() == before


def test_strict_inference_raises_where_shapes_contradict_each_other() -> None:
    with pytest.raises(OnnxError):
        infer_shapes(parsed("y = Relu (x)"), strict=True)


def test_the_default_that_onnx_leaves_out_of_a_body_of_its_own() -> None:
    text = '<ir_version: 7, opset_import: ["" : 13]> g (float[3, 3, 3, 1] x) => (float[3, 3, 3, 1] y)'
    model = ir.from_proto(onnx.parser.parse_model(f"{text} {{ y = MeanVarianceNormalization (x) }}"))
    assert check(model) == ""
    assert not next(iter(model.graph)).attributes


def test_one_inference_serves_opening_checking_and_knowing(mlp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = calls.ask_once, list[str]()
    monkeypatch.setattr(calls, "ask_once", lambda word, *parts: asked.append(word) or ask(word, *parts))
    model = Model.open(mlp_path)
    assert check(model.ir, frozen=model.opened) == ""
    known = Knowledge.swept(model.ir, model.opened)
    assert asked == ["infer", "check"]
    monkeypatch.setattr(door.shared, "ask", lambda *_: pytest.fail("the worker is asked again"))
    assert known.types == Knowledge.swept(model.ir, model.opened).types
    monkeypatch.undo()
    assert known.types == Knowledge.swept(model.ir).types
