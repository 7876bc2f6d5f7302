"""A step keeps its contract, or everything is as it was before."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.core.errors import InternalError, ModelRefused, OutputError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, Options, Pass, make_pass
from dmlprep.pipeline.transaction import Transactions
from tests.graph.model.sourced import write

Change = Callable[[Model], bool]


class _Toy(Pass[Options]):
    name = "toy"
    summary = "does what the test says"
    options_type = Options

    def __init__(self, change: Change) -> None:
        super().__init__(Options())
        self._change = change

    def run(self, model: Model, context: Context) -> bool:
        return self._change(model)


def _model(tmp_path: Path) -> Model:
    import onnx
    from onnx import parser

    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, 4] x) => (float[batch, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return Model.open(tmp_path / "m.onnx")


def _run(tmp_path: Path, change: Change) -> tuple[Model, object]:
    model = _model(tmp_path)
    return model, Transactions(model).run("toy", _Toy(change), Context(find_target()))


def _first(model: Model) -> ir.Node:
    return next(iter(model.ir.graph))


def test_record(tmp_path: Path) -> None:
    def change(model: Model) -> bool:
        _first(model).name = "add"
        return True

    _, record = _run(tmp_path, change)
    assert record.outcome == "changed"  # type: ignore[attr-defined]
    assert _run(tmp_path, lambda _: False)[1].outcome == "unchanged"  # type: ignore[attr-defined]


def _rename_output(model: Model) -> bool:
    model.ir.graph.outputs[0].name = "z"
    return True


def _lie(model: Model) -> bool:
    _first(model).name = "add"
    return False


def _wrong_type(model: Model) -> bool:
    model.ir.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    return True


def _twice(model: Model) -> bool:
    for node in model.ir.graph:
        node.name = "same"
    return True


def _crash(_: Model) -> bool:
    raise KeyError("oops")


def _too_new(model: Model) -> bool:
    model.ir.opset_imports[""] = 27
    return True


@pytest.mark.parametrize("change", [_rename_output, _lie, lambda _: True, _wrong_type, _twice, _crash])
def test_a_broken_contract_is_our_bug_and_taken_back(tmp_path: Path, change: Change) -> None:
    model = _model(tmp_path)
    before = model.snapshot()
    with pytest.raises(InternalError, match="step toy"):
        Transactions(model).run("toy", _Toy(change), Context(find_target()))
    assert model.snapshot().same_as(before)


def test_opset_beyond_the_target(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="opset 27"):
        Transactions(_model(tmp_path), within_target=True).run("toy", _Toy(_too_new), Context(find_target()))


def test_an_invalid_result_is_refused_and_taken_back(tmp_path: Path) -> None:
    def change(model: Model) -> bool:
        _first(model).op_type = "NoSuchOperator"
        return True

    model = _model(tmp_path)
    before = model.snapshot()
    with pytest.raises(ModelRefused, match="NoSuchOperator"):
        Transactions(model).run("toy", _Toy(change), Context(find_target()))
    assert model.snapshot().same_as(before)


def test_a_refusal_names_the_step_and_leaves_the_model(tmp_path: Path) -> None:
    def change(model: Model) -> bool:
        _first(model).name = "half done"
        model.ir.graph.initializers["b"].const_value = ir.tensor(np.zeros(4, np.float32), name="b")
        raise ModelRefused("cannot", where="node a", fix="export otherwise")

    model = _model(tmp_path)
    before = model.snapshot()
    with pytest.raises(ModelRefused, match="step toy: node a: cannot"):
        Transactions(model).run("toy", _Toy(change), Context(find_target()))
    assert model.snapshot().same_as(before)


def test_ctrl_c_leaves_the_model(tmp_path: Path) -> None:
    def change(model: Model) -> bool:
        _first(model).name = "half done"
        raise KeyboardInterrupt

    model = _model(tmp_path)
    before = model.snapshot()
    with pytest.raises(KeyboardInterrupt):
        Transactions(model).run("toy", _Toy(change), Context(find_target()))
    assert model.snapshot().same_as(before)


def test_a_full_temporary_folder_is_no_bug(tmp_path: Path) -> None:
    def change(_: Model) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match="TMPDIR"):
        Transactions(_model(tmp_path)).run("toy", _Toy(change), Context(find_target()))


@pytest.mark.parametrize(
    ("keep_io", "broken"),
    [(True, True), (False, False), (["x"], False), (["x", "y"], True)],
)
def test_kept_types_are_guarded(
    keep_io: bool | list[str], broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fp16 step may change the types that its options do not keep, and no others."""
    step = make_pass("fp16", {"keep_io": keep_io})
    monkeypatch.setattr(type(step), "run", lambda self, model, context: _half_output(model))
    model = _model(tmp_path)
    if not broken:
        assert Transactions(model).run("fp16", step, Context(find_target())).outcome == "changed"
        return
    before = model.snapshot()
    with pytest.raises(InternalError, match="type of 'y'"):
        Transactions(model).run("fp16", step, Context(find_target()))
    assert model.snapshot().same_as(before)


def _half_output(model: Model) -> bool:
    """Casts the output to FP16."""
    graph = model.ir.graph
    relu = graph[1]
    relu.outputs[0].name = "wide"
    cast = ir.node("Cast", [relu.outputs[0]], attributes={"to": ir.DataType.FLOAT16.value}, name="cast")
    cast.outputs[0].name = "y"
    cast.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    cast.outputs[0].shape = ir.Shape(["batch", 4])
    graph.append(cast)
    graph.outputs[0] = cast.outputs[0]
    return True


def test_steps_in_a_row_begin_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(name: str) -> Change:
        def change(model: Model) -> bool:
            changed = _first(model).name != name
            _first(model).name = name
            return changed

        return change

    model, taken = _model(tmp_path), list[Model]()
    snapshot = Model.snapshot

    def counted(self: Model) -> object:
        taken.append(self)
        return snapshot(self)

    monkeypatch.setattr(Model, "snapshot", counted)
    steps, context = Transactions(model), Context(find_target())
    outcomes = [steps.run("toy", _Toy(rename(name)), context).outcome for name in ("one", "one", "two")]
    assert outcomes == ["changed", "unchanged", "changed"]
    assert len(taken) == 4

    def fails(model: Model) -> bool:
        _first(model).name = "three"
        raise ModelRefused("no", code="DP003", fix="none")

    with pytest.raises(ModelRefused):
        steps.run("toy", _Toy(fails), context)
    assert _first(model).name == "two"
    with pytest.raises(InternalError, match="reports that it changed nothing"):
        steps.run("toy", _Toy(lambda m: bool(rename("four")(m)) and False), context)
    assert _first(model).name == "two"
    assert steps.run("toy", _Toy(rename("five")), context).outcome == "changed"


def test_the_form_that_a_pass_took_is_dropped_where_its_nodes_get_sources(tmp_path: Path) -> None:
    model, context = Model.open(write(tmp_path / "sourced.onnx")), Context(find_target())

    def change(model: Model) -> bool:
        for node in model.ir.graph:
            node.metadata_props.clear()
        _first(model).name = "new"
        context.after = model.snapshot()
        return True

    steps = Transactions(model)
    assert steps.run("toy", _Toy(change), context).outcome == "changed"
    assert steps.frozen is not context.after
    assert steps.frozen is not None
    assert steps.frozen.same_as(model.snapshot())
    assert any(node.metadata_props for node in steps.frozen.proto.graph.node)
