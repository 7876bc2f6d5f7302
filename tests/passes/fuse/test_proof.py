"""How a model with fused operators is proved: written out on the CPU and in the emulation, as it is on DirectML."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from dmlprep.pipeline.prepare import PrepareRequest, prepare
from dmlprep.pipeline.recipe import load_recipe, make_plan
from dmlprep.record import Check, RunRecord
from tests.parity.comparing import compare
from tests.passes.fusions.graphs import decoder, group_norm, rotation, sdpa

FUSE = """
doc = "Fuse."
target = "latest"
[step.pin]
[step.opset]
[step.simplify]
[step.fix-quirks]
{half}
[step.fuse]
attention = true
grouped_attention = true
[parity]
dml = "{dml}"
seeds = 1
"""


def prepared(model: onnx.ModelProto, folder: Path, half: str = "", dml: str = "off") -> RunRecord:
    onnx.save(model, folder / "model.onnx")
    (folder / "r.toml").write_text(FUSE.format(half=half, dml=dml), encoding="utf-8")
    plan = make_plan(load_recipe(str(folder / "r.toml")))
    return prepare(PrepareRequest(folder / "model.onnx", folder / "out", plan))


def test_the_cpu_runs_group_norm_written_out(tmp_path: Path) -> None:
    record = prepared(group_norm((1, 8, 4, 4), 4, True, True), tmp_path)
    assert record.exit_code == 0, record.error
    (verdict,) = [v for v in record.verdicts if v.check == Check("parity", "cpu")]
    assert verdict.outcome == "passed"
    assert verdict.device is not None
    assert "1 GroupNorm written out" in str(verdict.device)


def test_the_emulation_writes_out_all_of_them(tmp_path: Path) -> None:
    half = '[step.fp16]\nallow = ["little-gain"]'
    record = prepared(rotation("halves", "one sum", "constant", True), tmp_path, half)
    assert record.exit_code == 0, record.error
    (verdict,) = [v for v in record.verdicts if v.check.provider == "emulation"]
    assert verdict.outcome == "passed"
    assert "1 RotaryEmbedding written out" in str(verdict.device)
    (cpu,) = [v for v in record.verdicts if v.check == Check("parity", "cpu")]
    assert "written out" not in str(cpu.device), "the CPU has a kernel for it"


def test_attention_is_proved_on_the_cpu_and_written_out_in_the_emulation(tmp_path: Path) -> None:
    half = '[step.fp16]\nallow = ["little-gain"]'
    record = prepared(sdpa(mask="padding", guard="isnan"), tmp_path, half)
    assert record.exit_code == 0, record.error
    assert record.verdicts
    assert {v.outcome for v in record.verdicts} == {"passed"}
    said = " ".join(str(v.device) for v in record.verdicts)
    assert "1 MultiHeadAttention written out" in said


def test_grouped_attention_is_proved_on_the_cpu_and_written_out_in_the_emulation(tmp_path: Path) -> None:
    half = '[step.fp16]\nallow = ["little-gain"]'
    record = prepared(decoder(), tmp_path, half)
    assert record.exit_code == 0, record.error
    assert {v.outcome for v in record.verdicts} == {"passed"}
    assert "1 GroupQueryAttention written out" in " ".join(str(v.device) for v in record.verdicts)


def test_compare_sees_a_fused_model_that_is_wrong(tmp_path: Path) -> None:
    proto = group_norm((1, 8, 4, 4), 4, True, True)
    assert prepared(proto, tmp_path).exit_code == 0
    made = onnx.load(tmp_path / "out" / "model.onnx")
    (node,) = made.graph.node
    next(a for a in node.attribute if a.name == "activation").i = 0
    onnx.save(made, tmp_path / "wrong.onnx")
    verdict = compare(tmp_path / "model.onnx", tmp_path / "wrong.onnx", seeds=1)
    assert verdict.outcome == "failed"


def test_an_original_with_group_norm_is_run_written_out(tmp_path: Path) -> None:
    proto = group_norm((1, 8, 4, 4), 4, True, True)
    assert prepared(proto, tmp_path).exit_code == 0
    verdict = compare(tmp_path / "out" / "model.onnx", tmp_path / "model.onnx", seeds=1)
    assert verdict.outcome == "passed"
    assert "the original with 1 GroupNorm written out" in str(verdict.device)


def test_built_in_recipes_fuse_what_every_provider_runs() -> None:
    for name in ("@transformer-fp16", "@diffusion-fp16"):
        last = make_plan(load_recipe(name)).steps[-1]
        assert last.name == "fuse"
        assert (last.pass_.options.rotary, last.pass_.options.group_norm) == (True, False)
    assert "fuse" not in [step.name for step in make_plan(load_recipe("@static-fp32")).steps]


@pytest.mark.dml
@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "what", ["group norm", "group norm of three dimensions", "halves", "pairs", "attention", "grouped"]
)
def test_directml_computes_the_fused_operator(what: str, half: bool, tmp_path: Path) -> None:
    models = {
        "group norm": lambda: group_norm((2, 16, 6, 5), 4, True, True),
        "group norm of three dimensions": lambda: group_norm((2, 16, 30), 4, True, True),
        "halves": lambda: rotation("halves", "one sum", "computed", True),
        "pairs": lambda: rotation("pairs", "two sums", "constant", False),
        "attention": lambda: sdpa(mask="empty", guard="isnan", groups=2),
        "grouped": lambda: decoder(repeats="folded"),
    }
    step = '[step.fp16]\nallow = ["little-gain"]' if half else ""
    record = prepared(models[what](), tmp_path, step, "require")
    assert record.exit_code == 0, record.error
    assert any(v.check == Check("parity", "dml") and v.outcome == "passed" for v in record.verdicts)
    assert any(n.domain for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node)
