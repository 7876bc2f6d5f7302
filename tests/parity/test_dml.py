"""Parity and bisection on the real DirectML."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from dmlprep import parity
from dmlprep.graph.model import Model
from dmlprep.parity import Reference, file_candidate
from dmlprep.parity.bisection.bisect import bisect
from dmlprep.runtime import SessionOptions, dml_status
from tests.fixtures_index import fixture
from tests.parity.comparing import compare
from tests.parity.models import parse, perturbed

pytestmark = pytest.mark.dml


@pytest.fixture(autouse=True, scope="module")
def dml() -> None:
    status = dml_status()
    if not status.available:
        pytest.skip(f"no DirectML here: {status.reason}")


@pytest.mark.parametrize("name", ["residual_cnn", "bert_encoder", "diffusion_unet", "detector_nms", "half_cnn"])
def test_a_fixture_on_directml_agrees_with_the_cpu(name: str) -> None:
    one = fixture(name)
    verdict = compare(one.path, one.path, sizes=one.pins, device="dml")
    assert verdict.outcome == "passed", verdict.reason
    assert verdict.tolerance.startswith("fp16-dml" if name == "half_cnn" else "fp32-dml")
    assert verdict.device is not None
    assert verdict.device.name.startswith("dml on ")
    # FP16 arithmetic is what ran, so nothing is said of the CPU provider's.
    assert "not FP16 arithmetic" not in str(verdict.device)


def test_an_adapter_that_is_not_there_is_not_run_and_no_failing_model() -> None:
    path = fixture("residual_cnn").path
    with Reference.of(path, sizes={"batch": 1}) as reference:
        candidate = file_candidate(Model.open(path), "dml")
        verdict = parity.compare(reference, candidate, session=SessionOptions(device_id=7))
    assert verdict.outcome == "not-run"
    assert verdict.reason.startswith("there is no adapter 7 (887A0002 DXGI_ERROR_NOT_FOUND)")
    assert "\n" not in verdict.reason


def test_a_kernel_that_is_wrong_is_found_and_blamed_on_the_device(tmp_path: Path) -> None:
    """DirectML truncates before it casts to bool: 0.5 becomes False (docs/codes/DP629.md)."""
    path = parse(
        """g (float[4, 8] x) => (float[4, 8] y) {
            half = Constant<value = float {0.5}>()
            a = Sin(x) b = Mul(a, half) c = Cast<to = 9>(b) d = Cast<to = 1>(c) e = Add(d, a) f = Tanh(e) y = Neg(f)
        }""",
        tmp_path / "cast.onnx",
    )
    assert compare(path, path, device="dml").outcome == "failed"
    found = bisect(path, path, device="dml")
    assert found.op_types == ["Cast"]
    assert found.reproduced
    assert found.on_cpu is False
    assert "the device is at fault" in found.reason


def test_a_model_that_is_wrong_is_blamed_on_the_model(tmp_path: Path) -> None:
    source = fixture("residual_mlp_deep").path
    users = perturbed(source, tmp_path / "bad.onnx", "weight_9")
    found = bisect(source, tmp_path / "bad.onnx", device="dml")
    assert found.nodes[0] in users
    assert found.on_cpu
    assert "the model is at fault" in found.reason


def test_a_model_that_directml_does_not_load_is_cut_down(tmp_path: Path) -> None:
    """Dequantize, Conv, Relu, Quantize: ONNX Runtime 1.24 makes two nodes of one name of it for DirectML."""
    source = fixture("quantized_cnn").path
    verdict = compare(source, source, device="dml")
    if verdict.outcome == "passed":
        pytest.skip("this release loads it")
    assert verdict.findings[0].code == "DP704"
    found = bisect(source, source, device="dml")
    assert found.kind == "failure"
    assert set(found.op_types) == {"DequantizeLinear", "Conv", "Relu", "QuantizeLinear"}
    assert found.reproduced


def test_a_fusion_that_is_wrong_is_found_whole(tmp_path: Path) -> None:
    """FastGelu, which ONNX Runtime makes of a GELU by tanh, is the GELU by erf on DirectML: 4.7e-4 off."""
    cube = "p = Pow(b, three)  q = Mul(p, c)  r = Add(b, q)  s = Mul(r, k)  t = Tanh(s)  u = Add(t, one)"
    path = parse(
        f"""g (float[4, 64] x) => (float[4, 64] y)
        <float half = {{0.5}}, float three = {{3}}, float one = {{1}},
         float c = {{0.044715}}, float k = {{0.7978846}}> {{
        a = Neg(x)  a2 = Exp(a)  a3 = Log(a2)  b = Add(a3, a3)
        h = Mul(b, half)  {cube}  v = Mul(h, u)
        w = Sin(v)  w2 = Cos(w)  y = Mul(w, w2) }}""",
        tmp_path / "gelu.onnx",
    )
    found = bisect(path, path, device="dml")
    assert found.outcome == "found", found.reason
    assert set(found.op_types) <= {"Mul", "Pow", "Add", "Tanh"}
    assert "Tanh" in found.op_types
    assert found.hidden
    assert found.reproduced
    assert found.on_cpu is False
    assert "ONNX Runtime's" in found.reason


def test_a_fault_in_a_branch_is_found_there(tmp_path: Path) -> None:
    """A dead node in a branch keeps DirectML from creating the session (docs/codes/DP644.md)."""
    path = parse(
        """g (float[4, 8] x, bool c) => (float[4, 8] y) {
            a = Sin(x)
            y = If (c) <
                then_branch = t () => (float[4, 8] p) { dead = Exp(x) q = Cos(a) r = Sin(q) p = Neg(r) },
                else_branch = e () => (float[4, 8] n) { n = Neg(a) }
            >
        }""",
        tmp_path / "branch.onnx",
    )
    found = bisect(path, path, device="dml")
    assert found.kind == "failure"
    assert found.reproduced
    assert "Exp" in found.op_types
    assert len(found.nodes) <= 3


def test_a_fault_in_a_loop_is_found_there(tmp_path: Path) -> None:
    """The same dead node in the body of a Loop."""
    path = parse(
        """g (float[4, 8] x) => (float[4, 8] y) {
            turns = Constant<value = int64 {2}>()
            y = Loop (turns, , x) <
                body = b (int64 turn, bool go, float[4, 8] a) => (bool more, float[4, 8] r) {
                    dead = Exp(x) more = Identity(go) p = Cos(a) q = Sin(p) r = Neg(q)
                }
            >
        }""",
        tmp_path / "loop.onnx",
    )
    found = bisect(path, path, device="dml")
    assert found.kind == "failure", found.reason
    assert found.reproduced
    assert "Exp" in found.op_types
    assert len(found.nodes) <= 3


def test_a_fault_in_a_function_is_found_there(tmp_path: Path) -> None:
    """A part that is overwritten (docs/codes/DP645.md), in the body of a function."""
    path = tmp_path / "function.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[8, 8] x) => (float[2, 8] y) { y = local.front(x) }
        <opset_import: ["" : 17], domain: "local">
        front (x) => (y) {
            starts = Constant<value_ints = [2, 0]>() ends = Constant<value_ints = [4, 8]>()
            a = Sin(x) b = Relu(a) part = Slice(b, starts, ends) y = Neg(part)
        }"""
    onnx.save(onnx.parser.parse_model(text), path)
    found = bisect(path, path, device="dml")
    assert found.kind == "failure", found.reason
    assert found.reproduced
    assert [op for op in found.op_types if op != "Constant"] == ["Relu", "Slice", "Neg"]


