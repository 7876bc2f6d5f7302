"""Each rewrite: equal on the CPU, gone afterwards; refused where it is not proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from packaging.version import Version

from dmlprep.core.errors import UsageError
from dmlprep.directml.placement import place
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks, quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import MappedTensor, Model
from dmlprep.graph.model.checking import check
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.passes.fusions import write_out
from tests.passes.fix_quirks.cases import CASES, Case

# A product folded into three dimensions adds up in another order.
REORDERED = 1e-5


def fixed(model: onnx.ModelProto, target: str = "", **options: Any) -> tuple[Model, Context, bool]:
    """The model after the pass, what the pass said, and whether it says that it changed anything."""
    made = Model(ir.from_proto(model))
    context = Context(find_target(target) if target else find_target())
    return made, context, FixQuirksPass(FixQuirksOptions(**options)).run(made, context)


def on_cpu(
    model: onnx.ModelProto, feeds: dict[str, Any], level: str = "ENABLE_ALL", *, saturates: bool = True
) -> list[Any]:
    """Outputs on the CPU provider at an optimization level, but without rounding data of a MatMul to 8 bits.

    Args:
        saturates: False for a quantized Conv, whose sums would be added in 16 bits on a processor without VNNI.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if not saturates:
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    model = ir.to_proto(write_out(Model(ir.from_proto(model))).model.ir)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_every_quirk_with_a_rewrite_has_a_case() -> None:
    assert {c.quirk for c in CASES} == {q.id for q in quirks() if q.rewrite is not None}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_quirk_is_found_and_rewritten_without_changing_the_outputs(case: Case) -> None:
    target = find_target(case.target)
    given = Model(ir.from_proto(case.model))
    assert case.quirk in {h.quirk.id for h in find_quirks(read_facts(given, target.tables), target)}
    model, context, changed = fixed(case.model, case.target)
    assert changed
    assert case.quirk in context.facts.rewritten
    assert {f.code for f in context.findings} == {"DP640"}
    after = ir.to_proto(model.ir)
    snapshot = model.snapshot()
    assert FixQuirksPass(FixQuirksOptions()).run(model, Context(target)) is False, "a second run changes nothing"
    assert snapshot.same_as(model.snapshot())
    assert find_quirks(read_facts(model, target.tables), target) == []
    on_cpu_before = place(given, target).compute_on_cpu
    assert len(place(model, target).compute_on_cpu) <= len(on_cpu_before), "nothing new runs on the CPU"
    assert check(model.ir) == ""
    assert [o.name for o in after.graph.output] == [o.name for o in case.model.graph.output]
    assert [i.name for i in after.graph.input] == [i.name for i in case.model.graph.input]
    if case.since and Version(ort.__version__) < Version(case.since):
        pytest.skip(f"ONNX Runtime {ort.__version__} refuses the model as it is; {case.since} runs it")
    before = on_cpu(case.model, case.feeds, case.cpu_level)
    for expected, found in zip(before, on_cpu(after, case.feeds), strict=True):
        assert expected.dtype == found.dtype
        if case.exact:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=REORDERED, atol=REORDERED)


def test_skip_leaves_a_quirk_as_it_is() -> None:
    case = next(c for c in CASES if c.name == "cast-bool")
    _, context, changed = fixed(case.model, skip=["cast-bool"])
    assert not changed
    assert context.facts.rewritten == {}


def test_skip_of_an_unknown_quirk_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown quirk 'cast-bol'") as caught:
        fixed(CASES[0].model, skip=["cast-bol"])
    assert "cast-bool" in caught.value.fix


def test_a_model_without_quirks_is_left_alone() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }'
    model, context, changed = fixed(onnx.parser.parse_model(text))
    assert not changed
    assert context.findings == []
    assert model.opset == 17


