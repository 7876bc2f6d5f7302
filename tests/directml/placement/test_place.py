"""Placement of whole graphs: shape arithmetic, subgraphs, fusion, crossings, roles."""

from __future__ import annotations

import msgspec
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.directml.placement import Placement, choose_opset, place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from tests.benchmarks.placement import chain, compare_suite
from tests.directml.placement.graphs import node, parsed, placed

DML, CPU = "DmlExecutionProvider", "CPUExecutionProvider"

DYNAMIC = """g (float[batch, 8] x) => (float[rows, 8] y) <int64 zero = {0}, int64[1] axis = {0}, int64[1] tail = {8}> {
    s = Shape (x)  n = Gather (s, zero)  u = Unsqueeze (n, axis)  c = Concat <axis = 0> (u, tail)
    [r] r = Reshape (x, c)  y = Relu (r)
}"""
BRANCHES = """g (bool c, float[2,3] x) => (float[2,3] y) {
    a = Relu (x)
    [choose] y = If (c) <
        then_branch = t () => (float[2,3] p) { p = Sigmoid (a) },
        else_branch = e () => (float[2,3] q) { b = Add (a, x)  q = Tanh (b) }
    >
}"""


@pytest.mark.slow
def test_the_rule_places_the_node_suite_as_the_provider_did() -> None:
    compared, misses = compare_suite()
    assert compared > 17_000
    assert len(misses) <= compared // 1000, misses[:20]
    assert not misses


def test_shape_arithmetic_stays_on_the_cpu_and_is_no_compute() -> None:
    result = placed(DYNAMIC)
    assert {n.op: n.provider for n in result.nodes} == {
        "Shape": DML,
        "Gather": CPU,
        "Unsqueeze": CPU,
        "Concat": CPU,
        "Reshape": DML,
        "Relu": DML,
    }
    assert {n.code for n in result.nodes if n.provider == CPU} == {"DP506"}
    assert result.compute_on_cpu == []
    assert result.partitions == 0
    assert {node(result, op).not_fused for op in ("Reshape", "Relu")} == {"DP511"}


@pytest.mark.parametrize(("count", "provider"), [(100, CPU), (101, DML)])
def test_a_constant_of_more_than_a_hundred_elements_stops_the_search(count: int, provider: str) -> None:
    text = f"g (float[n] x) => (int64[{count + 1}] y) {{ s = Shape (x)  k = Constant <value = int64[{count}] k {{"
    text += ", ".join(["1"] * count) + "}> ()  y = Concat <axis = 0> (s, k) }"
    assert node(placed(text), "Concat").provider == provider


def test_an_fp16_input_stops_the_search() -> None:
    text = "g (float[n] x, float16 h) => ({0} y) {{ s = Size (x)  f = Cast <to = {1}> (s)  y = Mul (f, h) }}"
    half = placed(text.format("float16", 10))
    assert node(half, "Cast").provider == CPU
    assert node(half, "Mul").provider == DML
    single = placed(text.format("float", 1).replace("float16 h", "float h"))
    assert node(single, "Mul").provider == CPU  # a graph input lies on the CPU


def test_branches_are_placed_on_their_own_and_keep_the_graph_from_fusing() -> None:
    result = placed(BRANCHES)
    assert {(n.graph, n.op, n.provider) for n in result.nodes} == {
        ("", "Relu", DML),
        ("", "If", DML),
        ("choose/then_branch", "Sigmoid", DML),
        ("choose/else_branch", "Add", DML),
        ("choose/else_branch", "Tanh", DML),
    }
    assert node(result, "Relu").not_fused == "DP513"
    assert node(result, "Tanh").partition == 0
    assert result.partitions == 2


def test_if_at_21_runs_on_the_cpu_and_its_branches_do_not() -> None:
    result = placed(BRANCHES, 21)
    assert node(result, "If").provider == CPU
    assert node(result, "If").role == "control"
    assert node(result, "Sigmoid").provider == DML
    assert result.compute_on_cpu == []


def test_what_is_unfusable_cuts_a_partition() -> None:
    text = (
        "g (float[2,3] x) => (float[2,3] y, float[2] m) {{ a = Relu (x)  b = {} (a{})  c = Exp (b)  y = Add (a, c)  "
        "m = ReduceMax <axes = [1], keepdims = 0> (c) }}"
    )
    one = placed(text.format("Neg", ""))
    assert one.partitions == 1
    two = placed(text.format("Sum", ", a, a"))  # three inputs: runs unfused
    assert node(two, "Sum").not_fused == "DP516"
    assert two.partitions == 2
    assert node(two, "Relu").partition == 0
    assert node(two, "Add").partition == 1


