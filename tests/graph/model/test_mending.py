"""Files that ONNX Runtime loads and onnx's checker refuses: opened, mended, and each mend said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check

ort.set_default_logger_severity(4)

W = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
ONES = numpy_helper.from_array(np.ones(4, np.float32), "b")


def end(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def built(
    *nodes: onnx.NodeProto,
    opset: int = 17,
    ir: int = 8,
    domain: str = "",
    inputs: tuple[onnx.ValueInfoProto, ...] = (),
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", [end("x"), *inputs], [end("y")], [W, ONES])
    imports = [helper.make_opsetid(domain, opset)]
    imports += [helper.make_opsetid(f.domain, 1) for f in functions]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def unsorted() -> onnx.ModelProto:
    return built(node("Relu", "a", "y"), node("Add", "x w", "a"))


def body(name: str) -> onnx.GraphProto:
    return helper.make_graph(
        [node("Relu", f"{name}a", f"{name}y"), node("Add", "h w", f"{name}a")], name, [], [end(f"{name}y")]
    )


def unsorted_around_a_body() -> onnx.ModelProto:
    branches = {key: body(key[0]) for key in ("then_branch", "else_branch")}
    for graph in branches.values():
        graph.node.sort(key=lambda n: n.op_type)
    flag = end("c", TensorProto.BOOL, ())
    return built(node("If", "c", "y", **branches), node("Neg", "x", "h"), inputs=(flag,))


def old(ir: int) -> onnx.ModelProto:
    return built(node("Add", "x w", "a"), node("Mul", "a b", "y"), opset=7, ir=ir)


def without_type() -> onnx.ModelProto:
    model = built(node("Add", "x w", "a"), node("Relu", "a", "y"))
    model.graph.output[0].ClearField("type")
    model.graph.output.add().name = "a"
    return model


def without_output_shape() -> onnx.ModelProto:
    model = built(node("Add", "x w", "y"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def without_name() -> onnx.ModelProto:
    model = built(node("Add", "x w", "y"))
    model.graph.ClearField("name")
    return model


def layer_norm(opset: int) -> onnx.ModelProto:
    return built(node("LayerNormalization", "x w b", "y", axis=-1), opset=opset)


FORMS: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "unsorted": ("DP006", unsorted),
    "unsorted around a body": ("DP006", unsorted_around_a_body),
    "no version of com.microsoft": ("DP007", lambda: built(node("Gelu", "x", "y", domain="com.microsoft"))),
    "no version of ai.onnx.ml": (
        "DP007",
        lambda: built(node("Scaler", "x", "y", domain="ai.onnx.ml", offset=[0.0], scale=[2.0])),
    ),
    "no version of ai.onnx": (
        "DP007",
        lambda: built(
            node("Gelu", "x", "a", domain="com.microsoft"), node("Relu", "a", "y"), domain="com.microsoft", opset=1
        ),
    ),
    "outputs without type": ("DP008", without_type),
    "output without shape": ("DP008", without_output_shape),
    "graph without name": ("DP008", without_name),
    "IR version 1": ("DP009", lambda: old(1)),
    "IR version 2": ("DP009", lambda: old(2)),
    "IR version 3": ("DP009", lambda: old(3)),
    "LayerNormalization-16": ("DP010", lambda: layer_norm(16)),
    "LayerNormalization-9": ("DP010", lambda: layer_norm(9)),
    "SimplifiedLayerNormalization": (
        "DP010",
        lambda: built(node("SimplifiedLayerNormalization", "x w", "y", axis=-1), opset=12),
    ),
}


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "source.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("form", FORMS)
def test_what_onnx_runtime_loads_is_accepted(form: str, tmp_path: Path) -> None:
    code, make = FORMS[form]
    path = saved(make(), tmp_path)
    before = path.read_bytes()
    ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(onnx.load(path))
    assert {f.code for f in dmlprep.check(path).findings} & {"DP003", code} == {code}
    record = dmlprep.prepare(path, out=tmp_path / "out", device="cpu")
    assert record.exit_code == 0, record.error
    assert [f.severity for f in record.findings if f.code == code] == ["note"]
    assert [v.outcome for v in record.verdicts] == ["passed"]
    ort.InferenceSession(record.output, providers=["CPUExecutionProvider"])
    assert not check(Model.open(record.output).ir)
    if code not in ("DP008", "DP010"):
        onnx.checker.check_model(onnx.load(record.output), full_check=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("form", FORMS)
def test_what_was_frozen_at_the_door_is_the_model(form: str, tmp_path: Path) -> None:
    model = Model.open(saved(FORMS[form][1](), tmp_path))
    assert model.opened is not None
    assert model.opened.same_as(model.snapshot())


def test_bodies_and_functions_are_sorted_though_onnx_runtime_does_not(tmp_path: Path) -> None:
    branches = {key: body(key[0]) for key in ("then_branch", "else_branch")}
    function = helper.make_function(
        "local", "F", ["v"], ["o"], [node("Relu", "a", "o"), node("Neg", "v", "a")], [helper.make_opsetid("", 17)]
    )
    flag = end("c", TensorProto.BOOL, ())
    call, branch = node("F", "x", "h", domain="local"), node("If", "c", "y", **branches)
    path = saved(built(call, branch, inputs=(flag,), functions=(function,)), tmp_path)
    with pytest.raises(Exception, match=r"sorted|Inference"):
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    record = dmlprep.prepare(path, out=tmp_path / "out", device="cpu")
    assert record.exit_code == 0, record.error
    (note,) = [f for f in record.findings if f.code == "DP006"]
    assert "function F" in note.message
    assert "body t" in note.message
    assert "with repairs" in str(record.verdicts[0].device)


def test_sorting_moves_no_more_than_it_must(tmp_path: Path) -> None:
    names = ["Exp", "Neg", "Relu", "Abs"]
    model = built(node("Exp", "x", "e"), node("Neg", "a", "y"), node("Relu", "x", "r"), node("Abs", "e", "a"))
    found = Model.open(saved(model, tmp_path))
    assert [n.op_type for n in found.ir.graph] == ["Exp", "Relu", "Abs", "Neg"]
    in_order = Model.open(saved(built(*(node(op, "x", op) for op in names[:3]), node("Abs", "x", "y")), tmp_path))
    assert [n.op_type for n in in_order.ir.graph] == names
    assert in_order.notes == ()


def test_a_cycle_stays_refused_and_is_shown(tmp_path: Path) -> None:
    ring = (node("Add", "x c", "a", name="first"), node("Relu", "a", "b"), node("Neg", "b", "c", name="last"))
    with pytest.raises(InputError, match=r"cycle: first -> Relu\(b\) -> last -> first") as caught:
        Model.open(saved(built(node("Abs", "x", "y"), *ring), tmp_path))
    assert caught.value.code == "DP003"
    assert caught.value.where.endswith("source.onnx")


def test_an_operator_of_an_unknown_domain_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No opset import for domain 'mine'"):
        dmlprep.prepare(saved(built(node("Foo", "x", "y", domain="mine")), tmp_path), out=tmp_path / "out")


def test_an_input_without_a_type_is_refused_as_onnx_runtime_does(tmp_path: Path) -> None:
    model = built(node("Add", "x w", "y"))
    model.graph.input[0].ClearField("type")
    with pytest.raises(InputError, match="'type' of 'value_info' is required"):
        dmlprep.prepare(saved(model, tmp_path), out=tmp_path / "out")


def test_an_output_declared_in_another_type_is_refused_as_onnx_runtime_does(tmp_path: Path) -> None:
    model = built(node("Add", "x w", "y"))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    record = dmlprep.prepare(saved(model, tmp_path), out=tmp_path / "out", device="cpu")
    assert record.exit_code == ModelRefused.exit_code
    assert "declared DOUBLE, but is FLOAT" in str(record.error)


def test_the_shape_of_an_input_may_be_missing(tmp_path: Path) -> None:
    model = built(node("Add", "x w", "y"))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path = saved(model, tmp_path)
    blind = dmlprep.prepare(path, out=tmp_path / "blind", device="cpu")
    assert (blind.exit_code, "pass your own inputs" in str(blind.error)) == (3, True)
    fed = dmlprep.prepare(path, out=tmp_path / "fed", device="cpu", feeds=[{"x": np.ones((3, 4), np.float32)}])
    assert fed.exit_code == 0, fed.error
    assert any("shapes={'x'=" in (note.remedy or "") for note in Model.open(path).notes)
    shaped = dmlprep.prepare(path, out=tmp_path / "out", device="cpu", settings={"step.pin.shapes.x": [2, 4]})
    assert shaped.exit_code == 0, shaped.error
    assert [d.dim_value for d in onnx.load(shaped.output).graph.input[0].type.tensor_type.shape.dim] == [2, 4]


def test_training_mode_dropout_is_named_as_random(tmp_path: Path) -> None:
    constants = [
        helper.make_node("Constant", [], ["r"], value_float=0.5),
        helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.array(True))),
    ]
    path = saved(built(*constants, node("Dropout", "x r t", "y", name="drop"), opset=13), tmp_path)
    (note,) = [f for f in dmlprep.check(path).findings if f.code == "DP011"]
    assert "Dropout drop in training mode draws random numbers" in note.message
    record = dmlprep.prepare(path, out=tmp_path / "out", device="cpu")
    assert record.exit_code == 3
    assert "draws random numbers (drop)" in str(record.error)
    quiet = built(*constants, node("Dropout", "x r t", "y", seed=1), opset=13)
    assert not [f for f in Model.open(saved(quiet, tmp_path)).notes if f.code == "DP011"]


def test_what_is_drawn_alike_by_chance_is_random_all_the_same(tmp_path: Path) -> None:
    mode = [
        helper.make_node("Constant", [], ["r"], value_float=0.5),
        helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.array(True))),
    ]
    nodes = [*mode, node("Dropout", "x r t", "y", name="drop")]
    graph = helper.make_graph(nodes, "coin", [end("x", shape=(4,))], [end("y", shape=(4,))])
    path = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path)
    seen = {dmlprep.prepare(path, out=tmp_path / f"out{n}", device="cpu").exit_code for n in range(4)}
    assert seen <= {0, 3}, "one of sixteen outputs: two runs may draw alike, but that is never the model's fault"


# Shapes that the file notes inside its graph


def noted(*values: onnx.ValueInfoProto) -> onnx.ModelProto:
    model = built(node("Relu", "x", "a"), node("Add", "a w", "c"), node("Neg", "c", "y"))
    model.graph.value_info.extend(values)
    return model


@pytest.mark.parametrize("shape", [(), (8,), (2, 5), (2, 4, 1)])
def test_a_noted_shape_that_contradicts_is_dropped_as_onnx_runtime_does(tmp_path: Path, shape: tuple[int, ...]) -> None:
    wrong, right = end("a", shape=shape), end("c")
    path = saved(noted(wrong, right), tmp_path)
    model = Model.open(path)
    (note,) = [f for f in model.notes if f.code == "DP018"]
    assert "(a)" in note.message
    assert check(model.ir) == ""
    shapes = {v.name: v.shape for n in model.ir.graph for v in n.outputs}
    assert shapes["a"] is None
    assert shapes["c"] == (2, 4)
    assert ort.InferenceSession(path, providers=["CPUExecutionProvider"]).get_outputs()[0].shape == [2, 4]


def test_noted_shapes_that_agree_or_name_a_size_stay(tmp_path: Path) -> None:
    path = saved(noted(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", 4]), end("c")), tmp_path)
    model = Model.open(path)
    assert not [f for f in model.notes if f.code == "DP018"]
    assert all(v.shape is not None for n in model.ir.graph for v in n.outputs)


def test_a_noted_type_that_contradicts_stays_wrong(tmp_path: Path) -> None:
    path = saved(noted(end("a", TensorProto.FLOAT16)), tmp_path)
    with pytest.raises(Exception, match=r"Type Error"):
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert check(Model.open(path).ir) != ""