@pytest.mark.parametrize("opset", [13, 19])
def test_quantization_before_opset_21_is_right_at_every_axis(opset: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[2,3,4] x, float[3] s, uint8[3] z) => (uint8[2,3,4] y) {{ y = QuantizeLinear <axis = 1> (x, s, z) }}"""
    assert not fixed(onnx.parser.parse_model(text))[2]


AXES = {
    # data, scale, axis, opset -> severity on ort-1.30; each was run on DirectML, where what is "" is right
    ("uint8[7]", "float[1]", "", 17): "error",
    ("int8[7]", "float16[1]", "", 20): "error",
    ("uint8[7]", "float[1]", "", 21): "error",
    ("uint8[7]", "float[1]", "axis = -2", 17): "error",
    ("uint8[2,3]", "float[1]", "axis = 2", 17): "error",
    ("uint8[1,1]", "float[1]", "axis = 2", 17): "error",
    ("uint8[2,n]", "float[1]", "axis = 2", 17): "error",
    ("uint8", "float[1]", "axis = 0", 17): "error",
    ("uint8[n]", "float[1]", "", 17): "warning",
    ("uint8[1]", "float[1]", "", 17): "",
    ("uint8[7]", "float", "", 17): "",
    ("uint8[7]", "float", "axis = 1", 17): "",
    ("uint8[7]", "float[1]", "axis = 0", 17): "",
    ("uint8[7]", "float[1]", "axis = -1", 17): "",
    ("uint8[7]", "float[7]", "axis = 0", 17): "",
    ("uint8[2,3]", "float[1]", "", 17): "",
    ("uint8[2,3,4]", "float[1]", "", 21): "",
    ("uint8[7]", "float[1]", "", 10): "",
    ("int32[7]", "float[1]", "", 21): "",
    ("uint8[7]", "float[1]", "", 23): "",
    ("int4[7]", "float[1]", "", 21): "error",
}


@pytest.mark.parametrize("form", AXES, ids=str)
def test_an_axis_that_the_data_does_not_have(form: tuple[str, str, str, int]) -> None:
    data, scale, axis, opset = form
    kind, _, sizes = data.partition("[")
    zero, out = scale.replace("float16", kind).replace("float", kind), scale.partition("[")[0]
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g ({data} x, {scale} s, {zero} z) => ({out}{"[" if sizes else ""}{sizes} y)
    {{ y = DequantizeLinear {f"<{axis}>" if axis else ""} (x, s, z) }}"""
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))), find_target().tables)
    hits = [h for h in find_quirks(facts, find_target("ort-1.30")) if h.quirk.id == "quantize-axis-missing"]
    assert "".join(hit.finding().severity for hit in hits) == AXES[form]
    if opset == 21:
        assert find_quirks(facts, find_target("ort-1.24")) == []


@pytest.mark.parametrize("data", ["float[batch,seq,32]", "float[?,?,32]"])
def test_sizes_that_are_free_are_not_minus_one(data: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({data} x) => (float[a,b,c,d] y, float[e,f] z) <int64[1] h = {{4}}, int64[1] d = {{8}}, int64[1] w = {{32}}> {{
      lead = Shape <end = 2> (x)
      shape = Concat <axis = 0> (lead, h, d)
      y = Reshape <allowzero = 1> (x, shape)
      b = Shape <end = 1> (x)
      s = Shape <start = 1, end = 2> (x)
      rows = Mul (b, s)
      flat = Concat <axis = 0> (rows, w)
      z = Reshape <allowzero = 1> (x, flat)
    }}"""
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))), find_target().tables)
    assert [h.quirk.id for h in find_quirks(facts, find_target())] == []


REFUSED = {
    "a 0 in the shape": (
        "g (float[n,6] x, int64[2] s) => (float[a,b] y) { y = Reshape <allowzero = 1> (x, s) }",
        17,
        "might contain a 0",
    ),
    "sizes that are free": (
        "g (float[a,b,2,m,4] x, float[a,b,2,4,n] z) => (float[a,b,2,m,n] y) { y = MatMul (x, z) }",
        17,
        "pin the free dimensions",
    ),
    "reflect that crops and pads": (
        'g (float[4,5] x) => (float[4,5] y) <int64[4] p = {0, -1, 0, 1}> { y = Pad <mode: string = "reflect"> (x, p) }',
        17,
        "crops and pads one axis",
    ),
    "a policy whose sizes are no scale": (
        "g (float[1,1,3,5] x) => (float[1,1,a,b] y) <int64[2] s = {7, 8}> "
        '{ y = Resize <keep_aspect_ratio_policy: string = "not_larger", axes = [2, 3], mode: string = "linear"> '
        "(x, , , s) }",
        18,
        "no scale gives",
    ),
    "a stride longer than the kernel": (
        "g (float[1,1,4,4] x, float[1,1,2,2] w) => (float[1,1,12,12] y) "
        '{ y = ConvTranspose <auto_pad: string = "SAME_UPPER", strides = [3, 3]> (x, w) }',
        17,
        "stride is longer",
    ),
    "a mean of nothing": (
        "g (float[3,0] x) => (float[3,1] y) { y = ReduceMean <axes = [1]> (x) }",
        17,
        "is not defined",
    ),
    "int4": (
        "g (int4[2,3,4] x, float[3] s) => (float[2,3,4] y) { y = DequantizeLinear <axis = 1> (x, s) }",
        21,
        "four bits is not constant",
    ),
    "a quirk without an equal form": (
        "g (float[1,2,8,8] x, float[1,4] r, int64[1] i) => (float[1,2,2,2] y) "
        '{ y = RoiAlign <mode: string = "max", output_height = 2, output_width = 2> (x, r, i) }',
        16,
        "wrong numbers on DirectML",
    ),
    "a computed scale of data without an axis": (
        "g (uint8 x, float[1] s, uint8[1] z) => (float y) { y = DequantizeLinear (x, s, z) }",
        17,
        "has no axis",
    ),
    "an empty part with a free size": (
        "g (float[n,6] x) => (float[n,6] y, float[n,0] z) <int64[2] s = {6, 0}> "
        "{ y, e = Split <axis = 1> (x, s)  z = Relu (e) }",
        17,
        "has free sizes",
    ),
    "a dilated kernel that ends within the padded input": (
        "g (float[1,1,8,8] x) => (float[1,1,1,1] y) { "
        "y = MaxPool <ceil_mode = 1, dilations = [2, 1], kernel_shape = [5, 8], strides = [2, 8]> (x) }",
        17,
        "allow no kernel",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_proved_stays_and_is_reported(name: str) -> None:
    text, opset, says = REFUSED[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>' + text)
    before = Model(ir.from_proto(model)).snapshot()
    after, context, changed = fixed(model, "ort-1.24")
    assert not changed
    assert before.same_as(after.snapshot())
    (found,) = context.findings
    assert found.code == "DP641"
    assert says in found.message


def test_a_quirk_in_a_body_that_onnx_runtime_inlines_is_reported() -> None:
    text = """<ir_version: 14, opset_import: ["" : 28]>
    g (float[2,0,4] data, int64[1] axes) => (float[2,1,4] reduced) { [n] reduced = ReduceLogSum (data, axes) }"""
    _, context, changed = fixed(onnx.parser.parse_model(text))
    assert not changed
    (found,) = context.findings
    assert found.code == "DP641"
    assert "in the body of n" in found.message


def test_skip_accepts_a_quirk_without_an_equal_form() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,1,4,4] x, float[1,4] rois, int64[1] n) => (float[1,1,2,2] y) {
        y = RoiAlign <mode = "max", output_height = 2, output_width = 2> (x, rois, n)
    }"""
    (found,) = fixed(onnx.parser.parse_model(text))[1].findings
    assert (found.code, found.facts["certain"]) == ("DP641", True)
    assert fixed(onnx.parser.parse_model(text), skip=[found.facts["quirk"]])[1].findings == []


def test_a_node_inside_a_branch_is_rewritten_there() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[2,3,4] x, float[4] v) => (float[2,3] y) {
        y = If (c) <
            then_branch = t () => (float[2,3] p) { p = MatMul (x, v) },
            else_branch = e () => (float[2,3] q) { m = MatMul (x, v)  q = Neg (m) }
        >
    }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.standard_normal((2, 3, 4)).astype(np.float32),
        "v": rng.standard_normal(4).astype(np.float32),
    }
    after, context, _ = fixed(model)
    assert context.facts.rewritten == {"matmul-vector": 2}
    proto = ir.to_proto(after.ir)
    onnx.checker.check_model(proto, full_check=True)
    for choice in (True, False):
        given = {**feeds, "c": np.array(choice)}
        np.testing.assert_allclose(on_cpu(proto, given)[0], on_cpu(model, given)[0], rtol=REORDERED, atol=REORDERED)


