"""The work of a run, compared with numbers that were computed by hand."""

from __future__ import annotations

import pytest

from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.targets import find_target
from dmlprep.directml.targets.flops import flops
from dmlprep.directml.vram.work import Work, work_of
from tests.directml.placement.graphs import parsed

_TARGET = find_target("ort-1.24")


def _works(text: str, *, free: str = "", domain: str = "") -> list[Work]:
    """The work of a graph; ``free``: the same with free sizes, which is placed instead."""
    facts = read_facts(parsed(text, domain=domain), _TARGET.tables)
    other = read_facts(parsed(free, domain=domain), _TARGET.tables) if free else facts
    placed = [node for node in place_facts(other, _TARGET, 17).nodes if not node.graph]
    return work_of(facts, placed, _TARGET.tables)


def _flops(text: str, domain: str = "com.microsoft") -> int | None:
    (node,) = read_facts(parsed(text, domain=domain), _TARGET.tables).nodes
    return flops(node)


def test_a_fused_graph_moves_its_inputs_weights_and_results_once() -> None:
    text = """g (float[1,3,8,8] x) => (float[1,4,6,6] y) <float[4,3,3,3] w = {1.0}>
    { a = Conv (x, w)  b = Relu (a)  y = Add (b, b) }"""
    convolution = 2 * (4 * 6 * 6) * (3 * 3 * 3)
    relu_and_add = 2 * (4 * 6 * 6)
    moved = 4 * (3 * 8 * 8 + 4 * 3 * 3 * 3 + 4 * 6 * 6)
    (work,) = _works(text.replace("{1.0}", "{" + "1," * 107 + "1}"))
    assert work == Work("Conv(a)", 3, True, 0, convolution + relu_and_add, moved)


def test_nodes_outside_of_fused_graphs_count_together() -> None:
    """With free sizes nothing is fused, and the sizes of the run still count."""
    body = "{ a = Relu (x)  y = Neg (a) }"
    works = _works(f"g (float[2,8] x) => (float[2,8] y) {body}", free=f"g (float[n,8] x) => (float[n,8] y) {body}")
    assert [(w.nodes, w.fused, w.single, w.nbytes) for w in works] == [(2, False, 32, 2 * 64)]


def test_half_and_integers_are_counted_apart() -> None:
    (work,) = _works("g (float16[4,8] a, float16[8,2] b) => (float16[4,2] y) { y = MatMul (a, b) }")
    assert (work.half, work.single, work.nbytes) == (2 * 4 * 2 * 8, 0, 2 * (32 + 16 + 8))
    (work,) = _works("g (int32[4] a, int32[4] b) => (int32[4] y) { y = Add (a, b) }")
    assert (work.half, work.single, work.nbytes) == (0, 0, 3 * 16)


def test_a_table_of_embeddings_is_read_in_part() -> None:
    (work,) = _works("g (float[1000,8] t, int64[5] i) => (float[5,8] y) { y = Gather (t, i) }")
    assert work.nbytes == 2 * (5 * 8 * 4) + 5 * 8


def test_a_result_that_is_read_twice_is_written_once() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Relu (x)  z = Neg (y) }"
    assert sum(work.nbytes for work in _works(text)) == 16 * 3


def test_unknown_shapes_are_counted() -> None:
    text = "g (float[4] x, int64[1] s) => (float[n] y) { a = Relu (x)  b = Reshape (a, s)  y = Neg (b) }"
    assert sum(work.unknown for work in _works(text)) >= 1


def test_another_graph() -> None:
    with pytest.raises(ValueError, match="zip"):
        _works(
            "g (float[4] x) => (float[4] y) { y = Relu (x) }",
            free="g (float[4] x) => (float[4] y) { a = Relu (x)  y = Neg (a) }",
        )


_HEADS = "<num_heads = 2>"


@pytest.mark.parametrize(
    ("text", "keys", "out"),
    [
        # cross-attention: 6 queries, 10 keys
        (
            f"g (float[1,6,8] q, float[1,10,8] k, float[1,10,8] v) => (float[1,6,8] y) "
            f"{{ y = com.microsoft.MultiHeadAttention {_HEADS} (q, k, v) }}",
            10,
            48,
        ),
        # past keys: 7 and 3 more
        (
            f"g (float[1,3,8] q, float[1,3,8] k, float[1,3,8] v, float[1,2,7,4] pk, float[1,2,7,4] pv) "
            f"=> (float[1,3,8] y) {{ y = com.microsoft.MultiHeadAttention {_HEADS} (q, k, v, , , , pk, pv) }}",
            10,
            24,
        ),
        # queries, keys and values in one tensor
        (
            f"g (float[1,5,2,3,4] q) => (float[1,5,8] y) {{ y = com.microsoft.MultiHeadAttention {_HEADS} (q) }}",
            5,
            40,
        ),
    ],
)
def test_attention(text: str, keys: int, out: int) -> None:
    assert _flops(text) == 2 * (2 * out * keys)


def test_attention_with_its_projection() -> None:
    text = (
        f"g (float[2,5,8] x, float[8,24] w, float[24] b) => (float[2,5,8] y) "
        f"{{ y = com.microsoft.Attention {_HEADS} (x, w, b) }}"
    )
    assert _flops(text) == 2 * (2 * 80 * 5) + 2 * 80 * 24


def test_a_cache_that_is_a_buffer_need_not_be_full() -> None:
    def text(present: int) -> str:
        return (
            "g (float16[1,1,8] q, float16[1,1,4] k, float16[1,1,4] v, float16[1,1,9,4] pk, float16[1,1,9,4] pv, "
            "int32[1] s, int32 t) "
            f"=> (float16[1,1,8] y, float16[1,1,{present},4] ok, float16[1,1,{present},4] ov) "
            "{ y, ok, ov = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> "
            "(q, k, v, pk, pv, s, t) }"
        )

    assert _flops(text(9)) == 4 * 8 * 1
    assert _flops(text(10)) == 4 * 8 * 10
    (work,) = _works(text(9), domain="com.microsoft")
    queries_keys_values_result = 2 * (8 + 4 + 4 + 8)
    assert work.nbytes == queries_keys_values_result
