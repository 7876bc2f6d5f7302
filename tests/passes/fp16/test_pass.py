"""The fp16 step: its options, both engines, the search, and what it records."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused, RecipeError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model.walk import label, nodes
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision.types import solve_types
from tests.passes.precision.emulation.test_emulate import OVERFLOW, OVERFLOW_WEIGHTS
from tests.passes.precision.graphs import InProcess, feeds_for, model_of, relative, run
from tests.passes.precision.traps import TRAPS


def _run(model, options, runner=None):
    context = Context(find_target(), runner=runner)
    changed = make_pass("fp16", options).run(model, context)
    return changed, context


@pytest.mark.parametrize("engine", ["own", "onnxconverter-common"])
def test_engines(engine):
    model = model_of(*TRAPS["variadic"])
    feeds = feeds_for(model)
    want = run(model, feeds)["y"]
    changed, context = _run(model, {"engine": engine})
    assert changed
    assert relative(want, run(model, feeds)["y"]) < 2e-3
    assert context.facts.casts
    for node in model.ir.graph:
        node.name = ""
    before = model.snapshot()
    changed, _ = _run(model, {"engine": engine})
    assert not changed
    assert before.same_as(model.snapshot())


def test_the_borrowed_engine_is_refused_where_it_breaks_a_model():
    model = model_of(*TRAPS["explicit_cast"])
    with pytest.raises(ModelRefused) as caught:
        _run(model, {"engine": "onnxconverter-common"})
    assert caught.value.code == "DP403"
    assert "own" in caught.value.fix


def test_the_borrowed_engine_reports_what_stays_in_fp32():
    model = model_of(*TRAPS["variadic"])
    kept = label(model.ir.graph[0])
    _, context = _run(model, {"engine": "onnxconverter-common", "keep_nodes": [kept]})
    (name,) = (n for n, kept in context.facts.kept_fp32.items() if kept.rule == "user")
    assert name.startswith(kept)  # the engine gives it a name of its own


def test_the_borrowed_engine_reports_what_it_loses():
    model = model_of(*TRAPS["tiny_weights"])
    _, context = _run(model, {"engine": "onnxconverter-common"})
    assert {f.code for f in context.findings} == {"DP401", "DP402"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep_io": ["nowhere"]}, "no input or output 'nowhere'"),
        ({"keep_nodes": ["nowhere"]}, "no node 'nowhere'"),
        ({"engine": "onnxconverter-common", "keep_io": ["x"]}, "all inputs and outputs"),
        ({"engine": "onnxconverter-common", "convert_operators": ["Relu"]}, "does not support it"),
        ({"engine": "onnxconverter-common", "islands": "auto"}, "does not support it"),
        ({"engine": "onnxconverter-common", "policy": "safe"}, "does not support it"),
        ({"engine": "onnxconverter-common", "half_weights": True}, "does not support it"),
        ({"keep_ops": []}, "unknown field 'keep_ops'"),
        ({"policy": "brave"}, "Invalid enum value"),
        ({"keep_operators": ["Softmaxx"]}, "ONNX has no operator 'Softmaxx'"),
        ({"convert_operators": ["softmax"]}, "ONNX has no operator 'softmax'"),
        ({"max_trials": 0}, "field 'max_trials'"),
        ({"feeds": 0}, "field 'feeds'"),
        ({"tolerance": -1}, "field 'tolerance'"),
    ],
)
def test_wrong_options_name_the_field(options, says):
    with pytest.raises(RecipeError, match=says):
        _run(model_of(*TRAPS["variadic"]), options)


def test_islands_need_a_runner():
    with pytest.raises(ModelRefused, match="must run the model"):
        _run(model_of(*TRAPS["variadic"]), {"islands": "auto"})


def _in_fp32(model):
    types, wide = solve_types(model.ir), ir.TensorType(ir.DataType.FLOAT)
    touches = {label(n) for n in nodes(model.ir) if any(types.get(v) == wide for v in (*n.inputs, *n.outputs))}
    return touches - {label(n) for n in nodes(model.ir) if n.op_type == "Cast"}


def test_islands_are_found_recorded_and_repeatable():
    model = model_of(OVERFLOW, OVERFLOW_WEIGHTS)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    want = run(model, feeds[0])["y"]
    _, context = _run(model, {"islands": "auto", "tolerance": 1e-3, "policy": "fast"}, InProcess(feeds))
    assert relative(want, run(model, feeds[0])["y"]) <= 1e-3
    assert set(context.facts.islands) == {"pw", "rv", "a"}
    # the square is part of the sum of squares, and the root is computed before the cast down
    computing = {"rv", "a", "q"}
    assert {f.node for f in context.findings if f.code == "DP405"} == computing
    assert set(context.facts.islands_computing) == set(context.facts.kept_fp32) == computing
    assert _in_fp32(model) == computing
    assert (context.facts.trials[0].error or 0) > 0.9
    worst = context.facts.worst_values
    assert (worst[0].peak or 0) > 65504
    assert [w.peak for w in worst[:10]] == sorted((w.peak for w in worst[:10]), reverse=True)
    again = model_of(OVERFLOW, OVERFLOW_WEIGHTS)
    _run(again, {"keep_nodes": list(context.facts.islands), "policy": "fast"})
    np.testing.assert_array_equal(run(again, feeds[0])["y"], run(model, feeds[0])["y"])


def test_a_tolerance_that_cannot_be_met_is_refused():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ a = Add(x, c) b = Sub(a, c) y = Mul(b, k) }",
        {"c": np.float32(30000), "k": np.float32(3)},
    )
    feeds = [feeds_for(model)]
    with pytest.raises(ModelRefused) as caught:
        _run(model, {"islands": "auto", "tolerance": 1e-6, "max_trials": 1}, InProcess(feeds))
    assert caught.value.code == "DP404"


SHARED = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y) '
    "{ [one] a = MatMul(x, w) [up] b = Mul(a, big) [two] c = MatMul(b, w) [down] d = Mul(c, small) y = MatMul(d, w) }"
)
_RNG = np.random.default_rng(5)
SHARED_WEIGHTS = {
    "w": (_RNG.standard_normal((64, 64)) / 8).astype(np.float32),
    "big": np.float32(60000),
    "small": np.float32(1 / 600),
}


def _widths(model):
    return sorted({v.const_value.dtype.name for v in model.ir.graph.initializers.values() if v.const_value.size > 1})


@pytest.mark.parametrize(
    ("half", "widths"), [("auto", ["FLOAT16"]), (True, ["FLOAT16"]), (False, ["FLOAT", "FLOAT16"])]
)
def test_a_shared_weight_after_a_search(half, widths):
    model = model_of(SHARED, SHARED_WEIGHTS)
    feeds = [feeds_for(model)]
    want = run(model, feeds[0])["y"]
    options = {"islands": "auto", "policy": "fast", "half_weights": half}
    _, context = _run(model, options, InProcess(feeds))
    assert "two" in context.facts.islands
    assert _widths(model) == widths
    assert ("half_weights = true" in context.facts.island_recipe) == (half is not False)
    assert relative(run(model, feeds[0])["y"], want) < 5e-3


def test_a_shared_weight_that_has_to_stay_in_fp32_as_well():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x, float[4,64] z) => (float[4,64] y, bool[4,64] m) '
        "{ y = MatMul(x, w) b = MatMul(z, w) m = Greater(b, small) }",
        SHARED_WEIGHTS,
    )
    feeds = [feeds_for(model)]
    _, context = _run(model, {"islands": "auto", "tolerance": 5e-5, "policy": "fast"}, InProcess(feeds))
    assert _widths(model) == ["FLOAT", "FLOAT16"]
    assert "half_weights" not in context.facts.island_recipe