def test_an_empty_tensor_is_not_fused() -> None:
    result = placed("g (float[0,3] x) => (float[0,3] y) { y = Relu (x) }")
    assert result.nodes[0].not_fused == "DP515"


def test_crossings_have_bytes() -> None:
    text = "g (float[1,3,8,8] x) => (float[1,3,8,8] y) { a = Relu (x)  b = Softplus (a)  y = Exp (b) }"
    result = placed(text, 22)  # Softplus 22 has no DirectML kernel
    assert [(c.value, c.to, c.nbytes) for c in result.crossings] == [("a", "cpu", 768), ("b", "dml", 768)]
    assert result.crossing_bytes == 2 * 768
    assert result.feed_bytes == 2 * 768
    assert result.compute_on_cpu == [node(result, "Softplus").name]
    assert result.partitions == 2


def test_a_feed_that_both_devices_read_crosses() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Softplus (x)  z = Exp (x) }"
    assert [(c.value, c.to, c.nbytes) for c in placed(text, 22).crossings] == [("x", "dml", 16)]
    assert placed(text, 17).crossings == []


def test_a_constant_that_an_old_file_lists_as_an_input_does_not_cross() -> None:
    text = "g (float[4] x, float[4] w = {1, 2, 3, 4}) => (float[4] y, float[4] z) { y = Softplus (w)  z = Add (x, w) }"
    result = placed(text, 22)
    assert {n.op: n.provider for n in result.nodes} == {"Softplus": CPU, "Add": DML}
    assert result.crossings == []


def test_a_chain_of_constants_is_no_compute() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { s = Softplus (k)  y = Add (x, s) }"
    result = placed(text, 22)
    assert node(result, "Softplus").provider == CPU
    assert node(result, "Softplus").role == "constant"
    assert result.compute_on_cpu == []


def test_an_initializer_that_can_be_overridden_is_not_constant() -> None:
    text = "g (float[2,3] x, int64[1] s) => (float[6] y) <int64[1] s = {6}> { y = Reshape (x, s) }"
    assert node(placed(text), "Reshape").not_fused == "DP512"
    fixed = "g (float[2,3] x) => (float[6] y) <int64[1] s = {6}> { y = Reshape (x, s) }"
    assert node(placed(fixed), "Reshape").partition == 0


def test_operations_are_counted_where_shapes_are_known() -> None:
    result = placed("g (float[2,8] x, float[8,5] w) => (float[2,5] y) { y = MatMul (x, w) }")
    assert result.flops == 2 * 2 * 5 * 8
    assert result.flop_share == 1.0
    conv = placed("g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { y = Conv (x, w) }", 22)
    assert conv.flops == 2 * 4 * 36 * 27
    assert conv.flop_share == 0.0


def test_a_share_of_operations_is_not_told_where_a_shape_is_free() -> None:
    """It would say which shapes are known, and not where the nodes run."""
    result = placed("g (float[n,8] x, float[8,5] w) => (float[n,5] y) { y = MatMul (x, w) }")
    assert result.flop_share is None
    assert result.summary().flop_share is None


def test_free_dimensions_are_listed() -> None:
    assert placed(DYNAMIC).free_dimensions == {"batch": ["x[0]"]}


def test_a_placement_goes_through_json() -> None:
    result = placed(BRANCHES)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Placement) == result


@pytest.mark.parametrize(
    ("text", "own", "chosen"),
    [
        ("g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { y = Conv (x, w) }", 22, 21),
        ("g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { y = Conv (x, w) }", 13, 13),
        ("g (float[1,1,4,4] x, float[1,2,2,2] p) => (float[1,1,2,2] y) { y = GridSample (x, p) }", 20, 19),
        ("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }", 25, 25),
        ("g (float[2,4] x) => (float[2,4] y) { y = Mish (x) }", 22, 21),
    ],
)
def test_the_opset_nearest_to_the_models_own(text: str, own: int, chosen: int) -> None:
    assert choose_opset(parsed(text, own), find_target("ort-1.24")) == chosen


