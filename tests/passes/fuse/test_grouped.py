"""Causal attention of a whole sequence becomes GroupQueryAttention; what is not that stays."""

from __future__ import annotations

import copy
from itertools import product
from typing import get_args

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.rewriting.builder import as_attribute
from dmlprep.passes.fusions import write_out
from tests.passes.fuse.test_fuse import contrib, feeds_of, fuse, on_cpu, same
from tests.passes.fusions.graphs import Ends, Repeats, decoder, sdpa

ONE = {"GroupQueryAttention": 1}


def becomes_one(proto: onnx.ModelProto, groups: int, bound: float = 1e-5) -> None:
    fused, findings = fuse(proto, grouped_attention=True, attention=True)
    assert contrib(fused) == ONE
    assert [f.code for f in findings] == ["DP302"]
    node = next(n for n in fused.ir.graph if n.domain)
    assert node.attributes.get_int("kv_num_heads", 0) == groups
    assert [value.name != "" for value in node.outputs] == [True] * 3, "DirectML's kernel takes no node without them"
    ops = [n.op_type for n in fused.ir.graph]
    assert not {"Expand", "Tile", "Unsqueeze", "Softmax"} & set(ops), "nothing of the repeated heads is left"
    assert {n.provider for n in place(fused, find_target()).nodes} == {"DmlExecutionProvider"}
    feeds = feeds_of(proto)
    expected = on_cpu(proto, feeds)
    assert np.isfinite(expected).all()
    same(expected, on_cpu(fused, feeds), bound)
    same(expected, on_cpu(write_out(fused, all_of_them=True).model, feeds), bound)


@pytest.mark.parametrize(("repeats", "groups"), list(product(get_args(Repeats), (4, 2, 1))))
def test_heads_are_not_repeated(repeats: Repeats, groups: int) -> None:
    becomes_one(decoder(repeats=repeats, groups=groups), groups)


@pytest.mark.parametrize(("ends", "guarded"), list(product(get_args(Ends), (False, True))))
def test_masks(ends: Ends, guarded: bool) -> None:
    becomes_one(decoder(ends, guarded=guarded), 2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_mask_that_is_computed_from_constants(dtype: str) -> None:
    becomes_one(decoder("computed", dtype=dtype), 2, 1e-5 if dtype == "float32" else 2e-3)


@pytest.mark.parametrize("ends", ["added", "number"])
def test_fp16(ends: Ends) -> None:
    becomes_one(decoder(ends, dtype="float16"), 2, 2e-3)


@pytest.mark.parametrize(
    ("proto", "why"),
    [
        (decoder(hole=True), "a position does not see all before it"),
        (decoder(past=3), "DirectML's kernel does not read the cache"),
        (decoder(past=3, count=1), "a token behind a cache"),
        (decoder(count=1), "one token sees itself alone"),
        (decoder(size=6), "the CPU's kernel takes multiples of 8"),
        (sdpa(), "no mask at all"),
        (sdpa(mask="fed"), "what the mask holds is not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_kernel_does_not_take_is_attention_with_a_bias(proto: onnx.ModelProto, why: str) -> None:
    assert contrib(fuse(proto, grouped_attention=True, attention=True)[0]) == {"MultiHeadAttention": 1}, why
    assert contrib(fuse(proto, grouped_attention=True)[0]) == {}


def test_off_by_default() -> None:
    assert contrib(fuse(decoder())[0]) == {}
    assert contrib(fuse(decoder(), attention=True)[0]) == {"MultiHeadAttention": 1}


@pytest.mark.parametrize(
    ("name", "wrong"), [("do_rotary", 1), ("local_window_size", 3), ("softcap", 2.0), ("smooth_softmax", 1)]
)
def test_what_is_not_written_out_is_left(name: str, wrong: float) -> None:
    fused, _ = fuse(decoder(), grouped_attention=True)
    node = next(n for n in fused.ir.graph if n.domain)
    node.attributes.add(as_attribute(name, wrong))
    assert write_out(fused, all_of_them=True).counts == {}


GROUPED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[2,3,32] q, float[2,3,16] k, float[2,3,16] v) => (float[2,3,32] y, float[2,2,3,8] pk, float[2,2,3,8] pv)
<int32[2] n = {2, LAST}, int32 t = {3}>
{ y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, , , n, t) }"""


def test_caches_that_are_read_are_written_out_too() -> None:
    proto = onnx.parser.parse_model(GROUPED.replace("LAST", "2"))
    written = write_out(Model(ir.from_proto(proto)), all_of_them=True)
    assert written.counts == ONE
    feeds = feeds_of(proto)
    for name in ("y", "pk", "pv"):
        one, other = copy.deepcopy(proto), ir.to_proto(written.model.ir)
        for model in (one, other):
            kept = [value for value in model.graph.output if value.name == name]
            del model.graph.output[:]
            model.graph.output.extend(kept)
        same(on_cpu(one, feeds), on_cpu(other, feeds))


def test_sequences_that_are_shorter_are_not_written_out() -> None:
    model = Model(ir.from_proto(onnx.parser.parse_model(GROUPED.replace("LAST", "1"))))
    assert write_out(model, all_of_them=True).counts == {}