def test_operands_and_sizes_that_do_not_matter_are_left_out(tmp_path: Path) -> None:
    """The same fault behind Transposes and many operands, as in audio front ends; the Slice counts from the end."""
    rows = range(6)
    inputs = ", ".join(f"float[1, 4, 1, 12] x{i}" for i in rows)
    turned = " ".join(f"s{i} = Sin(x{i}) t{i} = Transpose<perm = [0, 2, 3, 1]>(s{i}) u{i} = Neg(t{i})" for i in rows)
    path = parse(
        f"""g ({inputs}) => (float[1, 20, 12] y)
        <int64[1] starts = {{-20}}, int64[1] ends = {{2147483647}}, int64[1] axes = {{3}}, int64[1] first = {{1}},
         float[20] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}> {{
            {turned}
            all = Concat<axis = 3>({", ".join(f"u{i}" for i in rows)})
            part = Slice(all, starts, ends, axes)
            m = Mul(part, w) e = Exp(m) sum = ReduceSum<keepdims = 0>(e, first)
            y = Transpose<perm = [0, 2, 1]>(sum)
        }}""",
        tmp_path / "front.onnx",
    )
    found = bisect(path, path, device="dml")
    assert found.kind == "failure", found.reason
    assert found.reproduced
    assert len(found.nodes) <= 7
    assert found.runs <= 60
