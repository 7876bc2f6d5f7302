"""Bisection: the first node that differs, within the promised number of runs, and a model that shows the fault."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from dmlprep.cli.bisect import command
from dmlprep.core.errors import OutputError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.metrics import find_tolerance
from dmlprep.parity.bisection.bisect import bisect
from dmlprep.parity.bisection.finding import Bisection, bisect_record
from dmlprep.parity.bisection.graph_cuts import Cuts, prefix, region
from dmlprep.parity.bisection.matching import match_values
from dmlprep.parity.bisection.probe import Prober, differ
from dmlprep.parity.bisection.repro import FILES, check_folder, issue_text, write_reproduction
from dmlprep.passes import Context, make_pass
from dmlprep.record import RunRecord
from dmlprep.runtime import SessionFailure, SessionOptions
from tests.fixtures_index import fixture
from tests.parity.models import large_weights, opened, parse, perturbed
from tests.passes.fusions.graphs import group_norm


def within_bound(found: Bisection) -> bool:
    return found.runs <= math.log2(found.total_nodes) + 5


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("residual_cnn", 0.5),
        ("unet_resize", 0.9),
        ("detector_nms", 0.0),
        ("bert_encoder", 0.3),
        ("decoder_cache", 0.99),
        ("diffusion_unet", 0.6),
        ("residual_mlp_deep", 0.7),
        ("loop_refine", 0.99),
        ("local_functions", 0.0),
        ("unnamed_nodes", 0.5),
    ],
)
def test_one_wrong_weight_is_found_and_reproduced(name: str, share: float, tmp_path: Path) -> None:
    one = fixture(name)
    weights = large_weights(one.path)
    users = perturbed(one.path, tmp_path / "bad.onnx", weights[int(share * len(weights))])
    found = bisect(one.path, tmp_path / "bad.onnx", sizes=one.free)
    assert found.outcome == "found"
    assert len(found.nodes) == 1
    assert found.nodes[0] in users or users == [""]
    assert found.reproduced
    assert found.on_cpu
    assert within_bound(found)


def test_models_that_agree_need_two_runs() -> None:
    found = bisect(fixture("residual_cnn").path, fixture("residual_cnn").path)
    assert (found.outcome, found.runs, found.nodes) == ("agree", 2, [])


def test_a_node_of_the_wrong_kind(tmp_path: Path) -> None:
    source = fixture("residual_mlp_deep").path
    model = onnx.load(source)
    wrong = [n for n in model.graph.node if n.op_type == "Tanh"][11]
    wrong.op_type = "Sigmoid"
    onnx.save(model, tmp_path / "bad.onnx")
    found = bisect(source, tmp_path / "bad.onnx")
    assert (found.nodes, found.op_types) == ([wrong.name], ["Sigmoid"])
    assert within_bound(found)


def test_a_fault_beside_the_only_path_is_found(tmp_path: Path) -> None:
    """Two outputs: the fault reaches just one of them, so half of the cuts show nothing in the other."""
    text = """g (float[8] x) => (float[8] y, float[8] z) {{
        a = Sin(x) b = Cos(a) c = Neg(b) y = Tanh(c)
        d = Cos(x) e = {0}(d) f = Neg(e) z = Tanh(f)
    }}"""
    good = parse(text.format("Sin"), tmp_path / "good.onnx")
    bad = parse(text.format("Cos"), tmp_path / "bad.onnx")
    found = bisect(good, bad)
    assert found.op_types == ["Cos"]
    assert found.values[0].output == "e"


def test_a_fault_that_heals_is_still_found(tmp_path: Path) -> None:
    """A wrong value that a later node hides in part: only what differs at the outputs is followed back."""
    text = """g (float[8] x) => (float[8] y) {{
        a = {0}(x) zero = Constant<value = float {{0.0}}>() b = Mul(a, zero) c = Add(b, x) d = {1}(c) y = Neg(d)
    }}"""
    good = parse(text.format("Sin", "Tanh"), tmp_path / "good.onnx")
    bad = parse(text.format("Cos", "Sigmoid"), tmp_path / "bad.onnx")
    found = bisect(good, bad)
    # Both nodes are wrong; either is a true answer, what joins them is not.
    assert found.op_types in (["Cos"], ["Sigmoid"])
    assert found.reproduced


def test_values_renamed_and_casts_put_in_are_matched(tmp_path: Path) -> None:
    good = parse(
        "g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y) { a = MatMul(x, w) b = Tanh(a) c = Sin(b) y = Neg(c) }",
        tmp_path / "good.onnx",
    )
    bad = parse(
        """g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y) {
            p = MatMul(x, w) q = Cast<to = 10>(p) r = Tanh(q) s = Cos(r) t = Cast<to = 1>(s) y = Neg(t)
        }""",
        tmp_path / "bad.onnx",
    )
    matched = match_values(Model.open(bad).ir.graph, Model.open(good).ir.graph)
    assert matched["p"] == matched["q"] == "a"
    assert matched["r"] == "b"
    assert "s" not in matched
    found = bisect(good, bad)
    assert "Cos" in found.op_types
    assert "Tanh" not in found.op_types


def test_twins_are_not_matched_by_structure(tmp_path: Path) -> None:
    one = opened("g (float[4] x) => (float[4] y) { a = Sin(x) b = Sin(x) y = Add(a, b) }", tmp_path)
    two = opened("g (float[4] x) => (float[4] y) { p = Sin(x) q = Sin(x) y = Add(p, q) }", tmp_path)
    assert match_values(two.ir.graph, one.ir.graph) == {"y": "y"}


def test_fp16_drift_is_not_blamed_on_one_node(tmp_path: Path) -> None:
    source = fixture("residual_mlp_deep").path
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16).astype(np.float32), tensor.name))
    onnx.save(model, tmp_path / "rounded.onnx")
    found = bisect(source, tmp_path / "rounded.onnx", tolerance="rel:0.0006")
    assert found.outcome == "found"
    assert within_bound(found)
    if not found.reproduced:
        assert "add up" in found.reason


def test_a_model_that_does_not_run_is_cut_down_to_its_node(tmp_path: Path) -> None:
    good = parse(
        """g (float[2, 3] x) => (float[6] y) {
            a = Sin(x) b = Cos(a) s = Constant<value = int64[1] {6}>() c = Reshape(b, s) y = Neg(c)
        }""",
        tmp_path / "good.onnx",
    )
    # The Gather is out of range: it loads and fails when run.
    bad = parse(
        """g (float[2, 3] x) => (float[6] y) {
            a = Sin(x) b = Cos(a) s = Constant<value = int64[1] {6}>() c = Reshape(b, s)
            z = ReduceMax<keepdims = 0>(b) big = Constant<value = float {100.0}>() far = Add(z, big)
            i = Cast<to = 7>(far) n = Gather(c, i) d = Add(c, n) y = Neg(d)
        }""",
        tmp_path / "bad.onnx",
    )
    found = bisect(good, bad)
    assert found.kind == "failure"
    assert found.op_types == ["Gather"]
    assert found.reproduced
    assert "Gather" in found.reason
    assert set(found.inputs) == {"c", "i"}
    assert within_bound(found)
    write_reproduction(found, tmp_path / "out")
    files = found.files
    assert all(path.exists() for path in files)


def test_an_unreachable_device_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlprep import runtime

    absent = runtime.DmlStatus(available=False, reason="no adapter")
    monkeypatch.setattr(runtime, "dml_status", lambda **_: absent, raising=False)
    found = bisect(fixture("residual_cnn").path, fixture("residual_cnn").path, device="dml")
    assert (found.outcome, found.reason) == ("not-run", "no adapter")


def test_a_reference_that_does_not_run_is_not_run() -> None:
    baked = fixture("baked_batch").path
    found = bisect(baked, baked, sizes={"batch": 3})
    assert found.outcome == "not-run"
    assert "the reference does not run" in found.reason


def test_a_part_that_does_not_run_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perturbed(fixture("residual_cnn").path, tmp_path / "bad.onnx", "weight_1")

    def refused(*_: object) -> None:
        raise SessionFailure("load", "no")

    monkeypatch.setattr(Prober, "values", refused)
    found = bisect(fixture("residual_cnn").path, tmp_path / "bad.onnx")
    assert found.outcome == "not-run"
    assert "does not run alone" in found.reason


def test_values_inside_a_fused_gelu_are_brought_out(tmp_path: Path) -> None:
    """ONNX Runtime's FastGelu fusion loses a value that goes out through a copy."""
    source = fixture("decoder_cache").path
    gelu = [n.output[0] for n in onnx.load(source).graph.node if n.op_type == "Tanh"]
    inner = {i for n in onnx.load(source).graph.node if gelu[0] in n.output for i in n.input}
    part, said = prefix(Model.open(source), [*inner, *gelu])
    part.save(tmp_path / "part.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "part.onnx", providers=["CPUExecutionProvider"])
    assert {o.name for o in session.get_outputs()} == {*inner, *gelu} == set(said)


def test_the_weights_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part that is written holds the weights: a 5 GB model must not be copied at every step."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": (rng.standard_normal((256, 256)) / 16).astype(np.float32) for i in range(6)}
    body = " ".join(f"h{i + 1} = MatMul(h{i}, w{i}) " for i in range(6)).replace("h0,", "x,").replace("h6 =", "y =")
    args = ", ".join(f"float[256, 256] {w}" for w in weights)
    for name, factor in (("good", 1.0), ("bad", 1.1)):
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 17]> g (float[1, 256] x) => (float[1, 256] y) <{args}> {{ {body} }}'
        )
        for w, values in weights.items():
            model.graph.initializer.append(numpy_helper.from_array(values * (factor if w == "w4" else 1), w))
        onnx.save(model, tmp_path / f"{name}.onnx")
    sizes: list[int] = []
    linked = Model.save_linked

    def noted(self: Model, path: Path | str) -> Path:
        folder = linked(self, path)
        sizes.append(sum(p.stat().st_size for p in Path(path).parent.iterdir()))
        return folder

    monkeypatch.setattr(Model, "save_linked", noted)
    found = bisect(tmp_path / "good.onnx", tmp_path / "bad.onnx")
    assert found.op_types == ["MatMul"]
    assert sizes
    assert max(sizes) < 4096  # one weight alone has 262144 bytes


