"""com.microsoft operators on wish: the same numbers, and only where attributes allow them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.opset.models import bring, close, opset, parse, run

RNG = np.random.default_rng(0)


def contrib(proto: object) -> list[str]:
    return [n.op_type for n in proto.graph.node if n.domain == "com.microsoft"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("node", "version", "taken"),
    [
        ("Gelu (x)", 20, "Gelu"),
        ("Gelu <approximate = 'tanh'> (x)", 20, "FastGelu"),
        ("Swish <alpha = 1.5> (x)", 24, "QuickGelu"),
    ],
)
def test_activations(node: str, version: int, taken: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : {version}]> g (float[n, 5] x) => (float[n, 5] y) {{ y = {node} }}'
    proto = parse(text.replace("'", '"'))
    x = RNG.standard_normal((3, 5)).astype(np.float32)
    lowered, _ = bring(proto, 17, prefer_contrib=True)
    plain, _ = bring(proto, 17)
    assert (contrib(lowered), contrib(plain)) == ([taken], [])
    assert opset(lowered, "com.microsoft") == 1
    close(run(lowered, {"x": x}), run(plain, {"x": x}))


def test_a_type_without_a_kernel_is_not_taken() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (double[5] x) => (double[5] y) { y = Gelu (x) }'
    assert contrib(bring(parse(text), 17, prefer_contrib=True)[0]) == []


ATTENTION = """<ir_version: 11, opset_import: ["" : 23]>
g (float[2, 4, 3, 8] q, float[2, 4, 5, 8] k, float[2, 4, 5, 6] v{mask}) => (float[2, 4, 3, 6] y)
{{ y = Attention <{attributes}> (q, k, v{name}) }}"""


@pytest.mark.parametrize("attributes", ["is_causal = 0", "scale = 0.3", "is_causal = 1"])
@pytest.mark.parametrize("mask", ["", "bool[2, 1, 3, 5] m", "float[3, 5] m"])
def test_attention(attributes: str, mask: str) -> None:
    feeds = {
        n: RNG.standard_normal((2, 4, s, w)).astype(np.float32) for n, s, w in (("q", 3, 8), ("k", 5, 8), ("v", 5, 6))
    }
    if mask.startswith("bool"):
        feeds["m"] = RNG.random((2, 1, 3, 5)) > 0.5
        feeds["m"][0, 0, 1] = False  # a query that may look at nothing
    elif mask:
        feeds["m"] = RNG.standard_normal((3, 5)).astype(np.float32)
        feeds["m"][2] = -np.inf
    name = ", m" if mask else ""
    proto = parse(ATTENTION.format(mask=f", {mask}" if mask else "", attributes=attributes, name=name))
    lowered, _ = bring(proto, 17, prefer_contrib=True)
    plain, _ = bring(proto, 17)
    assert (contrib(lowered), contrib(plain)) == (["MultiHeadAttention"], [])
    close(run(lowered, feeds), run(plain, feeds))


@pytest.mark.parametrize("attributes", ["softcap = 2.0", "qk_matmul_output_mode = 1"])
def test_attention_that_com_microsoft_cannot_say(attributes: str) -> None:
    proto = parse(ATTENTION.format(mask="", attributes=attributes, name=""))
    if "qk" in attributes:
        proto.graph.node[0].output.extend(["", "", "z"])
        info = proto.graph.output.add(name="z")
        info.type.tensor_type.elem_type = 1
        for d in (2, 4, 3, 5):
            info.type.tensor_type.shape.dim.add(dim_value=d)
    assert contrib(bring(proto, 17, prefer_contrib=True)[0]) == []


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [False, True])
def test_rotary_embedding(interleaved: int, positions: bool) -> None:
    cache = "float[9, 4] c, float[9, 4] s, int64[2, 3] p" if positions else "float[2, 3, 4] c, float[2, 3, 4] s"
    text = f"""<ir_version: 11, opset_import: ["" : 23]> g (float[2, 5, 3, 8] x, {cache}) => (float[2, 5, 3, 8] y)
    {{ y = RotaryEmbedding <interleaved = {interleaved}> (x, c, s{", p" if positions else ""}) }}"""
    proto = parse(text)
    angles = RNG.uniform(0, 6, (9, 4) if positions else (2, 3, 4))
    feeds = {
        "x": RNG.standard_normal((2, 5, 3, 8)).astype(np.float32),
        "c": np.cos(angles).astype(np.float32),
        "s": np.sin(angles).astype(np.float32),
        **({"p": RNG.integers(0, 9, (2, 3))} if positions else {}),
    }
    lowered, _ = bring(proto, 17, prefer_contrib=True)
    assert contrib(lowered) == ["RotaryEmbedding"]
    close(run(lowered, feeds), run(bring(proto, 17)[0], feeds))


@pytest.mark.parametrize("rank", [3, 4])
def test_attention_with_shared_heads_and_free_sizes(rank: int) -> None:
    if rank == 4:
        types = "float[b, 4, s, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 6] v", "float[b, 4, s, 6] y", "scale = 0.2"
        shapes = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)
    else:
        types = (
            "float[b, s, 32] q, float[b, t, 16] k, float[b, t, 12] v",
            "float[b, s, 24] y",
            "q_num_heads = 4, kv_num_heads = 2",
        )
        shapes = (2, 3, 32), (2, 5, 16), (2, 5, 12)
    text = f"""<ir_version: 11, opset_import: ["" : 23]> g ({types[0]}, bool[b, 1, s, t] m) => ({types[1]})
    {{ y = Attention <{types[2]}> (q, k, v, m) }}"""
    proto = parse(text)
    feeds = {n: RNG.standard_normal(s).astype(np.float32) for n, s in zip("qkv", shapes, strict=True)}
    feeds["m"] = RNG.random((2, 1, 3, 5)) > 0.4
    lowered, _ = bring(proto, 17, prefer_contrib=True)
    assert contrib(lowered) == ["MultiHeadAttention"]
    close(run(lowered, feeds), run(bring(proto, 17)[0], feeds))
