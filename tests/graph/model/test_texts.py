"""Text attributes whose bytes are no text."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import helper

from dmlprep.graph.model.texts import as_text, text_of


@pytest.mark.filterwarnings("ignore")
def test_bytes_that_are_no_text_are_read_as_escapes() -> None:
    node = ir.from_proto(helper.make_node("Einsum", ["x"], ["y"], equation=b"i\xff->i"))
    assert text_of(node, "equation") == "i\\xff->i"
    assert as_text(node.attributes["equation"]) == "i\\xff->i"
    assert text_of(node, "mode", "none") == "none"


def test_a_number_is_no_text() -> None:
    node = ir.from_proto(helper.make_node("Einsum", ["x"], ["y"], equation=3))
    assert text_of(node, "equation", "none") == "none"
