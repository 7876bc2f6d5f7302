"""The rules for one node: version, types, query, data types, functions."""

from __future__ import annotations

import pytest

from tests.directml.placement.graphs import node, placed

DML, CPU = "DmlExecutionProvider", "CPUExecutionProvider"
CONV = "g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { y = Conv (x, w) }"
GRID = "g (float[1,1,4,4] x, float[1,2,2,2] p) => (float[1,1,2,2] y) { y = GridSample (x, p) }"


def test_conv_at_22_goes_to_the_cpu_because_its_kernel_is_11() -> None:
    found = node(placed(CONV, 22), "Conv")
    assert (found.provider, found.code, found.reason, found.since_version) == (
        CPU,
        "DP501",
        "DirectML has version 11, not 22",
        22,
    )


@pytest.mark.parametrize("opset", [11, 17, 21])
def test_conv_below_22_runs_on_directml(opset: int) -> None:
    assert node(placed(CONV, opset), "Conv").provider == DML


@pytest.mark.parametrize(("opset", "provider"), [(16, DML), (19, DML), (20, CPU), (22, CPU)])
def test_grid_sample(opset: int, provider: str) -> None:
    assert node(placed(GRID, opset), "GridSample").provider == provider


@pytest.mark.parametrize(("target", "provider"), [("ort-1.18", CPU), ("ort-1.19", DML)])
def test_a_release_gains_a_kernel(target: str, provider: str) -> None:
    text = "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 2, 2}> { y = Resize (x, , s) }"
    assert node(placed(text, 18, target), "Resize").provider == provider


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (
            "g (double[2,2] x) => (double[2,2] y) { y = MatMul (x, x) }",
            "DP503",
            "x is double; DirectML supports float, float16 there",
        ),
        ("g (int64[2,2] x) => (int64[2,2] y) { y = MatMul (x, x) }", "DP503", "x is int64"),
        ("g (bfloat16[2] x) => (bfloat16[2] y) { y = Identity (x) }", "DP503", "x is bfloat16"),
        ("g (bfloat16[2] x) => (bfloat16[2] y) { y = Relu (x) }", "DP507", "x is bfloat16"),
        ("g (int8[2] x) => (int8[2] y) { y = Sign (x) }", "DP500", ""),
        ("g (string[2] x) => (string[2] y) { y = Identity (x) }", "DP503", "x is string"),
        (
            "g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> "
            '{ y = Resize <mode: string = "cubic"> (x, , s) }',
            "DP504",
            "mode is cubic",
        ),
        (
            "g (float[1,1,4,4] x) => (float[1,1,3,3] y) { y = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x) }",
            "DP504",
            "storage_order is not 0",
        ),
        (
            "g (float[2,3] x, float[3,4] z) => (float[2,4] y) "
            '{ y = Einsum <equation: string = "...ij,jk->...ik"> (x, z) }',
            "DP504",
            "ellipsis",
        ),
        ("g (float[2,3] x) => (int64[2,n] y) { y = NonZero (x) }", "DP500", ""),
        ("g (float[1,4,2] b, float[1,1,4] s) => (int64[n,3] y) { y = NonMaxSuppression (b, s) }", "DP502", "no kernel"),
        (
            "g (float[2,3] x, float[3] s, float[3] b, float[3] m, float16[3] v) => (float[2,3] y) "
            "{ y = BatchNormalization (x, s, b, m, v) }",
            "DP504",
            "v is float16",
        ),
    ],
)
def test_reason(text: str, code: str, says: str) -> None:
    (found,) = placed(text).nodes
    assert found.code == code
    assert says in found.reason
    assert (found.provider == DML) == (code == "DP500")


def test_an_operator_without_any_kernel_fails_the_session() -> None:
    text = "g (float[1,1,4,4] x, float[1,1,2,2] w, float[1,8,3,3] o) => (float[1,1,3,3] y) { y = DeformConv (x, w, o) }"
    result = placed(text, 19)
    assert result.nodes[0].code == "DP507"
    assert not result.runs


def test_an_optional_or_a_sequence_stays_on_the_cpu() -> None:
    result = placed("g (float[2] x) => (optional(float[2]) y) { y = Optional (x) }")
    assert result.nodes[0].provider == CPU
    sequence = placed(
        "g (float[2] x) => (float[2] y) { s = SequenceConstruct (x, x)  i = Constant <value_int = 0> () "
        "y = SequenceAt (s, i) }"
    )
    assert [n.provider for n in sequence.nodes] == [DML, DML]


def test_a_function_without_kernels_is_placed_node_by_node() -> None:
    result = placed("g (float[2,4] x) => (float[2,4] y) { [m] y = Mish (x) }", 18)
    assert {n.origin for n in result.nodes} == {"m"}
    assert {n.provider for n in result.nodes} == {DML}
    assert not any(n.op == "Mish" for n in result.nodes)


def test_gelu_20_runs_on_the_cpu_in_fp32_and_is_inlined_in_fp16() -> None:
    text = "g ({}[2,4] x) => ({}[2,4] y) {{ y = Gelu (x) }}"
    assert node(placed(text.format("float", "float"), 20), "Gelu").provider == CPU
    half = placed(text.format("float16", "float16"), 20)
    assert {n.provider for n in half.nodes} == {DML}
    assert all(n.origin for n in half.nodes)


def test_a_model_local_function_is_inlined() -> None:
    text = (
        'g (float[2,4] x) => (float[2,4] y) { [f] y = my.Twice (x) } <domain: "my", opset_import: ["" : 17]> '
        "Twice (a) => (b) { b = Add (a, a) }"
    )
    (found,) = placed(text, domain="my").nodes
    assert (found.op, found.origin, found.provider) == ("Add", "f", DML)


def test_an_operator_of_com_microsoft_has_a_kernel() -> None:
    text = "g (float[2,4] x) => (float[2,4] y) { t = com.microsoft.Gelu (x)  y = Relu (t) }"
    result = placed(text, domain="com.microsoft")
    assert [n.provider for n in result.nodes] == [DML, DML]
    assert result.partitions == 1  # the shape goes through an operator that onnx does not know


def test_shapes_go_on_behind_operators_of_com_microsoft() -> None:
    text = """g (float[2,8,16] q, float[2,8,16] k, float[2,8,16] v, float[16,4] w) => (float[2,8,4] y) {
        a = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)
        b = com.microsoft.FusedMatMul (a, w)
        c = Relu (b)  n = Neg (c)  y = com.microsoft.Gelu (n)
    }"""
    result = placed(text, domain="com.microsoft")
    assert {n.provider for n in result.nodes} == {DML}
    assert result.partitions == 1
    assert all(n.partition == 0 for n in result.nodes)


def test_an_operator_nobody_knows_fails() -> None:
    assert placed("g (float[2] x) => (float[2] y) { y = my.Thing (x) }", domain="my").nodes[0].code == "DP507"


def test_layer_normalization_with_mean_goes_to_the_cpu() -> None:
    text = "g (float[2,4] x, float[4] s) => (float[2,4] y, float[2,1] m) {{ {} = LayerNormalization (x, s) }}"
    assert placed(text.format("y, m")).nodes[0].code == "DP504"
