"""Random valid graphs convert to valid models whose emulated error stays within what their operators imply."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes.precision import convert, emulate
from tests.passes.precision.graphs import proto_of, run
from tests.passes.precision.random_bodies import STEPS
from tests.passes.precision.random_graphs import graphs, implied_bounds

EXAMPLES = int(os.environ.get("DMLPREP_RANDOM_GRAPHS", "40"))
"""2,000 in the nightly run: ``DMLPREP_RANDOM_GRAPHS=2000 pytest tests/passes/precision/test_random_graphs.py``."""


def _all_values(proto: onnx.ModelProto, g) -> onnx.ModelProto:
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    known = {o.name for o in wide.graph.output}
    for name, shape in g.floats.items():
        if name not in known and name != "x":
            wide.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, shape))
    return wide


@pytest.mark.slow
@given(graphs(STEPS))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 40,
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_random_graph(made):
    proto, g = made
    onnx.checker.check_model(proto, full_check=True)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(g.floats["x"]).astype(np.float32), "flag": np.array(True)}
    values = {**feeds, **run(_all_values(proto, g), feeds)}
    if max(np.abs(values[n]).max(initial=0) for n in g.floats) > 6e4:
        return  # out of range in FP32 already: the range profile's business
    bounds = implied_bounds(g, values)
    for keep_io in (True, False):
        model = Model(ir.from_proto(proto))
        convert(model, find_target(), keep_io=keep_io)
        half = proto_of(model)
        onnx.checker.check_model(half, full_check=True)
        shadow, stored = run(emulate(model), feeds), run(half, feeds)
        for output in (o.name for o in proto.graph.output):
            for got in (shadow[output], stored[output]):
                off = np.abs(got.astype(np.float64) - values[output]).max(initial=0)
                assert off <= bounds[output], f"{output}: {off} > {bounds[output]}"
        again = model.snapshot()
        assert not convert(model, find_target(), keep_io=keep_io).changed
        assert again.same_as(model.snapshot())