@pytest.fixture
def found(tmp_path: Path) -> Bisection:
    perturbed(fixture("bert_encoder").path, tmp_path / "bad.onnx", "weight_3")
    return bisect(fixture("bert_encoder").path, tmp_path / "bad.onnx")


def test_the_script_shows_the_fault_with_onnxruntime_alone(found: Bisection, tmp_path: Path) -> None:
    write_reproduction(found, tmp_path / "out")
    files = found.files
    assert [p.name for p in files] == list(FILES)
    onnx.checker.check_model(tmp_path / "out" / "node.onnx")
    script = [sys.executable, "-W", "error", "-I", str(tmp_path / "out" / "reproduce.py")]
    shown = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 1, shown.stderr
    assert "the fault shows" in shown.stdout
    assert shown.stderr == ""
    missing = subprocess.run([*script, "NoSuchProvider"], capture_output=True, text=True, timeout=60, check=False)
    assert "has no NoSuchProvider" in missing.stderr


def test_the_issue_text_names_node_numbers_and_nothing_of_this_machine(found: Bisection, tmp_path: Path) -> None:
    text = issue_text(found, 1e-5, "all")
    assert found.nodes[0] in text
    assert "max rel" in text
    assert str(tmp_path) not in text
    assert "/" not in text.replace("\\", "").replace("|d|/max|ref|", "").replace("log2(n)/2", "")


