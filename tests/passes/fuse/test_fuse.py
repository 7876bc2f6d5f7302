"""The fuse step: what becomes one node, that it computes the same, and what is left as it is."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.passes.fusions import write_out
from dmlprep.pipeline.transaction import Transactions
from dmlprep.record import Finding
from tests.passes.fusions.graphs import B, D, Form, Graph, Kind, N, S, Tables, group_norm, random, rotation, skip_norm

Array = np.ndarray[Any, Any]


def fuse(proto: onnx.ModelProto, target: str = "latest", **options: bool) -> tuple[Model, list[Finding]]:
    model = Model(ir.from_proto(proto))
    context = Context(find_target(target))
    Transactions(model, within_target=True).run("fuse", make_pass("fuse", options), context, options)
    return model, context.findings


def contrib(model: Model) -> Counter[str]:
    return Counter(node.op_type for node in model.ir.graph if node.domain)


def on_cpu(model: Model | onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    proto = ir.to_proto(model.ir) if isinstance(model, Model) else model
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    return np.asarray(found)


def same(one: Array, other: Array, bound: float = 1e-5) -> None:
    assert one.shape == other.shape
    assert np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))) <= bound * np.max(np.abs(one))


def feeds_of(proto: onnx.ModelProto) -> dict[str, Array]:
    feeds = {}
    for index, value in enumerate(proto.graph.input):
        shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = random(shape, index + 7, kind.name)
    return feeds


ROTATIONS = list(product(("halves", "pairs"), ("one sum", "two sums"), ("constant", "computed", "fed"), (True, False)))


@pytest.mark.parametrize(("kind", "form", "tables", "heads_first"), ROTATIONS)
def test_a_rotation_becomes_one_node(kind: Kind, form: Form, tables: Tables, heads_first: bool) -> None:
    proto = rotation(kind, form, tables, heads_first)
    fused, findings = fuse(proto)
    assert contrib(fused) == {"RotaryEmbedding": 1}
    assert [f.code for f in findings] == ["DP302"]
    node = next(n for n in fused.ir.graph if n.domain)
    assert node.attributes.get_int("interleaved", 0) == (kind == "pairs")
    feeds = feeds_of(proto)
    expected = on_cpu(proto, feeds)
    same(expected, on_cpu(fused, feeds))
    same(expected, on_cpu(write_out(fused, all_of_them=True).model, feeds))


def test_a_part_of_each_head_is_turned() -> None:
    proto = rotation("halves", "one sum", "computed", True, rest=4)
    fused, _ = fuse(proto)
    assert contrib(fused) == {"RotaryEmbedding": 1}
    feeds = feeds_of(proto)
    same(on_cpu(proto, feeds), on_cpu(fused, feeds))


def test_fp16_rotates_too() -> None:
    fused, _ = fuse(rotation("halves", "one sum", "constant", True, "float16"))
    assert contrib(fused) == {"RotaryEmbedding": 1}


def _table(proto: onnx.ModelProto, change: Any) -> onnx.ModelProto:
    """The same model with another table of cosines."""
    table = next(t for t in proto.graph.initializer if list(t.dims) == [1, 1, S, D])
    array = onnx.numpy_helper.to_array(table).copy()
    table.CopyFrom(onnx.numpy_helper.from_array(change(array), table.name))
    return proto


def test_tables_whose_halves_differ_stay() -> None:
    def spoilt(array: Array) -> Array:
        array[0, 0, 2, 1] += 1e-3
        return array

    fused, _ = fuse(_table(rotation("halves", "one sum", "constant", True), spoilt))
    assert contrib(fused) == {}


def test_tables_in_pairs_do_not_turn_halves() -> None:
    def in_pairs(array: Array) -> Array:
        return np.repeat(array[..., : D // 2], 2, -1)

    fused, _ = fuse(_table(rotation("halves", "one sum", "constant", True), in_pairs))
    assert contrib(fused) == {}


def test_a_table_for_each_head_stays() -> None:
    def for_heads(array: Array) -> Array:
        return np.repeat(array, N, 1) + np.arange(N, dtype=np.float32).reshape(1, N, 1, 1)

    fused, findings = fuse(_table(rotation("halves", "one sum", "constant", True), for_heads))
    assert contrib(fused) == {}
    assert [f.code for f in findings] == ["DP303"]


NORMS = [
    ((1, 32, 4, 4), 8),
    ((B, 6, 3, 5), 1),
    ((B, 6, 3, 5), 6),
    ((B, 6, 7), 3),
    ((1, 4, 2, 3, 2), 2),
]


@pytest.mark.parametrize("swish", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("shape", "groups"), NORMS)
def test_a_group_norm_becomes_one_node(shape: tuple[int, ...], groups: int, affine: bool, swish: bool) -> None:
    proto = group_norm(shape, groups, swish, affine)
    fused, _ = fuse(proto)
    assert contrib(fused) == {"GroupNorm": 1}
    node = next(n for n in fused.ir.graph if n.domain)
    assert node.attributes.get_int("activation") == swish
    assert node.inputs[0] is not None
    assert node.inputs[0].shape is not None
    assert len(node.inputs[0].shape) == 4
    placed = place(fused, find_target())
    assert {n.provider for n in placed.nodes} == {"DmlExecutionProvider"}
    feeds = feeds_of(proto)
    written = write_out(fused)
    assert written.counts == {"GroupNorm": 1}
    same(on_cpu(proto, feeds), on_cpu(written.model, feeds))


def test_two_group_norms_of_one_value_may_stand_in_any_order() -> None:
    g = Graph()
    x, shape = g.fed("x", (2, 4, 6)), g.constant([2, 4, 6])
    one, zero = g.constant(np.ones(2)), g.constant(np.zeros(2))
    a, b = (g.op("InstanceNormalization", g.op("Reshape", x, g.constant([0, 2, -1])), one, zero) for _ in range(2))
    second = g.op("Reshape", b, shape)
    first = g.op("Reshape", a, shape)
    proto = g.model(g.op("Mul", first, g.op("Relu", second)), (2, 4, 6))
    fused, _ = fuse(proto)
    assert contrib(fused) == {"GroupNorm": 2}
    feeds = feeds_of(proto)
    same(on_cpu(proto, feeds), on_cpu(write_out(fused).model, feeds))


def test_group_norm_of_fp16() -> None:
    fused, _ = fuse(group_norm((1, 8, 4, 4), 4, True, True, "float16"))
    assert contrib(fused) == {"GroupNorm": 1}


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("gamma", [False, True])
def test_skip_norm(gamma: bool, inverse: bool) -> None:
    proto = skip_norm(gamma=gamma, inverse=inverse)
    assert contrib(fuse(proto)[0]) == {}, "off by default"
    fused, _ = fuse(proto, skip_norm=True)
    assert contrib(fused) == {"SkipSimplifiedLayerNormalization": 1}
    feeds = feeds_of(proto)
    expected = on_cpu(proto, feeds)
    same(expected, on_cpu(fused, feeds))
    same(expected, on_cpu(write_out(fused, all_of_them=True).model, feeds))


def test_skip_norm_stays_in_fp16() -> None:
    fused, findings = fuse(skip_norm("float16"), skip_norm=True)
    assert contrib(fused) == {}
    assert "overflows" in findings[0].message


def test_a_release_without_the_kernel_keeps_the_nodes() -> None:
    proto = rotation("halves", "one sum", "constant", True, opset=16)
    fused, findings = fuse(proto, "ort-1.15")
    assert contrib(fused) == {}
    assert "DirectML does not run it" in findings[0].message
    fused, findings = fuse(proto, "winml-11")
    assert contrib(fused) == {}
    assert findings == []


def test_weights_are_the_same_tensors_under_other_sizes() -> None:
    model = Model(ir.from_proto(group_norm((1, 8, 4, 4), 4, False, True)))
    before = {id(v.const_value) for v in model.ir.graph.initializers.values()}
    Transactions(model, within_target=True).run("fuse", make_pass("fuse", {}), Context(find_target()), {})
    node = next(n for n in model.ir.graph if n.domain)
    sources = [v.const_value.source for v in node.inputs[1:] if v is not None]  # type: ignore[union-attr]
    assert {id(t) for t in sources} <= before
    assert "Reshape" not in [n.op_type for n in model.ir.graph]
