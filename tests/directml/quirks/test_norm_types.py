"""Normalizations that ONNX Runtime fuses with two types, and forms next to them that it loads."""

from __future__ import annotations

import re

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from packaging.version import Version

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from tests.passes.fix_quirks.test_fix_quirks import fixed

_NORM = """<ir_version: 8, opset_import: ["" : 17]>
g (float16[4, 4] x) => (float[4, 4] y)
<float two = {2.0}, float eps = {1e-5}, float[4] s = {1, 2, 1, 3}, float[4] b = {0, 1, 0, 2}> {
    r = Relu (x)
    a = Cast <to = 1> (r)
    m = ReduceMean <axes = [-1]> (a)
    d = Sub (a, m)
    p = Pow (d, two)
    v = ReduceMean <axes = [-1]> (p)
    e = Add (v, eps)
    q = Sqrt (e)
    n = Div (d, q)
    w = Mul (n, s)
    y = Add (w, b)
}"""
_HALF = "float16[4] s = {15360, 15360, 15360, 15360}, float16[4] b = {0, 0, 0, 0}> {"
_SINGLE = _NORM[_NORM.index("float[4] s") : _NORM.index("{\n") + 1]


def _at(opset: int, text: str) -> str:
    text = text.replace('"" : 17', f'"" : {opset}').replace("ir_version: 8", "ir_version: 10")
    if opset < 18:
        return text
    text = text.replace("float two", "int64[1] last = {-1}, float two")
    return re.sub(r"ReduceMean <axes = \[-1\]> \((.)\)", r"ReduceMean (\1, last)", text)


def _is_quirk(proto: onnx.ModelProto, release: str = "ort-1.30") -> bool:
    model, target = Model(ir.from_proto(proto)), find_target(release)
    hits = find_quirks(read_facts(model, target.tables), target)
    return any(hit.quirk.id == "norm-types" for hit in hits)


def _loads(proto: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph):
        return False
    return True


@pytest.mark.skipif(Version(ort.__version__) < Version("1.25"), reason="loads what later releases do not")
@pytest.mark.parametrize(
    ("old", "new", "opset", "is_quirk"),
    [
        ("", "", 17, True),
        ("", "", 21, True),
        ("", "", 16, False),
        ("n = Div (d, q)", "d2 = Sub (a, m) n = Div (d2, q)", 17, True),
        ("n = Div (d, q)", "d2 = Add (a, m) n = Div (d2, q)", 17, False),
        ("y = Add (w, b)", "t = Add (w, b) y = Add (t, a)", 17, False),  # another node reads the Cast
        ("float[4] s = {1, 2, 1, 3}", "float[1, 4] s = {1, 2, 1, 3}", 17, False),
        ("r = Relu (x)", "r = Identity (x)", 17, True),
        ("float16[4, 4] x", "int32[4, 4] x", 17, True),
        ("float16[4, 4] x", "int32[4, 4] x", 16, True),
        ("float16[4, 4] x", "double[4, 4] x", 17, True),
        ("p = Pow (d, two)", "p = Mul (d, d)", 17, False),
    ],
)
def test_the_quirk_is_what_onnx_runtime_does_not_load(old: str, new: str, opset: int, is_quirk: bool) -> None:
    text = _NORM.replace(old, new)
    if "int32" in text:
        text = text.replace("Relu", "Neg")
    proto = onnx.parser.parse_model(_at(opset, text))
    onnx.checker.check_model(proto, full_check=True)
    assert _is_quirk(proto) == is_quirk
    assert _loads(proto) != is_quirk


@pytest.mark.skipif(Version(ort.__version__) < Version("1.20"), reason="its CPU provider loads the form")
@pytest.mark.parametrize("cast", [True, False])
def test_a_cast_to_the_type_of_the_data_before_the_scale_makes_one_type(cast: bool) -> None:
    """The Cast before the mean is omitted only if the normalization alone reads it."""
    text = _NORM.replace(_SINGLE, _HALF).replace("w = Mul (n, s)", "c = Cast <to = 10> (n) w = Mul (c, s)")
    text = text.replace("(float[4, 4] y)", "(float16[4, 4] y)" if cast else "(float16[4, 4] y, float[4, 4] a)")
    proto = onnx.parser.parse_model(text)
    onnx.checker.check_model(proto, full_check=True)
    assert _is_quirk(proto) != cast
    assert _loads(proto) == cast


def test_from_opset_21_on_only_onnx_runtime_from_1_25_on_omits_the_cast() -> None:
    proto = onnx.parser.parse_model(_at(21, _NORM))
    assert [_is_quirk(proto, f"ort-1.{minor}") for minor in (24, 25)] == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("float two = {2.0}", "float two = {3.0}", "exponent is not 2"),
        ("e = Add (v, eps)", "c = Abs (eps) e = Add (v, c)", "epsilon is not constant"),
        ("float[4] s = {1, 2, 1, 3}, float[4] b = {0, 1, 0, 2}", "float[1] s = {1}, float[1] b = {0}", "other sizes"),
        ("float16[4, 4] x", "float16[4, columns] x", "sizes of its data"),
    ],
)
def test_what_has_no_equal_layer_normalization_is_reported_and_stays(old: str, new: str, reason: str) -> None:
    _, context, changed = fixed(onnx.parser.parse_model(_NORM.replace(old, new)))
    assert not changed
    assert [f.code for f in context.findings] == ["DP641"]
    assert reason in context.findings[0].message
