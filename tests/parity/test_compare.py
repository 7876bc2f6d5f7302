"""Comparison: real sessions in child processes, and no verdict passes that did not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from dmlprep import api, parity, runtime
from dmlprep.core.errors import InputError, UsageError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.metrics import holds_fp16, quantizes
from dmlprep.parity import Reference, RunFeeds, make_feeds
from dmlprep.parity.candidate import Candidate
from dmlprep.passes import Context, make_pass
from dmlprep.record import Check, Verdict
from dmlprep.runtime import SessionFailure
from tests.fixtures_index import FIXTURES, Fixture, fixture
from tests.parity.comparing import compare
from tests.parity.models import parse, perturbed
from tests.passes.fusions.graphs import group_norm
from tests.system import tells_time

RESNET = fixture("residual_cnn").path


@pytest.mark.parametrize("one", FIXTURES[:6], ids=lambda f: f.name)
def test_a_model_agrees_with_itself(one: Fixture) -> None:
    verdict = compare(one.path, one.path, sizes=one.free)
    assert verdict.outcome == "passed"
    assert verdict.feeds == 2
    assert verdict.outputs
    assert verdict.device is not None
    assert verdict.device.name == "cpu"
    assert verdict.seconds > 0


def test_a_wrong_weight_fails_with_its_numbers(tmp_path: Path) -> None:
    perturbed(RESNET, tmp_path / "bad.onnx", "weight_1")
    verdict = compare(RESNET, tmp_path / "bad.onnx")
    assert verdict.outcome == "failed"
    assert "'logits'" in verdict.reason
    (finding,) = verdict.findings
    assert finding.code == "DP701"
    assert isinstance(finding.facts["max_rel"], float)
    assert finding.facts["max_rel"] > 1e-5


def test_nan_is_a_finding_of_its_own(tmp_path: Path) -> None:
    perturbed(RESNET, tmp_path / "bad.onnx", "weight_1", float("nan"))
    verdict = compare(RESNET, tmp_path / "bad.onnx", tolerance="loose")
    assert verdict.outcome == "failed"
    assert [f.code for f in verdict.findings] == ["DP702"]


def test_a_candidate_that_does_not_load_fails(tmp_path: Path) -> None:
    model = onnx.load(RESNET)
    model.graph.node[0].domain = "no.such.domain"
    model.opset_import.add(domain="no.such.domain", version=1)
    onnx.save(model, tmp_path / "bad.onnx")
    verdict = compare(RESNET, tmp_path / "bad.onnx")
    assert verdict.outcome == "failed"
    assert [f.code for f in verdict.findings] == ["DP704"]
    assert verdict.findings[0].facts["kind"] == "load"


def test_a_candidate_of_an_opset_that_is_too_new_here_is_not_run(tmp_path: Path) -> None:
    graph = "g (float[2] x) => (float[2] y) { y = Relu (x) }"
    paths = {}
    beyond = onnx.defs.onnx_opset_version() + 1  # ONNX Runtime 1.32 loads all that onnx 1.23 has
    for opset in (17, beyond):
        paths[opset] = tmp_path / f"{opset}.onnx"
        onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>{graph}'), paths[opset])
    verdict = compare(paths[17], paths[beyond])
    assert verdict.outcome == "not-run"
    assert f"the candidate is of opset {beyond}: install a newer one" in verdict.reason


@tells_time
def test_a_candidate_that_works_slowly_is_out_of_time(tmp_path: Path) -> None:
    slow = parse(
        """g (float[4] x, int64 n) => (float[4] y) {
            yes = Constant<value = bool {1}>()
            y = Loop(n, yes, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
                d = Identity(c)
                t = Sin(s)
            }>
        }""",
        tmp_path / "slow.onnx",
    )
    quick = parse("g (float[4] x, int64 n) => (float[4] y) { y = Sin(x) }", tmp_path / "quick.onnx")
    feed = {"x": np.ones(4, np.float32), "n": np.array(2**40)}
    verdict = compare(quick, slow, [feed], time_limit=2)
    assert verdict.outcome == "not-run"
    assert verdict.reason.startswith("out of time")
    assert "2 s" in verdict.reason
    assert verdict.exit_code == 3


def test_a_candidate_that_hangs_fails(tmp_path: Path) -> None:
    """As slow work, but for what the worker uses."""
    path = parse("g (float[4] x) => (float[4] y) { y = Sin(x) }", tmp_path / "one.onnx")
    model = Model.open(path)

    def answers(_feeds: object, _options: object) -> Any:
        raise SessionFailure("hang", "the worker did not answer and did nothing")
        yield

    with Reference.of(path) as reference:
        verdict = parity.compare(reference, Candidate(Check("parity", "cpu"), "x", model, "cpu", "cpu", answers))
    assert verdict.outcome == "failed"
    assert verdict.findings[0].facts["kind"] == "hang"


def test_a_reference_that_does_not_run_is_not_run(tmp_path: Path) -> None:
    baked = fixture("baked_batch").path
    verdict = compare(baked, baked, sizes={"batch": 3})
    assert verdict.outcome == "not-run"
    assert "original" in verdict.reason
    assert [f.code for f in verdict.findings] == ["DP703"]


def test_a_batch_that_is_free_in_name_only_is_tried_with_one() -> None:
    baked = fixture("baked_batch").path
    assert compare(baked, baked).outcome == "passed"


_FRAMES = (
    "g (float[batch, 4, {0}] x) => (float[batch, 4, m] y) "
    "{{ w = Constant<value = float[4, 4, 20] {{{1}}}>() y = Conv(x, w) }}"
)


def test_made_inputs_become_longer_where_convolutions_need_it(tmp_path: Path) -> None:
    text = _FRAMES.format("time", ", ".join(["0.05"] * 320))
    short = parse(text, tmp_path / "m.onnx")
    verdict = compare(short, short)
    assert (verdict.outcome, verdict.feeds) == ("passed", 2)
    with Reference.of(short) as reference:
        reference.compute()
        assert [feed["x"].shape for feed in reference.feeds] == [(1, 4, 32)] * 2


@pytest.mark.parametrize("sizes", [{"time": 8}, {"x:2": 8}])
def test_sizes_that_are_set_stay_and_are_named(sizes: dict[str, int], tmp_path: Path) -> None:
    short = parse(_FRAMES.format("time", ", ".join(["0.05"] * 320)), tmp_path / "m.onnx")
    with Reference.of(short, sizes=sizes) as reference:
        verdict = reference.stamp(compare(reference, short))
    assert verdict.outcome == "not-run"
    assert "x [2, 4, 8]" in verdict.reason
    assert "--size" in verdict.reason


def test_no_feeds_is_not_run() -> None:
    model = Model.open(RESNET)
    with Reference(RunFeeds(model), model, 0) as reference:
        verdict = compare(reference, RESNET)
    assert verdict.outcome == "not-run"
    assert verdict.feeds == 0


def test_a_verdict_that_is_not_run_cannot_be_read_as_passed() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict(check=Check("parity", "cpu"), outcome="not-run")


def test_a_device_that_is_not_there_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = runtime.DmlStatus(available=False, reason="no adapter")
    monkeypatch.setattr(runtime, "dml_status", lambda **_: absent, raising=False)
    verdict = compare(RESNET, RESNET, device="dml")
    assert verdict.outcome == "not-run"
    assert verdict.reason == "no adapter"
    assert verdict.check == Check("parity", "dml")


def test_a_candidate_without_an_output_fails(tmp_path: Path) -> None:
    two = parse("g (float[4] x) => (float[4] y, float[4] z) { y = Sin(x) z = Cos(x) }", tmp_path / "two.onnx")
    one = parse("g (float[4] x) => (float[4] y) { y = Sin(x) }", tmp_path / "one.onnx")
    verdict = compare(two, one)
    assert verdict.outcome == "failed"
    assert "no output 'z'" in verdict.reason


def test_other_inputs_are_an_error(tmp_path: Path) -> None:
    one = parse("g (float[4] x) => (float[4] y) { y = Sin(x) }", tmp_path / "one.onnx")
    two = parse("g (float[4] x, float[4] w) => (float[4] y) { y = Add(x, w) }", tmp_path / "two.onnx")
    with pytest.raises(InputError, match="'w' is missing"):
        compare(one, two)


def test_feeds_of_another_size_than_pinned_are_an_error(tmp_path: Path) -> None:
    free = parse("g (float[n] x) => (float[n] y) { y = Sin(x) }", tmp_path / "free.onnx")
    pinned = parse("g (float[4] x) => (float[4] y) { y = Sin(x) }", tmp_path / "pinned.onnx")
    assert compare(free, pinned).outcome == "passed"
    with pytest.raises(InputError, match="axis 0 of input 'x' is 4"):
        compare(free, pinned, [{"x": np.ones(5, np.float32)}])


def test_a_size_for_a_dimension_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="no input has a dimension 'bach'") as caught:
        compare(RESNET, RESNET, sizes={"bach": 1})
    assert "batch" in caught.value.fix


def test_an_unknown_tolerance_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown tolerance"):
        compare(RESNET, RESNET, tolerance="fp12")


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """The residual net in FP16, inputs and outputs too."""
    model = onnx.load(RESNET)
    for tensor in model.graph.initializer:
        if tensor.data_type == 1:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = 10
    onnx.save(model, tmp_path / "half.onnx")
    return tmp_path / "half.onnx"


def test_fp16_inputs_are_adapted_and_the_verdict_says_what_it_proves(half: Path) -> None:
    verdict = compare(RESNET, half)
    assert verdict.outcome == "passed"
    assert verdict.tolerance.startswith("fp16-cpu")
    assert 0 < verdict.outputs[0].max_rel < 0.02
    assert "proves weight rounding and graph surgery, not FP16 arithmetic" in str(verdict.device)


def test_what_holds_fp16_and_what_quantizes() -> None:
    assert holds_fp16(Model.open(fixture("half_cnn").path))
    assert not holds_fp16(Model.open(RESNET))
    assert quantizes(Model.open(fixture("quantized_cnn").path))
    assert not quantizes(Model.open(RESNET))


def test_the_reference_runs_once_for_several_candidates(tmp_path: Path) -> None:
    source = tmp_path / "source.onnx"
    source.write_bytes(RESNET.read_bytes())
    with Reference.of(source) as reference:
        assert reference.compute() == 1
        source.unlink()  # its outputs are enough
        assert compare(reference, RESNET).outcome == "passed"
        assert compare(reference, RESNET).outcome == "passed"


def test_large_outputs_wait_on_disk(tmp_path: Path) -> None:
    path = parse("g (float[n] x) => (float[n] y) { y = Neg(x) }", tmp_path / "m.onnx")
    with Reference.of(path, sizes={"n": 3_000_000}, seeds=1) as reference:
        reference.compute()
        assert isinstance(reference.outputs(0)["y"].base, np.memmap | np.ndarray)
        assert np.array_equal(reference.outputs(0)["y"], -reference.feeds[0]["x"])
        assert compare(reference, path).outcome == "passed"


def test_outputs_that_are_sequences_are_compared_by_item(tmp_path: Path) -> None:
    text = (
        "g (float[4] x) => (seq(float[2]) s) {{ two = Constant<value = int64 {{2}}>() s = SplitToSequence({0}, two) }}"
    )
    path = parse(text.format("x"), tmp_path / "s.onnx")
    verdict = compare(path, path)
    assert verdict.outcome == "passed"
    assert [m.output for m in verdict.outputs] == ["s (length)", "s[0]", "s[1]"]


def test_boxes_are_compared_as_a_set(tmp_path: Path) -> None:
    source = fixture("detector_nms").path
    model = onnx.load(source)
    # Fewer boxes kept: the set rule must see it.
    limit = next(
        t
        for t in model.graph.initializer
        if t.name == next(n for n in model.graph.node if n.op_type == "NonMaxSuppression").input[2]
    )
    limit.CopyFrom(numpy_helper.from_array(np.array([5]), limit.name))
    onnx.save(model, tmp_path / "fewer.onnx")
    verdict = compare(source, tmp_path / "fewer.onnx", tolerance="fp16-cpu")
    assert verdict.outcome == "failed"
    assert "as a set" in verdict.reason


def test_the_users_feeds_are_used() -> None:
    feeds = make_feeds(Model.open(RESNET), {"batch": 5}, count=3)
    verdict = compare(RESNET, RESNET, feeds)
    assert (verdict.outcome, verdict.feeds) == ("passed", 3)


@pytest.mark.usefixtures("own_workers")  # in one process ONNX Runtime draws the same for each session
def test_a_model_that_draws_random_numbers_is_not_judged(tmp_path: Path) -> None:
    noise = "g (float[2, 64] x) => (float[2, 64] y) {{ n = RandomNormalLike{0}(x) y = {1}(x, n) }}"
    free = parse(noise.format("", "Add"), tmp_path / "free.onnx")
    verdict = compare(free, free)
    assert verdict.outcome == "not-run"
    assert "random numbers" in verdict.reason
    # With a seed the outputs are the same again, so a difference is one.
    seeded = parse(noise.format("<seed = 1.0>", "Add"), tmp_path / "seeded.onnx")
    wrong = parse(noise.format("<seed = 1.0>", "Sub"), tmp_path / "wrong.onnx")
    assert compare(seeded, wrong).outcome == "failed"
    # Noise that does not reach the outputs is no excuse.
    unread = "g (float[2, 64] x) => (float[2, 64] y) {{ n = RandomNormalLike(x) m = Neg(n) y = {0}(x) }}"
    one = parse(unread.format("Sin"), tmp_path / "one.onnx")
    two = parse(unread.format("Cos"), tmp_path / "two.onnx")
    assert compare(one, two).outcome == "failed"
    # Noise times zero leaves the same outputs: the original's own noise is measured.
    scaled = (
        "g (float[2, 64] x) => (float[2, 64] y) { n = RandomNormalLike(x) o = Sub(x, x) m = Mul(n, o) y = Add(x, m) }"
    )
    same = compare(path := parse(scaled, tmp_path / "scaled.onnx"), path)
    assert (same.outcome, "was not measured" in str(same.device)) == ("passed", False)


def test_outputs_without_elements_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    verdict = compare(path, path, [{"x": np.zeros((0, 4), np.float32)}])
    assert verdict.outcome == "not-run"
    assert "empty" in verdict.reason


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_without_numbers_prove_nothing(value: float, tmp_path: Path) -> None:
    one = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }", tmp_path / "one.onnx")
    other = parse("g (float[4] x) => (float[4] y) { y = Mul(x, x) }", tmp_path / "other.onnx")
    full = np.full(4, value, np.float32)
    verdict = compare(one, other, [{"x": full}])
    assert verdict.outcome == "not-run"
    assert "no number to compare" in verdict.reason
    some = np.array([value, 1, 1, 1], np.float32)
    assert compare(one, other, [{"x": full}, {"x": some}]).outcome == "passed"


def test_repairs_are_not_why_fused_nodes_are_written_out(tmp_path: Path) -> None:
    model = Model(ir.from_proto(group_norm((1, 8, 4, 4), 4, True, True)))
    make_pass("fuse", {}).run(model, Context(find_target()))
    fused = ir.to_proto(model.ir)
    fused.graph.output[0].type.tensor_type.ClearField("shape")  # which dmlprep repairs, and ONNX Runtime loads
    onnx.save(fused, tmp_path / "fused.onnx")
    verdict = api.compare(tmp_path / "fused.onnx", tmp_path / "fused.onnx", device="cpu")
    assert "the original with 1 GroupNorm written out" in str(verdict.device)
    assert "repairs" not in str(verdict.device)
