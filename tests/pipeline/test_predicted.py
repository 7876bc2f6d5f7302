"""What the FP16 emulation predicts, and what it decides where a device rounds toward zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.parity import Candidate, Reference, emulation_candidate
from dmlprep.passes.precision import emulate
from dmlprep.pipeline import proof
from dmlprep.pipeline.predicted import apply_prediction
from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunRecord, Verdict

STEPS = 120


def _chain(path: Path) -> Path:
    """Factors that FP16 holds, and that undo each other: cut at every step, the product is some percent short."""
    lines = "".join(f"v{i + 1} = Mul(v{i}, {'kl'[i % 2]}) " for i in range(STEPS))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] v0) => (float[4, 64] v{STEPS})'
    onnx.save(onnx.parser.parse_model(f"{text} <float k = {{1.5}}, float l = {{0.66650390625}}> {{ {lines} }}"), path)
    return path


class _Device:
    """A DirectML device that rounds toward zero, by way of the reference; some factor off, where it is broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounding: str, factor: float = 1.0) -> None:
        self.factor, self.real = factor, proof.compare
        monkeypatch.setattr(proof, "compare", self.compare)
        monkeypatch.setattr(proof, "usable_device", lambda *_: ("", None))
        monkeypatch.setattr(proof, "device_rounding", lambda _session: rounding)
        self.rounding: Any = rounding

    def compare(self, reference: Reference, candidate: Candidate, tolerance: str, *options: Any) -> Verdict:
        if candidate.device == "cpu":
            return self.real(reference, candidate, tolerance, *options)
        prepared = candidate.model
        shadow = emulate(prepared, "storage", self.rounding)
        if self.factor != 1.0:
            scale = next(v for v in shadow.ir.graph.initializers.values() if v.name and "k" in v.name)
            assert scale.const_value is not None
            scale.const_value = type(scale.const_value)(np.asarray(scale.const_value.numpy() * self.factor))
        device = DeviceInfo("dml on a fake")
        made = emulation_candidate(
            shadow, Check("parity", "dml"), str(prepared.path), device, code="DP701", decides=True
        )
        return self.real(reference, made, tolerance)


def _prepare(tmp_path: Path, reference: str = "storage") -> RunRecord:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'doc = "d"\n[step.fp16]\n[parity]\ndml = "require"\nfp16_emulation = "{reference}"\n'
        'tolerance = "fp16-emulation"\n'
    )
    return dmlprep.prepare(_chain(tmp_path / "m.onnx"), out=tmp_path / "out", recipe=recipe, force=True)


def test_a_device_that_rounds_to_nearest_is_held_against_what_was_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Device(monkeypatch, "nearest")
    record = _prepare(tmp_path)
    assert [str(v.check) for v in record.verdicts] == ["parity on cpu", "fp16 emulation (storage)", "parity on dml"]
    assert record.verdicts[2].predicted == pytest.approx(record.verdicts[2].outputs[0].max_rel)
    assert [v.predicted for v in record.verdicts[:2]] == [None, None]


@pytest.mark.parametrize("reference", ["storage", "off"])
def test_a_device_that_cuts_is_judged_by_the_reference_that_cuts(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Device(monkeypatch, "toward-zero")
    record = _prepare(tmp_path, reference)
    assert record.exit_code == 0
    cut, dml = record.verdicts[-2:]
    assert (str(cut.check), cut.outcome, cut.decides) == (
        "fp16 emulation (storage, rounding toward zero)",
        "failed",
        False,
    )
    assert dml.outcome == "passed"
    assert dml.outputs[0].max_rel > 0.02
    assert "DP708" in [f.code for f in dml.findings]
    assert "toward zero" in dml.tolerance


def test_what_was_not_predicted_fails_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _Device(monkeypatch, "toward-zero", factor=0.999)
    record = _prepare(tmp_path)
    assert record.exit_code == 1
    assert record.verdicts[-1].outcome == "failed"
    assert record.verdicts[-1].predicted is not None
    assert not (tmp_path / "out").exists()


def test_compare_is_judged_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _chain(tmp_path / "m.onnx")
    with monkeypatch.context() as patch:
        _Device(patch, "nearest")
        _prepare(tmp_path)
    _Device(monkeypatch, "toward-zero")
    verdict = dmlprep.compare(source, tmp_path / "out" / "model.onnx", device="dml", tolerance="fp16-emulation")
    assert verdict.outcome == "passed"
    assert verdict.predicted is not None
    assert verdict.predicted > 0.02


def test_the_finding_names_the_error_of_the_emulation_even_below_the_noise() -> None:
    metrics = OutputMetrics("y", passed=False, max_rel=0.002, noise=0.013)
    verdict = apply_prediction(
        Verdict(Check("parity", "dml"), "failed", "out of tolerance", outputs=[metrics]),
        Verdict(Check("parity", "emulation"), "passed", outputs=[metrics]),
        "toward-zero",
    )
    assert (verdict.outcome, verdict.predicted) == ("passed", 0.013)
    assert "predicts 0.002" in verdict.findings[0].message


def test_noise_above_the_emulated_error_is_what_is_predicted() -> None:
    quiet = OutputMetrics("y", passed=True, max_rel=0.001, noise=1e-6)
    noisy = OutputMetrics("y", passed=True, max_rel=0.001, noise=0.013)
    told = [
        apply_prediction(
            Verdict(Check("parity", "dml"), "passed", outputs=[one]),
            Verdict(Check("parity", "emulation"), "passed", outputs=[one]),
            "nearest",
            last_bits,
        )
        for one, last_bits in ((quiet, 0.0), (noisy, 0.0), (noisy, 0.06))
    ]
    assert [v.predicted for v in told] == [0.001, 0.013, 0.06]
    assert [v.prediction for v in told] == [
        "the fp16 emulation predicted 0.001",
        "the original's own noise predicted 0.013",
        "the original, with the last bits of its inputs changed, predicted 0.06",
    ]
