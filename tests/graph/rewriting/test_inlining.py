"""Inlining gives the names that onnx-ir gives, and does not take minutes for thousands of calls."""

from __future__ import annotations

import time

import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import InlinePass

from dmlprep.graph.rewriting.inlining import Inline

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
PAIR = """<domain: "local", opset_import: ["": 21]> pair (a) => (b) { [one] h = Relu(a) [one] b = Neg(h) }"""
OUTER = """<domain: "local", opset_import: ["": 21, "local": 1]> outer (a, c) => (b) {
  h = local.pair(a)
  b = If (c) <
    then_branch = then () => (t) { u = Abs(h) t = local.pair(u) },
    else_branch = other () => (e) { e = Neg(h) }
  >
}"""


def _model(body: str, inputs: str = "float[4] x", *functions: str) -> ir.Model:
    text = f"{HEAD}\nmain ({inputs}) => (float[4] y) {{ {body} }}\n" + "\n".join(functions)
    return ir.from_proto(onnx.parser.parse_model(text))


def _calls(count: int) -> ir.Model:
    names = ["x", *(f"v{number}" for number in range(1, count)), "y"]
    body = " ".join(f"{names[n + 1]} = local.pair({names[n]})" for n in range(count))
    return _model(body, "float[4] x", PAIR)


def test_names_are_those_of_onnx_ir() -> None:
    body = "h = local.outer(x, c) h_2 = local.pair(h) [one] k = Abs(h_2) y = local.outer(k, c)"
    for make in (lambda: _calls(9), lambda: _model(body, "float[4] x, bool c", PAIR, OUTER)):
        ours, theirs = make(), make()
        assert Inline()(ours).modified
        InlinePass()(theirs)
        assert ir.to_proto(ours) == ir.to_proto(theirs)


@pytest.mark.slow
def test_thousands_of_calls_take_no_minutes() -> None:
    model = _calls(5000)
    began = time.process_time()
    Inline()(model)
    assert time.process_time() - began < 8  # 1 s; onnx-ir's own pass takes 20 s
    assert len({node.name for node in model.graph}) == len(model.graph) == 10_000
