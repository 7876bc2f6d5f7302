"""The search of the step ``weights`` for products that have to keep their weights."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.record.steps import StepFacts

WIDTH, LAYERS = 64, 8


def layers(path: Path, *planted: int) -> Path:
    """Products in a row. A planted one has weights beside which the others of their blocks round to nothing; what they
    are multiplied by is zero."""
    rng = np.random.default_rng(7)
    mask = np.ones(WIDTH, np.float32)
    mask[::32] = 0
    arrays = {"mask": mask}
    made = []
    for layer in range(LAYERS):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32)
        if layer in planted:
            weight[::32] = 40
        arrays[f"w{layer}"] = weight
        made += [
            helper.make_node("Tanh", [f"x{layer}"], [f"t{layer}"]),
            helper.make_node("Mul", [f"t{layer}", "mask"], [f"m{layer}"]),
            helper.make_node("MatMul", [f"m{layer}", f"w{layer}"], [f"p{layer}"], name=f"layer{layer}"),
            helper.make_node("Add", [f"p{layer}", f"x{layer}"], [f"x{layer + 1}"]),
        ]
    graph = helper.make_graph(
        made,
        "layers",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [4, WIDTH])],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, [4, WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def prepared(source: Path, out: Path, **options: object) -> tuple[dmlprep.Record, StepFacts]:
    recipe = source.with_name("few.toml")
    rows = "".join(f"{name} = {str(value).lower()}\n" for name, value in options.items())
    recipe.write_text(f'doc = "few bits"\n[step.weights]\nleast = 64\n{rows}')
    record = dmlprep.prepare(source, out=out, recipe=str(recipe))
    return record, next((s.facts for s in record.steps if s.step == "weights"), StepFacts())


def products(path: Path) -> list[str]:
    return [node.name for node in onnx.load(path).graph.node if node.op_type == "MatMul"]


@pytest.mark.parametrize("planted", [(), (3,), (1, 6)])
def test_the_products_that_spoil_the_result_keep_their_weights(planted: tuple[int, ...], tmp_path: Path) -> None:
    source = layers(tmp_path / "m.onnx", *planted)
    record, facts = prepared(source, tmp_path / "out", search='"auto"', tolerance=0.2)
    assert record.exit_code == 0, record.error
    wanted = [f"layer{layer}" for layer in planted]
    assert products(tmp_path / "out" / "model.onnx") == wanted
    assert sorted(facts.kept_weights) == wanted
    assert facts.error <= 0.2
    assert facts.kept_bytes == len(planted) * WIDTH * WIDTH * 4
    assert facts.bytes_to_round == LAYERS * WIDTH * WIDTH * 4
    told = [f for step in record.steps for f in step.findings]
    assert [f.node for f in told if f.code == "DP418"] == wanted
    assert [f.code for f in told if f.code == "DP416"] == ["DP416"]
    assert not [f for f in told if f.code == "DP417"]


def test_the_recipe_line_gives_the_same_file_without_a_search(tmp_path: Path) -> None:
    source = layers(tmp_path / "m.onnx", 2)
    _, facts = prepared(source, tmp_path / "searched", search='"auto"', tolerance=0.2)
    keep = tomllib.loads(facts.keep_recipe)["keep_nodes"]
    prepared(source, tmp_path / "named", keep_nodes=keep)
    one, other = (onnx.load(tmp_path / name / "model.onnx") for name in ("searched", "named"))
    assert one.graph == other.graph


def test_a_bound_that_nothing_meets_refuses_the_model(tmp_path: Path) -> None:
    record, _ = prepared(layers(tmp_path / "m.onnx"), tmp_path / "out", search='"auto"', tolerance=1e-6)
    assert record.exit_code == 1
    assert "DP419" in str(record.error)
    assert not (tmp_path / "out").exists()


def test_a_pipeline_that_runs_no_models_says_so(tmp_path: Path) -> None:
    model = Model.open(layers(tmp_path / "m.onnx"))
    before = model.snapshot()
    with pytest.raises(ModelRefused, match="must run the model"):
        make_pass("weights", {"least": 64, "search": "auto"}).run(model, Context(find_target()))
    assert model.snapshot().same_as(before)


def test_a_search_that_was_stopped_goes_on(tmp_path: Path) -> None:
    source, journal = layers(tmp_path / "m.onnx", 3), tmp_path / "trials.json"
    given = {"search": '"auto"', "tolerance": 0.2, "journal": f"'{journal}'"}
    _, first = prepared(source, tmp_path / "one", **given)
    _, second = prepared(source, tmp_path / "two", **given)
    assert first.kept_weights == second.kept_weights
    assert [t.error for t in first.trials] == [t.error for t in second.trials]
    assert second.search_seconds < first.search_seconds
