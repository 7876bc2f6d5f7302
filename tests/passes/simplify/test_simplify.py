"""Simplify: weights untouched, constants exact, harm undone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.simplify import SimplifyOptions, SimplifyPass
from dmlprep.runtime.tools import onnxsim

SIZE = 64  # 64 x 64 floats are 16 KiB: a weight


class Runner:
    """Runs models here and now; ``bend`` changes the outputs of every model but the first."""

    def __init__(self, bend=lambda array: array):
        self.bend = bend
        self.first = None

    def run(self, model, feeds, outputs=None, *, optimized=True):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(ir.to_proto(model.ir).SerializeToString(), options)
        names = [o.name for o in session.get_outputs()]
        found = dict(zip(names, session.run(None, dict(feeds)), strict=True))
        self.first = self.first or model
        return found if model is self.first else {name: self.bend(array) for name, array in found.items()}

    def feeds(self, model, count=1):
        rng = np.random.default_rng(0)
        return [{"x": rng.standard_normal((2, SIZE)).astype(np.float32)} for _ in range(count)]


def model(tmp_path, *, eps=1e-12, turned=False):
    """x -> MatMul(w) -> Identity -> + eps -> Relu, saved and opened again, so that w is mapped.

    ``turned``: with two Transposes for the Identity, of which the graph alone does not tell that they may go.
    """
    rng = np.random.default_rng(0)
    turns = [helper.make_node("Transpose", [a], [b], perm=[1, 0]) for a, b in (("a", "t"), ("t", "b"))]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="mm"),
            *(turns if turned else [helper.make_node("Identity", ["a"], ["b"], name="id")]),
            helper.make_node("Mul", ["b", "b"], ["sq"], name="sq"),
            helper.make_node("Add", ["sq", "eps"], ["c"], name="add"),
            helper.make_node("Sqrt", ["c"], ["y"], name="root"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, SIZE])],
        [
            numpy_helper.from_array(rng.standard_normal((SIZE, SIZE)).astype(np.float32), "w"),
            numpy_helper.from_array(np.float32(eps), "eps"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(proto, {"author": "someone"})
    proto.producer_name = "test"
    onnx.save(proto, tmp_path / "m.onnx")
    return Model.open(tmp_path / "m.onnx")


def simplify(model, runner=None, **options):
    context = Context(find_target(), runner=runner)
    return SimplifyPass(SimplifyOptions(**options)).run(model, context), context


def test_weights_are_the_same_objects_and_constants_exact(tmp_path, monkeypatch):
    m = model(tmp_path)
    weight = m.ir.graph.initializers["w"].const_value
    monkeypatch.setattr(type(weight), "numpy", lambda self: pytest.fail("a weight was read"))
    monkeypatch.setattr(type(weight), "tobytes", lambda self: pytest.fail("a weight was read"))
    changed, context = simplify(m)
    assert changed
    assert [n.op_type for n in m.ir.graph] == ["MatMul", "Mul", "Add", "Sqrt"]
    assert m.ir.graph.initializers["w"].const_value is weight
    add = next(n for n in m.ir.graph if n.op_type == "Add")
    constants = [v.const_value for v in add.inputs if v.const_value is not None]
    assert [c.numpy().item() for c in constants] == [np.float32(1e-12).item()]
    assert context.facts.guard_on_values == "not run: this pipeline runs no models"


def test_metadata_and_producer_stay(tmp_path):
    m = model(tmp_path)
    simplify(m)
    assert dict(m.ir.metadata_props) == {"author": "someone"}
    assert m.ir.producer_name == "test"
    assert {n.name for n in m.ir.graph} == {"mm", "sq", "add", "root"}


def test_nothing_runs_where_the_graphs_tell_that_they_compute_the_same(tmp_path):
    changed, context = simplify(model(tmp_path), Runner(lambda array: pytest.fail("it ran")))
    assert changed
    assert context.facts.guard_on_values.startswith("not needed")


def test_values_are_compared_where_there_is_a_runner(tmp_path):
    m = model(tmp_path, turned=True)
    changed, context = simplify(m, Runner())
    assert changed
    assert context.facts.guard_on_values.startswith("passed on 1 feed(s)")


@pytest.mark.parametrize(
    "bend",
    [
        lambda a: a * np.float32(1.001),
        lambda a: np.where(a > a.mean(), np.nan, a),
        lambda a: a[:1],
        lambda a: a.astype("d"),
    ],
    ids=["value", "nan", "shape", "type"],
)
def test_other_values_undo_it(tmp_path, bend):
    m = model(tmp_path, turned=True)
    before = m.snapshot()
    changed, context = simplify(m, Runner(bend))
    assert not changed
    assert [f.code for f in context.findings] == ["DP301"]
    assert "the outputs differ: output 'y'" in context.findings[0].message
    assert before.same_as(m.snapshot())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: p.graph.node.pop(), "undone"),
        (lambda p: p.graph.input.pop(0), "other inputs"),
        (lambda p: setattr(p.graph.output[0], "name", "z"), "other outputs"),
        (lambda p: setattr(p.opset_import[0], "version", 18), "another opset"),
        (lambda p: [p.graph.node.append(n) for n in _padding()], "larger"),
        (lambda p: p.graph.initializer.append(_ballast(p)), "larger"),
        (lambda p: setattr(p.graph.node[0], "domain", "made.up"), "made.up"),
        (lambda p: p.graph.node[-1].input.append("nowhere"), "undone"),
    ],
    ids=["output gone", "input gone", "output renamed", "opset", "nodes", "bytes", "domain", "dangling"],
)
def test_a_damaged_result_is_undone(tmp_path, monkeypatch, damage, said):
    def engine(proto, **_):
        result = onnx.ModelProto()
        result.CopyFrom(proto)
        kept = [n for n in result.graph.node if n.op_type != "Identity"]
        for node in kept:
            node.input[:] = ["a" if name == "b" else name for name in node.input]
        del result.graph.node[:]
        result.graph.node.extend(kept)
        damage(result)
        return result

    monkeypatch.setattr(onnxsim, "simplify", engine)
    m = model(tmp_path)
    before = m.snapshot()
    changed, context = simplify(m)
    assert not changed
    assert [f.code for f in context.findings] == ["DP301"]
    assert said in context.findings[0].message
    assert before.same_as(m.snapshot())


def _padding():
    names = ["y0", *(f"p{i}" for i in range(5))]
    return [helper.make_node("Relu", [a], [b]) for a, b in zip(["y", *names], names, strict=False)]


def _ballast(proto):
    proto.graph.node.append(helper.make_node("Identity", ["ballast"], ["unread"]))
    proto.graph.node[1].op_type = "Mul"
    return numpy_helper.from_array(np.zeros(1 << 16, np.float32), "ballast")


def test_a_crash_is_a_finding(tmp_path, monkeypatch):
    def engine(proto, **_):
        raise ModelRefused("onnxsim crashed (SIGSEGV)", code="DP301")

    monkeypatch.setattr(onnxsim, "simplify", engine)
    m = model(tmp_path)
    changed, context = simplify(m)
    assert not changed
    assert "SIGSEGV" in context.findings[0].message


def test_no_gain_is_no_change(tmp_path, monkeypatch):
    monkeypatch.setattr(onnxsim, "simplify", lambda proto, **_: proto)
    changed, context = simplify(model(tmp_path))
    assert not changed
    assert context.findings == []


def test_with_many_subgraphs_unused_nodes_go_without_onnxsim(tmp_path, monkeypatch):
    def body(name):
        nodes = [helper.make_node("Relu", ["x"], [name]), helper.make_node("Neg", ["x"], [f"{name}_unused"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])])

    ifs = [
        helper.make_node("If", ["c"], [f"v{i}"], then_branch=body(f"a{i}"), else_branch=body(f"b{i}"))
        for i in range(260)
    ]
    graph = helper.make_graph(
        [*ifs, helper.make_node("Sum", [f"v{i}" for i in range(1, 260)], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("c", 9, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    run, asked = onnxsim.simplify, []
    monkeypatch.setattr(onnxsim, "simplify", lambda proto, **more: asked.append(more) or run(proto, **more))
    m = Model.open(tmp_path / "m.onnx")
    changed, _ = simplify(m)
    assert changed
    assert (asked[0]["merge_equal"], asked[0]["drop_dead"]) == (False, False)
    assert m.statistics().nodes == 259 * 3 + 1
