"""The verdict from the FP16 emulation: what decides, what informs, and what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import dmlprep
from dmlprep import runtime
from dmlprep.core.errors import InputError, InternalError, ModelRefused, RecipeError
from dmlprep.graph.model import Model
from dmlprep.parity import Reference, compare, emulation_candidate
from dmlprep.passes.precision import emulate
from dmlprep.pipeline.runner import CpuRunner
from dmlprep.record import Check, DeviceInfo, RunRecord
from dmlprep.runtime import SessionHost, SessionOptions
from tests.fixtures_index import fixture

# The square passes 65504; its logarithm would be back in range.
OVERFLOW = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 16] x) => (float[2, 16] y) <float k = {500}, float two = {2}> {
  a = Abs(x) b = Add(a, k) s = Pow(b, two) r = Sqrt(s) d = Sub(r, k) y = Mul(d, d) }"""
FINE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 64] x) => (float[2, 8] y) { m = MatMul(x, w) y = Tanh(m) }"""


def _saved(text: str, path: Path) -> Path:
    model = onnx.parser.parse_model(text)
    if "MatMul(x, w)" in text:
        weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)
    return path


def _recipe(path: Path, step: str = "", parity: str = "") -> Path:
    path.write_text(f'doc = "d"\n[step.fp16]\npolicy = "fast"\n{step}\n[parity]\ndml = "off"\n{parity}\n')
    return path


def _prepare(tmp_path: Path, text: str = FINE, step: str = "", parity: str = "", **more: Any) -> RunRecord:
    source = _saved(text, tmp_path / "source.onnx")
    recipe = _recipe(tmp_path / "r.toml", step, parity)
    return dmlprep.prepare(source, out=tmp_path / "out", recipe=recipe, force=True, **more)


def _said(record: RunRecord) -> list[tuple[str, str, bool]]:
    return [(str(v.check), v.outcome, v.decides) for v in record.verdicts]


def test_fp16_is_proved_in_emulation(tmp_path: Path) -> None:
    record = _prepare(tmp_path)
    assert record.exit_code == 0
    assert _said(record) == [("parity on cpu", "passed", True), ("fp16 emulation (storage)", "passed", True)]
    verdict = record.verdicts[1]
    assert verdict.tolerance.startswith("fp16-emulation: max|d|/max|ref| <= 0.02")
    assert verdict.feeds == 2
    assert 0 < verdict.outputs[0].max_rel < 0.02
    assert str(verdict.device).startswith(
        "fp16 emulation, FP16 storage, FP32 sums, rounding to nearest even, run on cpu, ONNX Runtime"
    )
    again = RunRecord.from_json((tmp_path / "out" / "run.json").read_bytes())
    assert again.verdicts == record.verdicts


def test_an_overflow_that_the_cpu_does_not_see_is_refused(tmp_path: Path) -> None:
    record = _prepare(tmp_path, OVERFLOW)
    assert record.exit_code == 1
    assert _said(record) == [("parity on cpu", "passed", True), ("fp16 emulation (storage)", "failed", True)]
    assert "DP407" in str(record.error)
    assert "islands" in str(record.error)
    (finding,) = record.verdicts[1].findings
    assert (finding.code, finding.severity, finding.node) == ("DP407", "error", "y")
    assert not (tmp_path / "out").exists()


def test_the_search_finds_what_the_verdict_then_passes(tmp_path: Path) -> None:
    record = _prepare(tmp_path, OVERFLOW, 'islands = "auto"')
    assert record.exit_code == 0
    assert record.verdicts[1].outcome == "passed"


@pytest.mark.parametrize(
    ("value", "checks"),
    [
        ("everywhere", [("fp16 emulation (everywhere)", "passed", True)]),
        ("both", [("fp16 emulation (storage)", "passed", True), ("fp16 emulation (everywhere)", "passed", False)]),
        ("off", []),
    ],
)
def test_modes(value: str, checks: list[tuple[str, str, bool]], tmp_path: Path) -> None:
    record = _prepare(tmp_path, parity=f'fp16_emulation = "{value}"')
    assert _said(record)[1:] == checks


def test_the_mode_that_informs_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = emulate

    def worse(model: Model, mode: str, rounding: str) -> Model:
        """Sums in FP16 that go wrong."""
        shadow = whole(model, mode, rounding)  # type: ignore[arg-type]
        if mode == "everywhere":
            next(n for n in shadow.ir.graph if n.op_type == "Tanh").op_type = "Sigmoid"
        return shadow

    monkeypatch.setattr("dmlprep.passes.precision.emulate", worse)
    record = _prepare(tmp_path, parity='fp16_emulation = "both"')
    assert record.exit_code == 0
    assert _said(record)[1:] == [
        ("fp16 emulation (storage)", "passed", True),
        ("fp16 emulation (everywhere)", "failed", False),
    ]
    assert [(f.code, f.severity) for f in record.all_findings()] == [("DP710", "note"), ("DP407", "warning")]


def test_rounding_is_the_steps(tmp_path: Path) -> None:
    record = _prepare(tmp_path, step='rounding = "toward-zero"')
    assert "rounding toward zero" in str(record.verdicts[1].device)
    nearest = _prepare(tmp_path).verdicts[1].outputs[0].max_rel
    assert record.verdicts[1].outputs[0].max_rel > nearest


def test_a_model_that_no_step_made_fp16_has_no_such_verdict(tmp_path: Path) -> None:
    for recipe, name in (("@check-only", "half_cnn"), ("@static-fp32", "residual_cnn")):
        pins = fixture(name).pins if recipe == "@static-fp32" else {}
        record = dmlprep.prepare(fixture(name).path, out=tmp_path / name, recipe=recipe, pins=pins, device="cpu")
        assert [str(v.check) for v in record.verdicts] == ["parity on cpu"]
    kept = _prepare(tmp_path, step='keep_operators = ["MatMul", "Tanh"]')
    assert [str(v.check) for v in kept.verdicts] == ["parity on cpu"]
    assert _said(_prepare(tmp_path, parity="cpu = false")) == [("load on cpu", "passed", True)]


def test_not_run_is_an_outcome_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Model:
        raise ModelRefused("has functions")

    monkeypatch.setattr("dmlprep.passes.precision.emulate", refused)
    record = _prepare(tmp_path)
    assert record.exit_code == 3
    assert _said(record)[1:] == [("fp16 emulation (storage)", "not-run", True)]
    assert "parity.fp16_emulation" in str(record.error)
    assert not (tmp_path / "out").exists()


def test_a_bug_of_ours_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Model:
        raise KeyError("t")

    monkeypatch.setattr("dmlprep.passes.precision.emulate", broken)
    with pytest.raises(InternalError, match="KeyError"):
        _prepare(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_shadow_that_does_not_run_says_nothing_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(model: Model, *_: object) -> Model:
        shadow = model.copy()
        shadow.ir.graph[0].op_type = "NoSuchOperator"
        return shadow

    monkeypatch.setattr("dmlprep.passes.precision.emulate", strange)
    record = _prepare(tmp_path)
    assert record.exit_code == 3
    assert "does not run on the CPU" in record.verdicts[1].reason


def test_the_original_runs_once_for_all_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    whole = runtime.open_cpu

    def noted(path: Path, *rest: Any) -> Any:
        opened.append(path.name)
        return whole(path, *rest)

    monkeypatch.setattr(runtime, "open_cpu", noted)
    record = _prepare(tmp_path, parity='fp16_emulation = "both"\nnoise = "off"')
    assert len(record.verdicts) == 3
    assert opened.count("source.onnx") == 1


def test_a_small_model_stays_loaded_between_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five models: original, simplified (Gemm, for two steps), emulation, FP16, and the written file."""
    opened: list[SessionOptions] = []
    whole = SessionHost.open

    def noted(self: SessionHost, path: Path, options: SessionOptions) -> Any:
        opened.append(options)
        return whole(self, path, options)

    monkeypatch.setattr(SessionHost, "open", noted)
    text = FINE.replace("y = Tanh(m)", "a = Add(m, b) y = Tanh(a)")
    text = text.replace(" {", " <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {")
    source, recipe = _saved(text, tmp_path / "source.onnx"), tmp_path / "r.toml"
    parity = '[parity]\ncpu = false\ndml = "off"\nfp16_emulation = "off"\n'
    recipe.write_text(f'doc = "d"\n[step.simplify]\n[step.fp16]\nislands = "auto"\n{parity}')
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=recipe)
    assert [step.outcome for step in record.steps] == ["changed", "changed"]
    assert len(opened) == 5
    assert {options.config["session.intra_op.allow_spinning"] for options in opened} == {"0"}


