"""How a model comes apart into blocks."""

from __future__ import annotations

from dmlprep.graph.model.walk import label
from dmlprep.passes.precision.search.blocks import Block, first_blocks
from tests.passes.precision.graphs import model_of
from tests.passes.precision.traps import W


def _first(lines: str) -> list[Block]:
    model = model_of(f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) {{ {lines} }}', W)
    return first_blocks(model, [label(n) for n in model.ir.graph], lambda node: 1.0)


def _whole(lines: str) -> Block:
    return Block(tuple(unit for block in _first(lines) for unit in block.units))


def _computes(block: Block) -> list[str]:
    return [label([*unit][-1]) for unit in block.units]


def test_what_only_hands_on_goes_with_what_reads_it() -> None:
    blocks = _first("[a] a = Exp(x) [t] t = Neg(a) [r] r = Relu(t) [m] b = MatMul(r, w) [last] y = Abs(b)")
    assert [[label(n) for n in unit] for block in blocks for unit in block.units] == [["a"], ["t", "r", "m"], ["last"]]


def test_a_block_is_split_where_one_value_carries_everything() -> None:
    wide = "[a] a = Exp(x) [b] b = Sin(a) [c] c = Cos(a) [d] d = Mul(b, a) [e] e = Mul(c, d)"
    block = _whole(f"{wide} [f] f = Sigmoid(e) [g] g = Sin(f) [h] y = Mul(f, g)")
    halves = block.split(lambda node: 1.0)
    assert [_computes(half) for half in halves] == [["a", "b", "c", "d", "e"], ["f", "g", "h"]]


def test_branches_that_share_nothing_come_apart_however_they_are_interleaved() -> None:
    block = _whole(
        "[a1] a = Exp(x) [b1] p = Sin(x) [a2] b = Exp(a) [b2] q = Sin(p) [a3] c = Exp(b) [b3] r = Sin(q) "
        "[join] y = Add(c, r)"
    )
    inner = Block(block.units[:-1])
    assert [_computes(half) for half in inner.split(lambda node: 1.0)] == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]


def test_one_node_is_not_split() -> None:
    (block,) = _first("[one] y = Exp(x)")
    assert block.split(lambda node: 1.0) == []
    assert block.name == "one"