def test_an_opset_that_cannot_say_the_attributes_is_no_candidate() -> None:
    text = "g (float[1,1,4,4] x) => (float[1,1,2,2] y) <float[4] s = {{1, 1, 0.5, 0.5}}> {{ y = Resize <{}> (x, , s) }}"
    plain = parsed(text.format('mode: string = "linear"'), 18)
    smooth = parsed(text.format('mode: string = "linear", antialias = 1'), 18)
    assert choose_opset(plain, find_target("ort-1.18")) == 17  # no Resize-18 there, but Resize-13
    assert choose_opset(smooth, find_target("ort-1.18")) == 18


def test_cubic_stays_where_it_is() -> None:
    text = (
        "g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> "
        '{ y = Resize <mode: string = "cubic"> (x, , s) }'
    )
    assert choose_opset(parsed(text, 13), find_target("ort-1.24")) == 13


def test_the_opset_stays_within_what_the_release_loads() -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }", 25)
    assert choose_opset(model, find_target("ort-1.17")) == 20


def test_a_decomposed_gelu_weighs_against_opset_20() -> None:
    text = (
        "g (float[2,4] x) => (float[2,4] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}> "
        "{ d = Div (x, r)  e = Erf (d)  a = Add (e, one)  m = Mul (x, a)  y = Mul (m, half) }"
    )
    assert choose_opset(parsed(text, 20), find_target("ort-1.24")) == 19
    assert choose_opset(parsed(text, 20), find_target("ort-1.19")) == 20


def test_placing_changes_nothing_and_reads_no_weights() -> None:
    model = parsed(BRANCHES)
    before = model.snapshot()
    place(model, find_target())
    choose_opset(model, find_target())
    assert before.same_as(model.snapshot())


@given(
    st.lists(st.sampled_from(["Relu", "Softplus", "Neg", "Shape", "Sin", "Erf"]), min_size=1, max_size=12), st.data()
)
@settings(max_examples=40, deadline=None)
def test_random_chains_add_up(ops: list[str], data: st.DataObject) -> None:
    lines, values = [], ["x"]
    for i, op in enumerate(ops):
        source = data.draw(st.sampled_from(values))
        if op == "Shape":
            lines.append(f"s{i} = Shape ({source})  v{i} = Cast <to = 1> (s{i})")
        else:
            lines.append(f"v{i} = {op} ({source})")
        values.append(f"v{i}")
    text = f"g (float[2,3] x) => (float[a] {values[-1]}) {{ {'  '.join(lines)} }}"
    result = placed(text.replace("float[a]", "float"), data.draw(st.sampled_from([17, 22])))
    assert result.dml_nodes == sum(n.provider == DML for n in result.nodes)
    fused = [n for n in result.nodes if n.partition is not None]
    assert all(n.provider == DML and not n.not_fused for n in fused)
    assert all(n.not_fused for n in result.nodes if n.provider == DML and n.partition is None)
    assert {n.partition for n in fused} == set(range(result.partitions))


def test_the_chain_of_the_bench_is_placed_whole() -> None:
    result = place(Model(ir.from_proto(chain(900))), find_target())
    assert len(result.nodes) == 900
    assert result.compute_on_cpu == []


def test_the_length_of_a_sequence_is_in_cpu_memory() -> None:
    """Its readers stay on the CPU, as those of Shape and Size do: measured on 1.24.4 and 1.30.0."""
    text = """g (float[4] x) => (float[8] y) {
        s = SequenceConstruct (x, x)  n = SequenceLength (s)  f = Cast <to = 1> (n)
        c = ConcatFromSequence <axis = 0> (s)  y = Mul (c, f)
    }"""
    result = placed(text)
    assert {n.op: n.provider for n in result.nodes if n.provider == CPU} == {"Cast": CPU}
    assert [c.to for c in result.crossings] == ["dml"]


def test_an_inlined_body_has_the_defaults_of_its_operator() -> None:
    """The body of Swish reads its attribute alpha: 1 where the node has none."""
    result = placed("g (float[2,4] x) => (float[2,4] y) { y = Swish (x) }", 24, "ort-1.30")
    assert result.runs
    assert [n.op for n in result.nodes if n.role == "compute"] == ["Mul", "Sigmoid", "Mul"]
    assert result.compute_on_cpu == []