def test_its_own_noise_is_measured_once_for_all_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    whole = runtime.open_cpu

    def noted(path: Path, *rest: Any) -> Any:
        opened.append(path.name)
        return whole(path, *rest)

    monkeypatch.setattr(runtime, "open_cpu", noted)
    record = _prepare(tmp_path, parity='fp16_emulation = "both"')
    assert opened.count("source.onnx") == 3
    noise = {output.noise for verdict in record.verdicts for output in verdict.outputs}
    assert len(noise) == 1
    assert None not in noise


def test_the_result_is_opened_once_and_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    whole = Model.open

    def noted(path: Path | str) -> Model:
        opened.append(Path(path).name)
        return whole(path)

    monkeypatch.setattr(Model, "open", noted)
    record = _prepare(tmp_path, parity='fp16_emulation = "both"')
    assert len(record.verdicts) == 3
    assert opened.count("model.onnx") == 1


def test_the_users_feeds_are_judged(tmp_path: Path) -> None:
    """Feeds on which FP16 overflows, and seeded ones do not."""
    text = FINE.replace("y = Tanh(m)", "s = Mul(m, m) y = Sqrt(s)")
    assert _prepare(tmp_path, text).exit_code == 0
    record = _prepare(tmp_path, text, feeds=[{"x": np.full((2, 64), 100, np.float32)}])
    assert record.exit_code == 1
    assert record.verdicts[0].outcome == "passed"
    assert record.verdicts[1].feeds == 1
    assert record.verdicts[1].findings[0].facts["non_finite"]


