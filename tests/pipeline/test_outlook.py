"""What prepare would do, as ``plan MODEL`` and ``check`` say it, and what it then does."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep.api import plan
from dmlprep.core.errors import UsageError
from dmlprep.graph.model import Model
from dmlprep.pipeline.dry_run import Outlook, look_ahead
from dmlprep.report.outlook_text import in_full
from tests.passes.opset.test_placing import GELU_BESIDE_INT4

GELU = (
    '<ir_version: 10, opset_import: ["" : 20]> g (float[batch,4] x) => (float[batch,4] y) <float[4] b = {1, 2, 3, 4}>'
    " { [add] a = Add (x, b) [gelu] g = Gelu (a) [last] y = Relu (g) }"
)
BOXES = (
    '<ir_version: 10, opset_import: ["" : 22]> g (float[1,8,4] b, float[1,1,8] s) => (int64[n,3] y)'
    " { [round] r = Round (s) [nms] y = NonMaxSuppression (b, r) }"
)


def _saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def _ahead(path: Path, recipe: str = "@static-fp32", **pins: int) -> Outlook:
    return look_ahead(Model.open(path), plan(recipe, pins=pins))


def test_a_gelu_comes_to_directml_and_the_sizes_are_asked_for(tmp_path: Path) -> None:
    path = _saved(tmp_path, GELU)
    content = path.read_bytes()
    ahead = _ahead(path)
    assert [(f.node, f.op, f.step) for f in ahead.fates] == [("gelu", "Gelu-20", "opset")]
    assert ahead.free == {"batch": ["x[0]"]}
    assert (ahead.opset_before, ahead.opset_after, ahead.opset_chosen_by) == (20, 19, "placement")
    assert ahead.pins == "--pin batch=1"
    assert (ahead.after.partitions, ahead.best.after.partitions) == (0, 1)
    assert ahead.best.after.dml_nodes == ahead.best.after.nodes
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("data", "pins"),
    [
        ("float[sequence, batch, 4] x", "--pin sequence=8 --pin batch=1"),
        ("float[batch, sequence, 4] x", "--pin batch=1 --pin sequence=8"),
        ("float[seq_len, 4] x", "--pin seq_len=8"),
        ("float[images, 4] x", "--pin images=1"),
        ("float[sequence, n_batch, 4] x, float[2, n_batch, 4] h", "--pin sequence=8 --pin n_batch=1"),
    ],
)
def test_a_batch_is_the_dimension_that_says_so(tmp_path: Path, data: str, pins: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({data}) => (float[a, b, 4] y) {{ y = Relu (x) }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.CopyFrom(proto.graph.input[0].type)
    onnx.save(proto, tmp_path / "model.onnx")
    assert _ahead(tmp_path / "model.onnx").pins == pins


def test_prepare_does_what_was_foretold(tmp_path: Path) -> None:
    path = _saved(tmp_path, GELU)
    ahead = _ahead(path, "@vision-fp16", batch=2)
    record = dmlprep.prepare(
        path, out=tmp_path / "out", recipe="@vision-fp16", pins={"batch": 2}, settings={"parity.dml": "off"}
    )
    assert record.exit_code == 0, record.error
    assert ahead.example is None
    assert record.facts.placement_after == ahead.after
    assert record.facts.placement_before == ahead.before
    assert [s.nodes_after for s in record.steps] == [s.nodes_after for s in ahead.steps]


def test_what_stays_is_said_with_its_reason(tmp_path: Path) -> None:
    ahead = _ahead(_saved(tmp_path, BOXES))
    assert [f.op for f in ahead.staying] == ["NonMaxSuppression-11"]
    assert {f.node: f.step for f in ahead.fates} == {"round": "opset", "nms": ""}
    text = "\n".join(in_full(ahead, "m.onnx"))
    assert "stays on the CPU (no option moves it to DirectML)" in text
    assert "DP502 DirectML has no kernel" in text
    assert "1 of 2 nodes on DirectML" in text
    assert "100 %" not in text


@pytest.mark.parametrize("step", ['fp16]\nislands = "auto"', 'weights]\nsearch = "auto"'])
def test_a_search_that_runs_the_model_is_left_out(tmp_path: Path, step: str) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'doc = "d"\n[step.{step}\n', encoding="utf-8")
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,6,6] y) { y = Conv (x, w) }'
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "model.onnx")
    ahead = _ahead(tmp_path / "model.onnx", str(recipe))
    assert not ahead.refused


def test_check_and_plan_do_not_contradict_each_other(tmp_path: Path) -> None:
    path = _saved(tmp_path, BOXES)
    record = dmlprep.check(path)
    said = record.facts.prepare
    assert said is not None
    ahead = _ahead(path)
    assert (said.fates, said.after) == (ahead.best.fates, ahead.best.after)
    remedies = {str(f.facts["op"]): f.remedy for f in record.findings if "op" in f.facts}
    assert remedies["NonMaxSuppression"].startswith("dmlprep prepare does not bring it to DirectML")
    assert remedies["Round"] == "dmlprep prepare brings it to DirectML (opset 21)"
    assert record.facts.opportunities == []  # Round on DirectML costs a copy before NonMaxSuppression


def test_check_says_the_same_of_a_model_with_free_sizes(tmp_path: Path) -> None:
    path = _saved(tmp_path, GELU)
    record, ahead = dmlprep.check(path), _ahead(path)
    said = record.facts.prepare
    assert said is not None
    assert (said.fates, said.after, said.sizes) == (ahead.best.fates, ahead.best.after, {"batch": 1})
    (gelu,) = [f for f in record.findings if f.facts.get("op") == "Gelu"]
    assert gelu.remedy == "dmlprep prepare with fixed sizes brings it to DirectML (opset 19)"
    (one,) = record.facts.opportunities
    assert one.command == f"dmlprep prepare {path} -o out {ahead.pins}"


def test_check_shows_the_command_where_one_fused_graph_grows(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 2] x, float[1, 2] z) => (float[batch, 2] y) {
        a = Relu (x)  b = Neg (z)  c = Exp (b)  y = Add (a, c)
    }"""
    facts = dmlprep.check(_saved(tmp_path, text)).facts
    said = facts.prepare
    assert said is not None
    assert said.after is not None
    assert (said.before.partitions, said.before.fused_nodes) == (1, 2)
    assert (said.after.partitions, said.after.fused_nodes) == (1, 4)
    assert [(one.text, one.launches) for one in facts.opportunities] == [
        ("fuse 4 nodes into 1 graph, at example sizes", 2)
    ]


