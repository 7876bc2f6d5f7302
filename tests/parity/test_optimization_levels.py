"""FP16 files that the CPU provider cannot run at its default optimisation are compared at a lower level, and say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlprep.graph.model import Model
from dmlprep.parity import Reference
from dmlprep.parity.bisection.finding import try_settings
from dmlprep.parity.optimization_levels import at_some_level, lower_levels
from dmlprep.runtime import SessionFailure, SessionOptions
from tests.fixtures_index import fixture
from tests.parity.comparing import compare

# ONNX Runtime 1.24.4's CPU provider crashes over this Transpose before a MatMul in FP16, at its default level only.
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (TYPE[2, 3, 4] x) => (TYPE[3, 2, 5] y) { t = Transpose<perm = [1, 0, 2]>(x) y = MatMul(t, w) }"""


def _saved(kind: str, path: Path, factor: float = 1.0) -> Path:
    model = onnx.parser.parse_model(TEXT.replace("TYPE", kind))
    weights = np.random.default_rng(0).standard_normal((4, 5)) * factor
    dtype = np.float16 if kind == "float16" else np.float32
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(dtype), "w"))
    onnx.save(model, path)
    return path


def test_a_crash_at_the_default_level_is_no_verdict(tmp_path: Path) -> None:
    whole = _saved("float", tmp_path / "whole.onnx")
    half = _saved("float16", tmp_path / "half.onnx")
    verdict = compare(whole, half)
    assert verdict.outcome == "passed"
    (finding,) = verdict.findings
    assert (finding.code, finding.severity) == ("DP707", "warning")
    assert finding.facts == {"level": "extended", "kind": "crash"}
    assert "at graph optimisation extended (at the default it crashes the process" in str(verdict.device)


def test_wrong_numbers_at_a_lower_level_fail_all_the_same(tmp_path: Path) -> None:
    whole = _saved("float", tmp_path / "whole.onnx")
    wrong = _saved("float16", tmp_path / "wrong.onnx", factor=1.1)
    verdict = compare(whole, wrong)
    assert verdict.outcome == "failed"
    assert [f.code for f in verdict.findings] == ["DP701", "DP707"]


def test_each_setting_of_a_matrix_is_tried_as_it_is(tmp_path: Path) -> None:
    whole = _saved("float", tmp_path / "whole.onnx")
    half = _saved("float16", tmp_path / "half.onnx")
    with Reference.of(whole) as reference:
        found = try_settings(reference, Model.open(half), device="cpu", tolerance="auto", session=SessionOptions())
    assert [r.verdict.outcome for r in found] == ["failed", "passed", "passed", "passed"]


def test_an_original_in_fp16_may_run_at_a_lower_level_too(tmp_path: Path) -> None:
    half = _saved("float16", tmp_path / "half.onnx")
    with Reference.of(half) as reference:
        assert reference.compute() == 1
        assert reference.lowered is not None
        assert reference.lowered.level == "extended"
        verdict = compare(reference, half)
    assert verdict.outcome == "passed"
    assert "the original at graph optimisation extended" in str(verdict.device)


def test_an_original_that_a_fusion_breaks_is_compared_without_optimisation(tmp_path: Path) -> None:
    """ONNX Runtime's DivMulFusion makes an invalid graph of a Mul by a folded 1 after a Cast (issue 32416)."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3] y) <float one = {1.0}> {
        c = Cast<to = 1>(x) d = Div(one, one) y = Mul(c, d) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "broken.onnx")
    plain = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3] y) { y = FACTOR(x) }"""
    for name, factor in (("right", "Identity"), ("wrong", "Neg")):
        onnx.save(onnx.parser.parse_model(plain.replace("FACTOR", factor)), tmp_path / f"{name}.onnx")
    verdict = compare(tmp_path / "broken.onnx", tmp_path / "right.onnx")
    assert verdict.outcome == "passed"
    assert "the original at graph optimisation off (at the default it does not load" in str(verdict.device)
    assert compare(tmp_path / "broken.onnx", tmp_path / "wrong.onnx").outcome == "failed"
    broken = compare(tmp_path / "broken.onnx", tmp_path / "broken.onnx")
    assert (broken.outcome, [f.code for f in broken.findings]) == ("failed", ["DP704"])


def test_fp32_models_have_no_lower_levels() -> None:
    assert lower_levels(Model.open(fixture("residual_cnn").path)) == ()
    assert lower_levels(Model.open(fixture("half_cnn").path)) == ("extended", "basic", "disabled")


@pytest.mark.parametrize("kind", ["timeout", "memory", "device-removed", "protocol"])
def test_what_a_lower_level_cannot_mend_is_said_at_once(kind: str) -> None:
    seen = []

    def run(options: SessionOptions) -> int:
        seen.append(options.optimization)
        raise SessionFailure(kind, "no")  # type: ignore[arg-type]

    with pytest.raises(SessionFailure):
        at_some_level(run, SessionOptions(), ("extended", "basic"))
    assert seen == ["all"]


def test_the_failure_at_the_default_is_what_is_told() -> None:
    def run(options: SessionOptions) -> str:
        if options.optimization != "disabled":
            raise SessionFailure("load", f"at {options.optimization}")
        return "fine"

    answer, lowered = at_some_level(run, SessionOptions(), ("extended", "basic", "disabled"))
    assert answer == "fine"
    assert str(lowered) == "graph optimisation off (at the default it does not load: at all)"
    with pytest.raises(SessionFailure, match="at all"):
        at_some_level(run, SessionOptions(), ("extended", "basic"))
    with pytest.raises(SessionFailure, match="at basic"):  # the user's own level is kept
        at_some_level(run, SessionOptions(optimization="basic"), ("disabled",))


_MEANS = """<ir_version: 8, opset_import: ["" : 17]>
g (INPUT) => (float[8, 8] y)
<float two = {2.0}, float eps = {1e-5}, float[8] s = {1, 2, 1, 1.5, 1, 1, 0.5, 1}, float[8] b = {0, 1, 0, 0, 0, 2, 0, 0}
 TABLE> {
    h = FIRST
    m = ReduceMean <axes = [-1], keepdims = KEPT> (h)  d = Sub (h, m)  p = Pow (d, two)
    v = ReduceMean <axes = [-1], keepdims = KEPT> (p)  e = Add (v, eps)  q = Sqrt (e)
    n = Div (d, q)  w = Mul (n, s)  y = Add (w, b)
}"""
_FLOATS = {"INPUT": "float[8, 8] x", "TABLE": "", "FIRST": "Relu (x)"}
_NUMBERS = {
    "INPUT": "int64[8] x",
    "TABLE": f", float[20, 8] table = {{{', '.join(str(i * i % 37) for i in range(160))}}}",
    "FIRST": "Gather (table, x)",
}


@pytest.mark.parametrize("start", [_FLOATS, _NUMBERS], ids=["floats", "numbers"])
@pytest.mark.parametrize(("kept", "outcome"), [("0", "failed"), ("1", "passed")])
def test_a_fusion_that_changes_the_function_is_no_reference(
    start: dict[str, str], kept: str, outcome: str, tmp_path: Path
) -> None:
    """ONNX Runtime fuses means without keepdims into a LayerNormalization, on every provider (issue 30513)."""
    text = _MEANS.replace("KEPT", kept)
    for name, by in start.items():
        text = text.replace(name, by)
    path = tmp_path / "means.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    verdict = compare(path, path)
    assert verdict.outcome == outcome
    assert ("the original at graph optimisation off" in str(verdict.device)) == (outcome == "failed")