def test_pieces_give_what_the_whole_gives() -> None:
    """Weights beyond a bound run piece by piece; every piece sees all feeds."""
    source = fixture("bert_encoder")
    model = Model.open(source.path)
    with Reference.of(source.path, sizes=source.free) as reference:
        info, check = DeviceInfo("shadow"), Check("parity", "emulation")
        verdicts = [
            compare(reference, emulation_candidate(model.copy(), check, "here", info, **bounds))
            for bounds in ({}, {"whole_bytes": 0, "piece_bytes": 4096})
        ]
    assert [v.outcome for v in verdicts] == ["passed", "passed"]
    assert verdicts[0].outputs == verdicts[1].outputs
    assert all("run on cpu" in str(v.device) for v in verdicts)


@pytest.mark.parametrize(("kind", "keep_io"), [("float16", "true"), ("double", "false")])
def test_a_search_on_inputs_of_another_width(kind: str, keep_io: str, tmp_path: Path) -> None:
    """The reference takes FP32 where the original takes another type."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g ({kind}[2, 8] x) => ({kind}[2, 8] y) {{ w = Cast<to = 1>(x) e = Exp(w) t = Tanh(e) y = CastLike(t, x) }}"""
    record = _prepare(tmp_path, text, f'islands = "auto"\nkeep_io = {keep_io}')
    assert (record.exit_code, record.error) == (0, None)


