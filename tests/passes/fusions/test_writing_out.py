"""Fused operators written out in a copy: the same numbers as their formulas, and the model stays as it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from dmlprep.graph.model import Model
from dmlprep.passes.fusions import write_out
from tests.benchmarks.fused_kernels import CLOSE, KINDS, together


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_form_is_written_out(kind: str) -> None:
    """The forms that are tried on DirectML: layouts, types, ranks, positions, a part of each head, biases."""
    cases = [case for case in KINDS[kind]() if "+-300" not in case.name and "500+-" not in case.name]
    model = Model(ir.from_proto(together(cases)))
    before = model.snapshot()
    written = write_out(model, all_of_them=True)
    assert sum(written.counts.values()) == len(cases)
    assert model.snapshot().same_as(before)
    assert not [node for node in written.model.ir.graph if node.domain]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = ir.to_proto(written.model.ir)
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {f"{name}_{i}": array for i, case in enumerate(cases) for name, array in case.feeds.items()}
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    for index, case in enumerate(cases):
        for name, expected in case.expected.items():
            got = np.asarray(found[f"{name}_{index}"]).astype(np.float64)
            assert got.shape == expected.shape, case.name
            assert np.max(np.abs(got - expected)) <= CLOSE[case.dtype] * np.max(np.abs(expected)), case.name


def test_what_the_cpu_has_a_kernel_for_stays() -> None:
    model = Model(ir.from_proto(together(list(KINDS["rotary"]())[:2])))
    written = write_out(model)
    assert written.model is model
    assert written.counts == {}
    assert str(written) == ""


def test_packed_batches_stay() -> None:
    model = Model(ir.from_proto(together(list(KINDS["rotary"]())[:1])))
    next(iter(model.ir.graph)).attributes["is_packed_batching"] = ir.AttrInt64("is_packed_batching", 1)
    assert write_out(model, all_of_them=True).counts == {}