def test_files_that_are_there_are_kept(found: Bisection, tmp_path: Path) -> None:
    (tmp_path / "issue.md").write_text("mine")
    with pytest.raises(OutputError, match="the file exists"):
        write_reproduction(found, tmp_path)
    assert (tmp_path / "issue.md").read_text() == "mine"
    write_reproduction(found, tmp_path, force=True)
    assert (tmp_path / "issue.md").read_text() != "mine"
    with pytest.raises(OutputError, match="file of this name"):
        check_folder(tmp_path / "issue.md", force=True)


def test_the_command(tmp_path: Path) -> None:
    source = fixture("rnn_tagger").path
    perturbed(source, tmp_path / "bad.onnx", "weight_2")
    arguments = [str(source), str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out"), "--matrix", "--format", "json"]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.exception is None
    assert result.return_value == 1
    assert '"reproduced": true' in result.stdout
    assert "optimization disabled" in (tmp_path / "out" / "issue.md").read_text()
    same = CliRunner().invoke(command, [str(source), str(source), "-o", str(tmp_path / "same")], standalone_mode=False)
    assert same.return_value == 0
    assert not (tmp_path / "same").exists()


def test_a_record_and_a_page_have_the_error_along_the_model(tmp_path: Path) -> None:
    source = fixture("residual_cnn").path
    perturbed(source, tmp_path / "bad.onnx", "weight_1")
    out, html = str(tmp_path / "out"), tmp_path / "error.html"
    result = CliRunner().invoke(
        command, [str(source), str(tmp_path / "bad.onnx"), "-o", out, "--html", str(html)], standalone_mode=False
    )
    assert result.return_value == 1, result.output
    record = RunRecord.read(tmp_path / "out")
    said = record.facts.bisection
    assert said is not None
    assert (record.command, record.exit_code, said.nodes) == ("bisect", 1, ["Conv_0"])
    assert said.values
    assert said.places == sorted(said.places)
    assert max(error or math.inf for error in said.errors) > said.bound
    assert [f.code for f in record.findings] == ["DP706"]
    assert "Error along the model" in html.read_text(encoding="utf-8")
    with pytest.raises(OutputError, match="the file exists"):
        CliRunner().invoke(
            command, [str(source), str(source), "--html", str(html)], standalone_mode=False, catch_exceptions=False
        )


def test_models_that_agree_are_compared_along_where_asked(tmp_path: Path) -> None:
    source = fixture("bert_encoder").path
    found = bisect(source, source, sizes={"batch": 1, "sequence": 8}, along=True)
    assert (found.outcome, found.runs) == ("agree", 4)
    assert len(found.along) > 60
    assert {one.error for one in found.along} == {0.0}
    record = bisect_record(found)
    assert (record.exit_code, record.error, record.findings) == (0, None, [])
    assert record.verdicts[0].outcome == "passed"


def test_a_mask_equals_what_fp16_has_for_it() -> None:
    tolerance = find_tolerance("fp16-cpu")
    reference = np.array([0.5, -3.4e38, 1.0], np.float32)
    for low in (-65504.0, -np.inf):
        assert differ("m", reference, np.array([0.5, low, 1.0], np.float16), tolerance).passed
    assert not differ("m", reference, np.array([0.5, 0.0, 1.0], np.float16), tolerance).passed
    half = np.array([0.5, -np.inf, 1.0], np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert differ("m", half, half, tolerance).passed
    assert not differ("m", np.array([0.5, -5.0], np.float32), np.array([0.5, -np.inf], np.float16), tolerance).passed


def test_cuts_and_what_lives_across_them(tmp_path: Path) -> None:
    model = opened(
        """g (float[4] x, bool c) => (float[4] y) {
            a = Sin(x) b = Cos(a)
            d = If (c) < then_branch = t () => (p) { p = Neg(a) }, else_branch = e () => (q) { q = Identity(b) } >
            k = Constant<value = float {2.0}>() y = Mul(d, k)
        }""",
        tmp_path,
    )
    cuts = Cuts(model.ir.graph)
    assert [cuts.live(i) for i in range(-1, 5)] == [[], ["a"], ["a", "b"], ["d"], ["d"], ["y"]]
    assert cuts.whole(["a", "d", "y"]) == [0, 2, 3, 4]


def test_a_prefix_keeps_only_what_it_needs(tmp_path: Path) -> None:
    model = Model.open(fixture("if_branches").path)
    part, said = prefix(model, ["relu_1"])
    assert [n.op_type for n in part.ir.graph][:3] == ["MatMul", "Add", "Relu"]
    assert "If" not in [n.op_type for n in part.ir.graph]
    assert len(said) == 1
    assert len(list(model.ir.graph)) == 5  # the model is as it was


def test_a_region_is_fed_at_its_cut() -> None:
    model = Model.open(fixture("residual_mlp_deep").path)
    part = region(model, {"tanh_3": np.zeros((2, 12), np.float32), "div_2": np.zeros((2, 12), np.float32)}, ["add_6"])
    assert [n.op_type for n in part.ir.graph] == ["Add"]
    assert [v.name for v in part.ir.graph.inputs] == ["div_2", "tanh_3"] or len(part.ir.graph.inputs) == 2


def test_session_settings_reach_the_candidate(tmp_path: Path) -> None:
    perturbed(fixture("residual_cnn").path, tmp_path / "bad.onnx", "weight_1")
    options = replace(SessionOptions(), optimization="disabled")
    found = bisect(fixture("residual_cnn").path, tmp_path / "bad.onnx", session=options)
    assert found.nodes == ["Conv_0"]


def test_a_name_that_now_stands_for_another_shape_is_no_fault(tmp_path: Path) -> None:
    """A simplifier folds a Reshape away and keeps the names behind it; the fault lies further on."""
    text = """g (float[2, 4] x) => (float[2, 4] y)
        <float half = {0.5}, int64[3] up = {1, 2, 4}, int64[2] down = {2, 4}> {
        a = Relu(x)  b = Reshape(a, up)  c = Mul(b, half)  d = Tanh(c)  e = Neg(d)  y = Reshape(e, down) }"""
    folded = """g (float[2, 4] x) => (float[2, 4] y) <float half = {0.5}> {
        a = Relu(x)  c = Mul(a, half)  d = Sin(c)  y = Neg(d) }"""
    found = bisect(parse(text, tmp_path / "a.onnx"), parse(folded, tmp_path / "b.onnx"))
    assert (found.outcome, found.op_types, found.reproduced) == ("found", ["Sin"], True)
    turned = folded.replace("c = Mul(a, half)", "t = Transpose <perm = [1, 0]> (a)  c = Mul(t, half)")
    turned = turned.replace("y = Neg(d)", "n = Neg(d)  y = Transpose <perm = [1, 0]> (n)")
    found = bisect(parse(text, tmp_path / "a.onnx"), parse(turned, tmp_path / "c.onnx"))
    assert found.outcome == "found"
    assert "Sin" in found.op_types
    assert "shape" not in found.reason


def test_a_node_that_makes_more_of_a_difference_is_said_to(tmp_path: Path) -> None:
    """A Softmax over large values: the difference is there before it, within the tolerance, and grows in it."""
    text = """g (float[1, 4] x) => (float[1, 4] y) <float scale = {400}, float[4] shift = {0, 0, 0, 0}> {
        a = Tanh(x)  b = Mul(a, scale)  d = Add(b, shift)  c = Softmax(d)  y = Neg(c) }"""
    off = text.replace("{0, 0, 0, 0}", "{0, 0.0015, 0, 0}")
    feed = {"x": np.array([[0.5, 0.499, 0.4985, 0.0]], np.float32)}
    found = bisect(parse(text, tmp_path / "a.onnx"), parse(off, tmp_path / "b.onnx"), [feed])
    assert (found.outcome, found.op_types, found.reproduced) == ("found", ["Softmax"], False)
    assert "multiplies that error by" in found.reason
    (before,) = found.before
    assert 0 < before.max_rel < 1e-5
    issue = issue_text(found, 1e-5, "all")
    assert issue.startswith("# Softmax: differences grow here")
    assert "max rel off already" in issue


def test_fused_nodes_are_written_out_on_the_cpu(tmp_path: Path) -> None:
    """The CPU has no kernel for GroupNorm: the two files are compared all the same, and the script runs there."""
    plain = group_norm((1, 8, 4, 4), 4, True, True)
    model = Model(ir.from_proto(plain))
    make_pass("fuse", {}).run(model, Context(find_target()))
    node = next(n for n in model.ir.graph if n.domain)
    onnx.save(plain, tmp_path / "plain.onnx")
    onnx.save(ir.to_proto(model.ir), tmp_path / "fused.onnx")
    assert bisect(tmp_path / "plain.onnx", tmp_path / "fused.onnx").outcome == "agree"
    node.attributes["activation"] = ir.AttrInt64("activation", 0)
    onnx.save(ir.to_proto(model.ir), tmp_path / "wrong.onnx")
    for reference in ("plain.onnx", "fused.onnx"):
        found = bisect(tmp_path / reference, tmp_path / "wrong.onnx")
        assert found.outcome == "found"
        assert found.nodes == [node.name]
        assert found.reproduced
        assert "1 GroupNorm written out" in str(found.device)
    write_reproduction(found, tmp_path / "out")
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "out" / "reproduce.py")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("name", [*FILES, "node.onnx.data"])
def test_every_file_that_would_go_is_told_of_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="the file exists"):
        check_folder(tmp_path, force=False)