def test_feeds_that_do_not_fit_are_named_as_the_user_named_them(tmp_path: Path) -> None:
    source = _saved(
        FINE.replace("float[2, 64] x", "float[n, 64] x").replace("float[2, 8] y", "float[n, 8] y"), tmp_path / "s"
    )
    np.savez(tmp_path / "three.npz", x=np.ones((3, 64), np.float32))
    np.savez(tmp_path / "wide.npz", x=np.ones((2, 65), np.float32))
    recipe = tmp_path / "r.toml"
    recipe.write_text('doc = "d"\n[step.pin]\n[step.fp16]\nislands = "auto"\n[parity]\ndml = "off"\n')
    for name, says in (("three.npz", "axis 0 of input 'x' is 2"), ("wide.npz", "axis 1 of input 'x' is 64")):
        with pytest.raises(InputError, match=says) as caught:
            dmlprep.prepare(source, out=tmp_path / "out", recipe=recipe, pins={"n": 2}, feeds=[tmp_path / name])
        assert caught.value.where.endswith(str(tmp_path / name))
        assert not (tmp_path / "out").exists()


def test_an_opset_that_no_target_takes_is_a_wrong_option(tmp_path: Path) -> None:
    source = _saved(FINE, tmp_path / "s.onnx")
    recipe = tmp_path / "r.toml"
    recipe.write_text('doc = "d"\n[step.opset]\nversion = 99\n')
    with pytest.raises(RecipeError, match="opset 99") as caught:
        dmlprep.prepare(source, out=tmp_path / "out", recipe=recipe)
    assert caught.value.exit_code == 2


def test_bfloat16_that_onnx_runtime_has_no_kernels_for(tmp_path: Path) -> None:
    """onnx's reference evaluator computes the original, for the search and for the proof."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (bfloat16[2, 8] x) => (bfloat16[2, 8] y) { e = Exp(x) y = Add(e, x) }"""
    record = _prepare(tmp_path, text, 'islands = "auto"')
    assert (record.exit_code, record.error) == (0, None)
    assert record.steps[0].facts.emulation_error is not None
    assert record.steps[0].facts.emulation_error > 0
    assert "reference by onnx reference evaluator" in str(record.verdicts[0].device)


def test_fp64_that_onnx_runtime_has_no_kernels_for(tmp_path: Path) -> None:
    """As exporters write angles of positions: Tan of FP64, cast down after it."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 8] x) => (float[2, 8] y) { d = Cast<to = 11>(x) c = Tan(d) s = Cast<to = 1>(c) y = Mul(s, x) }"""
    record = _prepare(tmp_path, text, 'islands = "auto"')
    assert (record.exit_code, record.error) == (0, None)
    assert "reference by onnx reference evaluator" in str(record.verdicts[0].device)


def test_steps_run_fp16_models_at_a_lower_level_where_the_default_crashes() -> None:
    graph = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[2, 3, 4] x, float16[4, 5] w) => (float16[3, 2, 5] y) {
      t = Transpose<perm = [1, 0, 2]>(x) y = MatMul(t, w) }"""
    model = Model(ir.from_proto(onnx.parser.parse_model(graph)))
    with CpuRunner() as runner:
        for feed in runner.feeds(model, 2):
            assert np.isfinite(runner.run(model, feed)["y"]).all()


@pytest.mark.parametrize("islands", ["off", "auto"])
def test_sizes_that_an_exporter_named_wrong(islands: str, tmp_path: Path) -> None:
    """The output is twice as high as its declared shape says; as an inner value of the reference that would not run."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 3, h, w] x) => (float[n, 3, h, w] y) <float[4] s = {1, 1, 2, 2}> {
      a = Mul(x, x) b = Resize<mode = "nearest">(a, , s) c = Mul(b, b) y = Tanh(c) }"""
    record = _prepare(tmp_path, text, f'islands = "{islands}"\nkeep_io = false')
    assert (record.exit_code, record.error) == (0, None)


@pytest.mark.parametrize("length", [300, 1000, 50000])
def test_a_search_makes_longer_inputs_where_the_model_needs_them(length: int, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 1, time] x) => (float[1, 1, m] y) <float w = {{0.01}}, int64[3] s = {{1, 1, {length}}}> {{
      k = Expand(w, s) c = Conv(x, k) y = Tanh(c) }}"""
    record = _prepare(tmp_path, text, 'islands = "auto"')
    assert record.exit_code == (1 if length == 50000 else 0)
    if record.error is not None:
        assert (record.error.code, "x [1, 1, 512]" in record.error.fix) == ("DP704", True)
