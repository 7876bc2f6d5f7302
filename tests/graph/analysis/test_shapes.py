"""Types, shapes and constants that follow from a graph: through bodies, functions and shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.flow import merged
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.shapes import Inference, write_types

HEAD = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'


def parsed(text: str, head: str = HEAD) -> ir.Model:
    proto = onnx.parser.parse_model(head + text)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    return ir.from_proto(proto)


def outputs(model: ir.Model, **sizes: int) -> list[tuple[int | str | None, ...] | None]:
    known = Inference.of(model, sizes.get if sizes else None)
    return [known.dims(value) for value in model.graph.outputs]


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        # The shape of the output hangs on numbers of which some are still free.
        (
            """g (float[batch, 12, 8] x) => (float y) <int64[1] a = {0}, int64[1] b = {96}>
            { s = Shape (x) n = Gather (s, a) t = Concat <axis = 0> (n, b) y = Reshape (x, t) }""",
            ("batch", 96),
        ),
        (
            """g (float[batch, seq, 8] x) => (float y) <int64[2] t = {-1, 8}> { y = Reshape (x, t) }""",
            ("batch*seq", 8),
        ),
        ("g (float[past, 4] x, float[seq, 4] z) => (float y) { y = Concat <axis = 0> (x, z) }", ("past + seq", 4)),
        (
            """g (float[n, 4] x) => (float y) <int64 two = {2}, int64[1] m = {0}>
            { s = Shape <end = 1> (x) h = Mul (s, two) y = ConstantOfShape (h) }""",
            ("2*n",),
        ),
        # A local function, and a node without a shape of its own inside it.
        (
            """g (float[2, 3] x) => (float y) { y = local.turned (x) }
            <domain: "local", opset_import: ["" : 17]> turned (a) => (b) { t = Transpose (a) b = Relu (t) }""",
            (3, 2),
        ),
        (
            """g (float[2, 3] x) => (float y) { z = local.second (, x) y = Neg (z) }
            <domain: "local", opset_import: ["" : 17]> second (a, b) => (c) { c = Relu (b) }""",
            (2, 3),
        ),
    ],
    ids=["shape arithmetic", "flattened", "concatenated", "doubled", "function", "omitted input"],
)
def test_shapes_that_hang_on_free_sizes(text: str, dims: tuple[int | str, ...]) -> None:
    assert outputs(parsed(text)) == [dims]


def test_a_part_of_unknown_rank_leaves_the_whole_unknown() -> None:
    text = "g (float[2, 4] x, int64[k] s) => (float y) { r = Reshape (x, s) y = Concat <axis = 0> (x, r) }"
    assert outputs(parsed(text)) == [None]


def test_constants_are_computed_where_all_inputs_are_known() -> None:
    text = """g (int64[2] x) => (int64[2] y) <int64[2] a = {1, 2}, int64[2] b = {3, 4}>
    { c = Add (a, b) d = Mul (c, b) y = Add (d, x) }"""
    model = parsed(text)
    known = Knowledge(model)
    computed = [known.constant(node.outputs[0]) for node in model.graph]
    assert [None if array is None else array.tolist() for array in computed] == [[4, 6], [12, 24], None]


IF = """g (bool c, float[2, 3] x) => (float y) {
  y = If (c) < then_branch = t () => (float p) { p = Relu (x) },
               else_branch = e () => (float q) <int64[1] r = {REPEATS}, int64[1] one = {1}> {
                 rs = Concat <axis = 0> (r, one) q = Tile (x, rs) } > }"""


def test_an_if_has_what_both_branches_have() -> None:
    assert outputs(parsed(IF.replace("REPEATS", "1"))) == [(2, 3)]
    assert outputs(parsed(IF.replace("REPEATS", "4"))) == [(None, 3)]


def test_a_branch_that_is_never_taken_does_not_count() -> None:
    text = IF.replace("REPEATS", "4").replace("bool c, ", "").replace("{\n  y", "<bool c = {0}> {\n  y", 1)
    assert outputs(parsed(text)) == [(8, 3)]


LOOP = """g (float[2, 3] x) => (float y, float z) <int64 n = {5}, bool go = {1}> {
  y, z = Loop (n, go, x) < body = b (int64 i, bool on, float[2, 3] h) => (bool still, float next, float row) {
    still = Identity (on) next = NEXT row = ReduceSum <keepdims = 0> (h) } > }"""


def test_a_loop_stacks_what_each_round_gives() -> None:
    assert outputs(parsed(LOOP.replace("NEXT", "Relu (h)"))) == [(2, 3), (5,)]


def test_a_loop_forgets_what_changes_from_round_to_round() -> None:
    grown, _ = outputs(parsed(LOOP.replace("NEXT", "Concat <axis = 0> (h, h)")))
    assert grown == (None, 3)


def test_a_scan_takes_away_its_axis_and_puts_it_back() -> None:
    text = """g (float[3] s, float[7, 3] x) => (float t, float y) {
      t, y = Scan <num_scan_inputs = 1, body = b (float[3] a, float[3] r) => (float c, float d) {
        c = Add (a, r) d = ReduceMax <keepdims = 0> (c) }> (s, x) }"""
    assert outputs(parsed(text)) == [(3,), (7,)]


def test_numbers_are_carried_and_weights_are_not_read() -> None:
    model = parsed("g (float[2, 3] x) => (int64 y) { s = Shape (x) y = ReduceProd <keepdims = 0> (s) }")
    lazy = ir.LazyTensor(
        lambda: pytest.fail("a weight was read"), dtype=ir.DataType.FLOAT, shape=ir.Shape([2000, 2000]), name="w"
    )
    model.graph.register_initializer(ir.Value(name="w", const_value=lazy))
    known = Inference.of(model)
    np.testing.assert_array_equal(known.constants[model.graph.outputs[0]], 6)


def test_what_is_only_declared_is_marked_and_pinned_names_are_replaced() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[n, 3] x) => (float[n, 5] y) { y = local.unknown (x) }")
    model = ir.from_proto(proto)
    known = Inference.of(model, {"n": 2}.get)
    assert known.dims(model.graph.outputs[0]) == (2, 5)
    assert known.assumed == {model.graph.outputs[0]}


def test_two_sizes_without_a_name_are_not_the_same() -> None:
    model = parsed("g (float[n, 4] x, float[n, 4] z) => (float y) { y = Concat <axis = 1> (x, z) }")
    for value in model.graph.inputs:
        value.shape = ir.Shape(["None", 4])
    assert outputs(model) == [(None, 8)]


def test_a_contradiction_names_the_node_and_its_shapes() -> None:
    with pytest.raises(ModelRefused, match=r"x: \[2, 3\], z: \[2, 4\]") as caught:
        Inference.of(parsed("g (float[2, 3] x, float[2, 4] z) => (float y) { [sum] y = Add (x, z) }"))
    assert (caught.value.code, caught.value.where) == ("DP202", "node sum")


def test_what_was_found_is_written_and_denotations_stay() -> None:
    model = parsed("g (float[n, 3] x) => (float y) { h = Relu (x) y = Flatten (h) }")
    hidden = next(iter(model.graph)).outputs[0]
    hidden.shape = ir.Shape([None, None], ["DATA_BATCH", "DATA_FEATURE"])
    model.graph.inputs[0].shape = ir.Shape([2, 3])
    write_types(model, Inference.of(model))
    assert hidden.shape is not None
    assert hidden.shape.numpy() == (2, 3)
    assert [hidden.shape.get_denotation(axis) for axis in range(2)] == ["DATA_BATCH", "DATA_FEATURE"]
    assert hidden.type == ir.TensorType(ir.DataType.FLOAT)


def test_sequences_are_merged_only_if_their_elements_have_one_type() -> None:
    make = onnx.helper.make_sequence_type_proto
    one, other, whole = (
        make(onnx.helper.make_tensor_type_proto(kind, size))
        for kind, size in ((onnx.TensorProto.FLOAT, [2]), (onnx.TensorProto.FLOAT, [3]), (onnx.TensorProto.INT64, [2]))
    )
    assert merged(one, other) == make(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    assert merged(one, whole) is None


@pytest.mark.parametrize("body", ["body = b () => (float z) { z = Relu (x) }", "other = 1"])
def test_a_loop_that_lacks_what_it_needs_is_refused(body: str) -> None:
    with pytest.raises(ModelRefused, match="Loop"):
        outputs(parsed(f"g (float[2] x) => (float y) {{ y = Loop () <{body}> }}"))
