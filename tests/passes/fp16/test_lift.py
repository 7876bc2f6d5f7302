"""A published FP16 file that overflows: what needs FP32 is in FP32 afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dmlprep
from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision import convert, emulate
from dmlprep.passes.precision.lift import has_half, lift
from dmlprep.passes.precision.types import solve_types
from tests.passes.precision.graphs import InProcess, feeds_for, model_of, proto_of, relative, run
from tests.passes.precision.traps import TRAPS


def _published(ends: str, first: str, last: str) -> Model:
    """Sums of squares beyond 65504 in FP16, and an exponential that the author computes in FP32."""
    rng = np.random.default_rng(0)
    return model_of(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({ends}[4,16] x) => ({ends}[4,16] y) {{ {first} '
        "[first] a = MatMul(h, w) [up] u = Cast<to=1>(a) [own] v = Tanh(u) [down] d = Cast<to=10>(v) "
        "[grow] b = Mul(d, big) [square] c = Mul(b, b) [sum] s = ReduceSum<keepdims=1>(c, one) [root] r = Sqrt(s) "
        f"[back] n = Div(b, r) [second] m = MatMul(n, w) [third] o = MatMul(m, w) {last} }}",
        {
            "w": (rng.normal(size=(16, 16)) / 4).astype(np.float16),
            "big": np.float16(900),
            "one": np.array([1]),
        },
    )


MODELS = {
    "half_inside": ("float", "h = Cast<to=10>(x)", "[out] y = Cast<to=1>(o)"),
    "half_throughout": ("float16", "[in] h = Identity(x)", "[out] y = Identity(o)"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_overflows_is_lifted(name: str) -> None:
    model = _published(*MODELS[name])
    feeds = [feeds_for(model)]
    want = run(model, feeds[0])["y"].astype(np.float32)  # the CPU provider computes in FP32
    types = [v.dtype for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)]
    assert relative(want, run(emulate(model), feeds[0])["y"]) > 0.5
    options = {"policy": "fast", "allow": ["little-gain"]}
    again = model.copy()
    context = Context(find_target(), runner=InProcess(feeds))
    make_pass("fp16", {**options, "islands": "auto"}).run(model, context)
    assert relative(want, run(emulate(model), feeds[0])["y"]) < 0.01
    assert [v.dtype for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)] == types
    assert {"square", "sum", "own"} <= context.facts.kept_fp32.keys()
    assert not {"first", "second", "third"} & context.facts.kept_fp32.keys()
    assert context.facts.island_recipe.endswith("\nlift = true")
    written = {**options, "lift": True, "keep_nodes": list(context.facts.islands)}
    make_pass("fp16", written).run(again, Context(find_target()))
    assert proto_of(again).graph.node == proto_of(model).graph.node


def test_without_it_the_search_finds_nothing() -> None:
    model = _published(*MODELS["half_throughout"])
    context = Context(find_target(), runner=InProcess([feeds_for(model)]))
    with pytest.raises(ModelRefused, match="no set of nodes in FP32"):
        make_pass("fp16", {"islands": "auto", "lift": False}).run(model, context)


@pytest.mark.parametrize("name", TRAPS)
def test_a_lifted_model_is_valid_and_computes_the_same(name: str) -> None:
    model = model_of(*TRAPS[name])
    feeds = feeds_for(model)
    convert(model, find_target(), keep_io=False)
    if any(isinstance(kind, ir.SequenceType) for kind in solve_types(model.ir).values()):
        pytest.skip("sequences stay in FP32")
    want = run(model, feeds)
    lift(model)
    assert not has_half(model)
    assert not check(model.ir)
    got = run(model, feeds)
    for output, values in want.items():
        if values.dtype.kind == "f":
            assert relative(values.astype(np.float32), got[output]) <= 0.02


def test_check_notes_a_model_in_half(tmp_path: Path) -> None:
    for name, codes in (("half_inside", ["DP410"]), ("single", [])):
        model = _published(*MODELS["half_inside"])
        if name == "single":
            lift(model)
        path = tmp_path / f"{name}.onnx"
        onnx.save(proto_of(model), path)
        assert [f.code for f in dmlprep.check(path).findings if f.code == "DP410"] == codes