def test_a_model_that_is_ready_is_told_nothing(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    assert dmlprep.check(_saved(tmp_path, text)).facts.prepare is None


def test_the_share_of_fp16_needs_no_search(tmp_path: Path) -> None:
    half = _ahead(_saved(tmp_path, GELU), "@vision-fp16", batch=1).half
    assert half is not None
    assert (half.single, half.search) == (0, True)
    assert half.half > 2


def test_a_refusal_is_told_and_is_no_crash(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[3,2] y) <int64[2] s = {3, 2}>'
        " { y = Reshape (x, s) }"
    )
    path = _saved(tmp_path, text)
    refused = _ahead(path, n=2)
    assert "step pin" in refused.refused
    assert refused.after is None
    assert "prepare would refuse this model" in "\n".join(in_full(refused, "m.onnx"))
    ahead = _ahead(path)
    assert ahead.example is not None
    assert ahead.example.refused
    assert ahead.best is ahead
    assert "--pin n=1 does not work" in "\n".join(in_full(ahead, "m.onnx"))


def test_a_size_of_no_dimension_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="width"):
        _ahead(_saved(tmp_path, GELU), width=2)


def test_the_outlook_is_plain_json(tmp_path: Path) -> None:
    ahead = _ahead(_saved(tmp_path, GELU))
    assert json.loads(msgspec.json.encode(ahead))["example"]["sizes"] == {"batch": 1}


def test_simplify_does_not_hide_a_mask_from_fp16(tmp_path: Path) -> None:
    """It makes Gemm of MatMul and Add, and the mask is its C."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,2] y)'
        " <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2,2] mask = {0, -1e9, 0, 0}>"
        " { m = MatMul (x, w) a = Add (m, mask) y = Softmax (a) }"
    )
    ahead = _ahead(_saved(tmp_path, text), "@transformer-fp16")
    assert ahead.half is not None
    assert (ahead.half.half, ahead.half.single) == (ahead.after.nodes - 2, 0)


def test_simplify_makes_no_operator_that_directml_lacks(tmp_path: Path) -> None:
    """The step opset writes Gelu in other operators where int4 keeps the model above opset 19."""
    ahead = _ahead(_saved(tmp_path, GELU_BESIDE_INT4))
    assert ahead.opset_after == 21
    assert ahead.staying == []
    assert [(f.op, f.step) for f in ahead.fates] == [("Gelu-20", "opset")]
