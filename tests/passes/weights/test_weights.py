"""The step ``weights`` on models: what is written, what stays, and what both compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import ModelRefused, RecipeError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics.precision_traits import has_few_bits
from dmlprep.passes import Context, make_pass
from tests.parity.comparing import compare

Array = np.ndarray[Any, Any]

VOCABULARY, WIDTH = 96, 64


def decoder(path: Path, *, tied: bool = False, kind: int = TensorProto.FLOAT, broken: bool = False) -> Path:
    """Embeddings, two layers of products, and the product that gives logits."""
    rng = np.random.default_rng(5)
    half = helper.tensor_dtype_to_np_dtype(kind)
    arrays = {
        "table": rng.standard_normal((VOCABULARY, WIDTH)),
        "up": rng.standard_normal((WIDTH, 128)) / 8,
        "down": rng.standard_normal((128, WIDTH)) / 11,
        "odd": rng.standard_normal((WIDTH, WIDTH)) / 8,
        "head": rng.standard_normal((WIDTH, VOCABULARY)) / 8,
    }
    if tied:
        del arrays["head"]
    if broken:
        arrays["down"][3, 3] = np.nan
    made = [
        helper.make_node("Gather", ["table", "ids"], ["x"], name="embed"),
        helper.make_node("MatMul", ["x", "up"], ["a"], name="up"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "down"], ["c"], name="down"),
        helper.make_node("Add", ["x", "c"], ["d"]),
        helper.make_node("MatMul", ["d", "odd"], ["e"], name="again"),
        *([helper.make_node("Transpose", ["table"], ["head"], perm=[1, 0])] if tied else []),
        helper.make_node("MatMul", ["e", "head"], ["logits"], name="head"),
    ]
    graph = helper.make_graph(
        made,
        "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "n"])],
        [helper.make_tensor_value_info("logits", kind, [1, "n", VOCABULARY])],
        [numpy_helper.from_array(array.astype(half), name) for name, array in arrays.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def run(model: Model, options: dict[str, object]) -> Context:
    context = Context(find_target())
    make_pass("weights", {"least": 64, **options}).run(model, context)
    return context


def test_small_weights_are_reported_in_one_line(tmp_path: Path) -> None:
    context = run(Model.open(decoder(tmp_path / "m.onnx")), {"least": WIDTH * 128, "embeddings": "int8"})
    (left,) = [f for f in context.findings if f.code == "DP417"]
    assert left.facts["count"] == 2
    assert "again, head: its weight has fewer than 8,192 elements" in left.message


def operators(model: Model) -> list[str]:
    return sorted(n.op_type for n in nodes(model.ir) if n.op_type in ("MatMul", "MatMulNBits", "Gather", "Transpose"))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("options", [{}, {"symmetric": False}, {"bits": 8, "block_size": 128}, {"block_size": 16}])
def test_outputs_stay_alike(options: dict[str, object], tied: bool, tmp_path: Path) -> None:
    source, target = decoder(tmp_path / "m.onnx", tied=tied), tmp_path / "few.onnx"
    model = Model.open(source)
    context = run(model, options)
    assert operators(model) == ["Gather", *["MatMulNBits"] * 4]
    assert has_few_bits(model)
    assert context.facts.products == 4
    model.save(target)
    ids = np.arange(12, dtype=np.int64).reshape(1, 12)
    before, after = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"ids": ids})[0]
        for path in (source, target)
    )
    away = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert away < (0.02 if options.get("bits") == 8 else 0.3)
    verdict = compare(source, target)
    assert verdict.outcome == "passed"
    assert "few-bits" in (verdict.tolerance or "")


def test_a_weight_that_two_nodes_read_is_rounded_once(tmp_path: Path) -> None:
    source = onnx.load(decoder(tmp_path / "m.onnx"))
    source.graph.node[5].input[1] = "twice"
    source.graph.node.insert(5, helper.make_node("MatMul", ["d", "odd"], ["twin"], name="twin"))
    source.graph.node[6].input[0], source.graph.node[6].input[1] = "twin", "odd"
    onnx.save(source, tmp_path / "m.onnx")
    model = Model.open(tmp_path / "m.onnx")
    run(model, {})
    again, twin = (n for n in nodes(model.ir) if n.name in ("again", "twin"))
    assert list(again.inputs)[1:] == list(twin.inputs)[1:]
    assert "odd" not in model.ir.graph.initializers


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"last_layer": "keep"}, ["head"]),
        ({"keep_nodes": ["up"]}, ["up"]),
        ({"keep_patterns": ["a"]}, ["again", "head"]),
        ({"least": 64 * 128}, ["again", "head"]),
    ],
)
def test_what_is_to_stay_stays(options: dict[str, object], left: list[str], tmp_path: Path) -> None:
    model = Model.open(decoder(tmp_path / "m.onnx"))
    run(model, options)
    assert sorted(n.name or "" for n in nodes(model.ir) if n.op_type == "MatMul") == left


def test_the_last_layer_may_have_8_bits(tmp_path: Path) -> None:
    model = Model.open(decoder(tmp_path / "m.onnx"))
    run(model, {"last_layer": "8", "symmetric": False})
    bits = {n.name: n.attributes["bits"].value for n in nodes(model.ir) if n.op_type == "MatMulNBits"}
    assert bits == {"up": 4, "down": 4, "again": 4, "head": 8}


def test_8_bits_in_an_odd_number_of_blocks_have_no_zero_points(tmp_path: Path) -> None:
    """DirectML reads them wrongly (DP650)."""
    model = Model.open(decoder(tmp_path / "m.onnx"))
    run(model, {"bits": 8, "block_size": 64, "symmetric": False})
    inputs = {n.name: len(n.inputs) for n in nodes(model.ir) if n.op_type == "MatMulNBits"}
    assert inputs == {"up": 3, "down": 4, "again": 3, "head": 3}


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_embeddings_in_8_bits(kind: int, tied: bool, tmp_path: Path) -> None:
    source, target = decoder(tmp_path / "m.onnx", tied=tied, kind=kind), tmp_path / "few.onnx"
    model = Model.open(source)
    context = run(model, {"embeddings": "int8", "bits": 8})
    assert context.facts.tables == 1
    assert "table" not in model.ir.graph.initializers
    model.save(target)
    assert compare(source, target, tolerance="rel:0.03").outcome == "passed"


@pytest.mark.parametrize("options", [{"keep_nodes": ["embed"]}, {"keep_patterns": ["^emb"]}])
def test_a_gather_that_the_user_keeps_reads_its_table_unchanged(options: dict[str, object], tmp_path: Path) -> None:
    model = Model.open(decoder(tmp_path / "m.onnx"))
    context = run(model, {"embeddings": "int8", **options})
    assert context.facts.tables == 0
    assert "table" in model.ir.graph.initializers
    assert any("embed: " in f.message for f in context.findings if f.code == "DP417")


def test_the_shapes_that_rows_declare_are_those_that_onnx_infers(tmp_path: Path) -> None:
    proto = onnx.shape_inference.infer_shapes(onnx.load(decoder(tmp_path / "m.onnx")))
    model = Model(ir.from_proto(proto))
    run(model, {"embeddings": "int8"})
    scales = [n for n in nodes(model.ir) if n.op_type == "Gather" and n.outputs[0].dtype == ir.DataType.FLOAT]
    assert [n.outputs[0].shape.dims[-1] for n in scales if n.outputs[0].shape is not None] == [1]
    onnx.shape_inference.infer_shapes(ir.to_proto(model.ir), strict_mode=True)


def test_a_weight_with_nan_refuses_the_model_and_leaves_nothing(tmp_path: Path) -> None:
    source = decoder(tmp_path / "m.onnx", broken=True)
    recipe = tmp_path / "few.toml"
    recipe.write_text('doc = "few bits"\n[step.weights]\nleast = 64\n[parity]\ncpu = false\n')
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=str(recipe))
    assert record.exit_code == 1
    assert "down" in str(record.error)
    assert not (tmp_path / "out").exists()
    kept = {"step.weights.keep_nodes": ["down"]}
    again = dmlprep.prepare(source, out=tmp_path / "out", recipe=str(recipe), settings=kept)
    assert again.exit_code in (0, 3)


def test_a_name_that_nothing_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nowhere"):
        run(Model.open(decoder(tmp_path / "m.onnx")), {"keep_nodes": ["nowhere"]})


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    model = Model.open(decoder(tmp_path / "m.onnx"))
    run(model, {"embeddings": "int8"})
    before = model.snapshot()
    assert not make_pass("weights", {"least": 64, "embeddings": "int8"}).run(model, Context(find_target()))
    assert model.snapshot().same_as(before)


def test_refusals_are_those_of_the_house() -> None:
    with pytest.raises(RecipeError, match="bits"):
        make_pass("weights", {"bits": 3})
    assert issubclass(ModelRefused, Exception)
