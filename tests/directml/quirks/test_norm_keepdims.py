"""Means without keepdims: the form that ONNX Runtime fuses, and forms next to it that it does not fuse."""

from __future__ import annotations

import re

import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model

_NORM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 4] x) => (float[4, 4] y)
<float two = {2.0}, float eps = {1e-5}, float[4] s = {1, 2, 1, 3}, float[4] b = {0, 1, 0, 2}> {
    m = ReduceMean <axes = [-1], keepdims = 0> (x)
    d = Sub (x, m)
    p = Pow (d, two)
    v = ReduceMean <axes = [-1], keepdims = 1> (p)
    e = Add (v, eps)
    q = Sqrt (e)
    n = Div (d, q)
    w = Mul (n, s)
    y = Add (w, b)
}"""


def _severities(text: str) -> list[str]:
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    target = find_target()
    hits = [hit for hit in find_quirks(read_facts(model, target.tables), target) if hit.quirk.id == "norm-keepdims"]
    return [hit.finding().severity for hit in hits]


@pytest.mark.parametrize(
    ("old", "new", "severities"),
    [
        ("", "", ["error"]),
        ("keepdims = 1", "keepdims = 0", ["error", "error"]),
        ("p = Pow (d, two)", "c = Cast <to = 1> (d) p = Pow (c, two)", ["error"]),
        ("float[4, 4]", "float[rows, 4]", ["warning"]),  # right for one row
        ("float[4, 4]", "float[1, 4]", []),
        ("keepdims = 0", "keepdims = 1", []),
        ("[-1], keepdims = 0", "[0], keepdims = 0", []),
        ("y = Add (w, b)", "y = Neg (w)", []),  # SimplifiedLayerNormFusion does not concern DirectML
        ("y = Add (w, b)", "t = Add (w, b) y = Add (t, d)", []),  # the difference is read elsewhere, too
        ("y = Add (w, b)", "t = Add (w, b) y = Add (t, m)", []),
        ("d = Sub (x, m)", "d = Add (x, m)", []),
        ("n = Div (d, q)", "n = Div (x, q)", []),
    ],
)
def test_only_what_is_fused_into_a_layer_normalization_is_found(old: str, new: str, severities: list[str]) -> None:
    assert _severities(_NORM.replace(old, new)) == severities


def test_from_opset_18_on_the_axes_are_an_input() -> None:
    text = _NORM.replace('"" : 17', '"" : 18').replace("float two", "int64[1] last = {-1}, float two")
    text = re.sub(r"ReduceMean <axes = \[-1\], (keepdims = .)> \((.)\)", r"ReduceMean <\1> (\2, last)", text)
    assert _severities(text) == ["error"]
    assert _severities(text.replace("last = {-1}", "last = {0}")) == []
