"""MultiHeadAttention that leaves out later tokens: with free sizes, one graph hides them behind any cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.runtime import cpu_host

TEXT = """<ir_version: 8, opset_import: ["" : OPSET, "com.microsoft" : 1]>
g (TYPE[b,s,8] q, TYPE[b,s,8] k, TYPE[b,s,8] v, TYPE[b,2,p,4] pk, TYPE[b,2,p,4] pv)
 => (TYPE[b,s,8] y, TYPE[b,2,t,4] nk, TYPE[b,2,t,4] nv)
{ y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v, , , BIAS, pk, pv) }"""


def model(kind: str = "float", opset: int = 17, bias: str = "") -> onnx.ModelProto:
    text = TEXT.replace("TYPE", kind).replace("OPSET", str(opset)).replace("BIAS", bias)
    return onnx.parser.parse_model(text)


def rewritten(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, Context]:
    made, context = Model(ir.from_proto(proto)), Context(find_target())
    FixQuirksPass(FixQuirksOptions()).run(made, context)
    return ir.to_proto(made.ir), context


def test_it_hides_later_tokens_behind_any_cache(tmp_path: Path) -> None:
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    proto, _ = rewritten(model())
    before.write_bytes(model().SerializeToString())
    after.write_bytes(proto.SerializeToString())
    node = next(node for node in proto.graph.node if node.op_type == "MultiHeadAttention")
    assert "unidirectional" not in {attribute.name for attribute in node.attribute}
    rng = np.random.default_rng(0)
    with cpu_host() as host, host.open(before) as one, host.open(after) as other:
        for batch, tokens, past in ((1, 5, 0), (2, 3, 4), (1, 1, 6), (3, 1, 0)):
            feed = {name: rng.standard_normal((batch, tokens, 8)).astype(np.float32) for name in "qkv"}
            feed |= {name: rng.standard_normal((batch, 2, past, 4)).astype(np.float32) for name in ("pk", "pv")}
            wanted, found = one.run(feed), other.run(feed)
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, atol=1e-5)


def test_half_precision_has_a_bias_of_its_own_type() -> None:
    proto, _ = rewritten(model("float16"))
    hidden = [tensor for tensor in proto.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT16]
    assert {float(onnx.numpy_helper.to_array(tensor)) for tensor in hidden} == {-65504.0, 0.0}


@pytest.mark.parametrize(
    ("proto", "why"),
    [(model(bias="pk"), "already has a mask or a bias"), (model(opset=12), "needs opset 13")],
)
def test_it_says_why_it_leaves_a_node(proto: onnx.ModelProto, why: str) -> None:
    _, context = rewritten(proto)
    assert any(why in one.message for one in context.findings)


def test_one_token_without_a_choice_is_no_quirk() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1,1,8] q, float[1,1,8] k, float[1,1,8] v) => (float[1,1,8] y)
    { y = com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v) }"""
    _, context = rewritten(onnx.parser.parse_model(text))
    assert context.findings == []
