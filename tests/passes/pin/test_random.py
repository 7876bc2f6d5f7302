"""Random graphs: the pinned model computes what the original computes, has static shapes and no shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmlprep.directml.targets import find_target
from dmlprep.graph.analysis.polynomial import parse
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from dmlprep.passes import Context
from dmlprep.passes.pin import PinOptions, PinPass
from tests.passes.pin.graphs import models

SHAPE_ARITHMETIC = {"Shape", "Size", "Range", "ConstantOfShape", "If", "Mod", "Equal", "Where", "Gather"}


def run(proto, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.integers(1, 3), st.integers(1, 5), st.randoms(use_true_random=False))
def test_pinned_equals_original(drawn, batch, seq, random):
    proto, named = drawn
    sizes = (
        {"batch": batch, "seq": seq}
        if named
        else {f"{n}:{a}": s for n in ("x", "mask") for a, s in ((0, batch), (1, seq))}
    )
    model = Model(ir.from_proto(proto))
    assert PinPass(PinOptions(sizes=sizes)).run(model, Context(find_target()))
    pinned = ir.to_proto(model.ir)
    assert check(model.ir) == ""
    for value in [*model.ir.graph.inputs, *model.ir.graph.outputs, *(v for n in model.ir.graph for v in n.outputs)]:
        assert value.shape is not None
        assert value.shape.is_static()
    # what reads data may stay; what only reads shapes may not
    assert not {n.op_type for n in model.ir.graph} & SHAPE_ARITHMETIC
    rng = np.random.default_rng(random.randrange(2**32))
    feeds = {
        "x": rng.standard_normal((batch, seq, 4)).astype(np.float32),
        "mask": rng.integers(0, 2, (batch, seq)),
    }
    reference, result = run(proto, feeds), run(pinned, feeds)
    np.testing.assert_array_equal(reference[0], result[0])
    assert list(result[0].shape) == [int(d) for d in model.ir.graph.outputs[0].shape]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.integers(1, 3), st.integers(1, 5))
def test_half_pinned_equals_original(drawn, batch, seq):
    """One dimension stays free: the values hold for any size of it."""
    proto, named = drawn
    sizes = {"batch": batch} if named else {"x:0": batch, "mask:0": batch}
    model = Model(ir.from_proto(proto))
    PinPass(PinOptions(sizes=sizes)).run(model, Context(find_target()))
    assert check(model.ir) == ""
    rng = np.random.default_rng(seq)
    feeds = {
        "x": rng.standard_normal((batch, seq, 4)).astype(np.float32),
        "mask": rng.integers(0, 2, (batch, seq)),
    }
    np.testing.assert_array_equal(run(proto, feeds)[0], run(ir.to_proto(model.ir), feeds)[0])
    # every size that is claimed, by a number, a name or an expression, is the size that the value has
    values = [v for node in model.ir.graph for v in node.outputs]
    claims = {v.name: v.shape for v in values if v.shape is not None}
    known = {"batch": batch, "seq": seq}
    everything = ir.to_proto(model.ir)
    del everything.graph.output[:]
    everything.graph.output.extend(ir.serde.serialize_value(v) for v in values)
    for value in everything.graph.output:
        value.type.tensor_type.ClearField("shape")
    for name, array in zip(claims, run(everything, feeds), strict=True):
        assert len(claims[name]) == array.ndim
        for claim, size in zip(claims[name], array.shape, strict=True):
            if isinstance(claim, int):
                assert claim == size
            elif claim.value in known:
                assert known[claim.value] == size
            elif claim.value and (expression := parse(claim.value)) is not None:
                assert expression.value(known) in (None, size)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.integers(1, 3), st.integers(1, 5))
def test_pinning_twice_changes_nothing(drawn, batch, seq):
    proto, named = drawn
    sizes = {"batch": batch, "seq": seq} if named else {"x:0": batch, "mask:0": batch, "x:1": seq, "mask:1": seq}
    model = Model(ir.from_proto(proto))
    PinPass(PinOptions(sizes=sizes)).run(model, Context(find_target()))
    assert not PinPass(PinOptions()).run(model, Context(find_target()))