def test_two_quirks_of_one_node() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,1,2,3,4] x, float[4] v) => (float[2,1,2,3] y) { y = MatMul (x, v) }"""
    model = onnx.parser.parse_model(text)
    after, context, _ = fixed(model)
    assert set(context.facts.rewritten) == {"matmul-rank", "matmul-vector"}
    rng = np.random.default_rng(2)
    feeds = {
        "x": rng.standard_normal((2, 1, 2, 3, 4)).astype(np.float32),
        "v": rng.standard_normal(4).astype(np.float32),
    }
    found = on_cpu(ir.to_proto(after.ir), feeds)[0]
    np.testing.assert_allclose(found, on_cpu(model, feeds)[0], rtol=REORDERED, atol=REORDERED)


def test_weights_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.ones((64, 64), np.float32)
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,64] x) => (float[2,64] y, float[64,64] w) { y = Gemm (x, w) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    model = Model.open(tmp_path / "m.onnx")

    def never(self: MappedTensor) -> None:
        raise AssertionError("a weight was read")

    for name in ("numpy", "tobytes", "elements", "map_bytes"):
        monkeypatch.setattr(MappedTensor, name, never)
    context = Context(find_target())
    assert FixQuirksPass(FixQuirksOptions()).run(model, context)
    assert context.facts.rewritten == {"constant-output": 1}


@pytest.mark.parametrize(
    ("data", "indices", "axis", "found"),
    [
        ("4", "9", 0, {"scatter-more"}),
        ("4,6", "9,5", -2, {"scatter-more", "scatter-narrow"}),
        ("4,6", "4,6", 1, set()),
        ("4,6", "2,6", 0, set()),
        ("N,6", "M,6", 0, set()),
        ("N,6", "M,5", 0, {"scatter-narrow"}),
    ],
)
def test_scatter_is_recognised_by_the_sizes_that_are_known(data: str, indices: str, axis: int, found: set[str]) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[{data}] x, int64[{indices}] i, float[{indices}] u) => (float[{data}] y)
    {{ y = ScatterElements <axis = {axis}> (x, i, u) }}"""
    facts = read_facts(Model(ir.from_proto(onnx.parser.parse_model(text))), find_target().tables)
    assert {hit.quirk.id for hit in find_quirks(facts, find_target())} == found
