"""GroupQueryAttention that norms queries and keys: the rewrite against numpy, and what is said of refused forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.runtime import cpu_host, open_cpu
from tests.genai.decoders import decoder

Array = np.ndarray[Any, Any]

TEXT = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (DATA) => (float[2,3,32] y, float[2,1,3,16] ok, float[2,1,3,16] ov)
<int32[2] n = {2, 2}, int32 t = {3}>
{ y, ok, ov = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1, do_rotary = 1 MORE>
  (WHICH, , , n, t, c, s LAST) }"""
ANGLES = np.outer(np.arange(4), 100.0 ** -(np.arange(8) / 8))
WEIGHTS = {"qw": np.linspace(0.5, 2, 16), "kw": np.linspace(2, 0.5, 16)}
CONSTANTS = {"c": np.cos(ANGLES), "s": np.sin(ANGLES), **WEIGHTS}
APART, PACKED = "float[2,3,32] q, float[2,3,16] k, float[2,3,16] v", "float[2,3,64] q"


def model(packed: bool, normed: bool, more: str = "") -> onnx.ModelProto:
    words = {
        "DATA": PACKED if packed else APART,
        "WHICH": "q, , " if packed else "q, k, v",
        "LAST": ", , , , , , qw, kw" if normed else "",
        "MORE": more,
    }
    text = TEXT
    for word, value in words.items():
        text = text.replace(word, value)
    made = onnx.parser.parse_model(text)
    named = {name for node in made.graph.node for name in node.input}
    tensors = {name: array.astype(np.float32) for name, array in CONSTANTS.items() if name in named}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in tensors.items())
    return made


def rms(x: Array, weight: Array, epsilon: float) -> Array:
    heads = x.astype(np.float64).reshape(*x.shape[:2], -1, 16)
    normed = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight
    return normed.reshape(x.shape).astype(np.float32)


def run(proto: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> dict[str, Array]:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with cpu_host() as host, open_cpu(path, host=host) as session:
        return session.run(feeds)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("more", "epsilons"),
    [
        ("", (1e-6, 1e-6)),
        (", qk_norm_epsilon = 0.5", (0.5, 0.5)),
        (", qk_norm_epsilon = 0.5, k_norm_epsilon = 0.125", (0.5, 0.125)),
    ],
)
def test_heads_are_normed_and_then_rotated(
    packed: bool, more: str, epsilons: tuple[float, float], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 3, width)).astype(np.float32) for width in (32, 16, 16))
    made = Model(ir.from_proto(model(packed, True, more)))
    assert FixQuirksPass(FixQuirksOptions()).run(made, Context(find_target()))
    operators = [node.op_type for node in made.ir.graph]
    first_rotation = operators.index("RotaryEmbedding")
    assert operators[:first_rotation].count("SimplifiedLayerNormalization") == 2
    feeds = {"q": np.concatenate([q, k, v], 2)} if packed else {"q": q, "k": k, "v": v}
    found = run(ir.to_proto(made.ir), feeds, tmp_path)
    normed = {"q": rms(q, WEIGHTS["qw"], epsilons[0]), "k": rms(k, WEIGHTS["kw"], epsilons[1]), "v": v}
    for name, array in run(model(False, False), normed, tmp_path).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_rotation_that_cannot_follow_a_norm_stays_inside() -> None:
    made = Model(ir.from_proto(model(False, True)))
    options = FixQuirksOptions(skip=["grouped-norm"])
    assert not FixQuirksPass(options).run(made, Context(find_target()))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}, "cache is quantized"),
        ({"causal": 0}, "not causal"),
        ({"k_quant_type": "NONE", "causal": 1}, ""),
    ],
)
def test_what_directml_refuses(attributes: dict[str, Any], says: str) -> None:
    target = find_target()
    facts = read_facts(Model(ir.from_proto(decoder(packed=False, rotary=False, **attributes))), target.tables)
    found = [hit.finding() for hit in find_quirks(facts, target) if hit.quirk.id == "grouped-refused"]
    assert bool(found) is bool(says)
    assert all(says in one.message and one.severity == "error" for one in found)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ('com.microsoft.FusedMatMulActivation <activation = "Relu"> (x, w)', "its activation is Relu"),
        ('com.microsoft.FusedMatMulActivation <activation = "Softmax"> (x, w)', ""),
        ("com.microsoft.ConvTransposeWithDynamicPads (x, w)", "its pads are missing"),
        ("com.microsoft.ConvTransposeWithDynamicPads (x, w, p, w)", "it has a bias"),
        ("com.microsoft.ConvTransposeWithDynamicPads (x, w, p)", ""),
        ("com.microsoft.EmbedLayerNormalization (i, , w, w, , w, w)", ""),
    ],
)
def test_other_operators_that_directml_refuses(node: str, says: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2,2] x, float[2,2] w, int64[4] p, int32[2,2] i) => (float[2,2] y)"""
    target = find_target()
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(f"{text} {{ y = {node} }}"))), target.tables)
    assert [hit.detail for hit in find_quirks(facts, target)] == [says] * bool(says)
