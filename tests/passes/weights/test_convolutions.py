"""The step ``weights`` on convolutions: 8 bits behind DequantizeLinear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics.precision_traits import has_few_bits
from dmlprep.passes import Context, make_pass
from tests.parity.comparing import compare

CHANNELS = 16


def network(path: Path, *, opset: int = 17, kind: int = TensorProto.FLOAT, broken: str = "", planted: str = "") -> Path:
    """A stem, a Conv in groups, a depthwise one, two that share a weight, a ConvTranspose, and the one that gives y.

    ``planted`` names a weight with one huge number in each channel, for an input that is always zero.
    """
    rng = np.random.default_rng(4)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    shapes = {
        "stem": (CHANNELS, 3, 3, 3),
        "groups": (CHANNELS, 4, 3, 3),
        "depthwise": (CHANNELS, 1, 3, 3),
        "shared": (CHANNELS, CHANNELS, 3, 3),
        "up": (CHANNELS, CHANNELS, 2, 2),
        "last": (3, CHANNELS, 3, 3),
    }
    arrays = {name: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    if broken:
        arrays[broken][1, 1, 1, 1] = np.inf
    mask = np.ones((1, CHANNELS, 1, 1))
    if planted:
        mask[:, 0] = 0
        arrays[planted][:, 0] = 60
    arrays |= {"bias": rng.standard_normal(CHANNELS), "mask": mask}

    def conv(name: str, source: str, weight: str, op: str = "Conv", **attributes: object) -> list[onnx.NodeProto]:
        inputs = [source, weight, *(["bias"] if name != "last" else [])]
        return [
            helper.make_node(op, inputs, [f"{name}_c"], name, **attributes),
            helper.make_node("Relu", [f"{name}_c"], [f"{name}_r"], f"{name}_relu"),
        ]

    same = {"pads": [1, 1, 1, 1]}
    made = [
        *conv("stem", "x", "stem", **same),
        *conv("groups", "stem_r", "groups", group=4, **same),
        *conv("depthwise", "groups_r", "depthwise", group=CHANNELS, **same),
        helper.make_node("Mul", ["depthwise_r", "mask"], ["masked"], "masking"),
        *conv("first", "masked", "shared", **same),
        *conv("second", "first_r", "shared", **same),
        *conv("up", "second_r", "up", "ConvTranspose", strides=[2, 2]),
        *conv("last", "up_r", "last", **same)[:1],
    ]
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", kind, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("last_c", kind, [1, 3, 16, 16])],
        [numpy_helper.from_array(array.astype(dtype), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def run(model: Model, target: str = "latest", **options: object) -> Context:
    context = Context(find_target(target))
    make_pass("weights", {"least": 64, "convolutions": "int8", **options}).run(model, context)
    return context


def rounded(model: Model) -> list[str]:
    return [n.name or "" for n in nodes(model.ir) if "Conv" in n.op_type and not n.inputs[1].is_initializer()]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("opset", [11, 17, 21])
def test_outputs_stay_alike(opset: int, kind: int, tmp_path: Path) -> None:
    source, target = network(tmp_path / "m.onnx", opset=opset, kind=kind), tmp_path / "few.onnx"
    model = Model.open(source)
    context = run(model)
    assert rounded(model) == ["stem", "groups", "first", "second", "up", "last"]
    assert "depthwise" in next(f.message for f in context.findings if f.code == "DP417")
    assert context.facts.convolutions == 6
    assert has_few_bits(model)
    model.save(target)
    assert target.stat().st_size < source.stat().st_size * (0.5 if kind == TensorProto.FLOAT else 0.9)
    assert compare(source, target, tolerance="rel:0.03").outcome == "passed"
    arrays = {t.name: t.data_type for t in onnx.load(target).graph.initializer}
    assert "shared" not in arrays
    assert sum(data_type == TensorProto.INT8 for data_type in arrays.values()) == 2 * 5


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"last_layer": "keep"}, {"last"}),
        ({"keep_nodes": ["first"]}, {"first"}),
        ({"keep_patterns": ["st$"]}, {"first", "last"}),
        ({"least": 16 * 16 * 9}, {"stem", "groups", "up", "last"}),
        ({"convolutions": "keep"}, {"stem", "groups", "first", "second", "up", "last"}),
    ],
)
def test_what_is_to_stay_stays(options: dict[str, object], left: set[str], tmp_path: Path) -> None:
    model = Model.open(network(tmp_path / "m.onnx"))
    run(model, **options)
    assert {"stem", "groups", "first", "second", "up", "last"} - set(rounded(model)) == left


def test_a_target_without_the_kernel_keeps_all_and_says_so(tmp_path: Path) -> None:
    model = Model.open(network(tmp_path / "m.onnx", opset=11))
    before = model.snapshot()
    context = run(model, "winml-11")
    assert model.snapshot().same_as(before)
    assert [f.code for f in context.findings] == ["DP417"]


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    model = Model.open(network(tmp_path / "m.onnx"))
    run(model)
    before = model.snapshot()
    run(model)
    assert model.snapshot().same_as(before)


def test_a_weight_with_infinity_is_refused(tmp_path: Path) -> None:
    model = Model.open(network(tmp_path / "m.onnx", broken="up"))
    run(model)
    with pytest.raises(ModelRefused, match="'up'") as refused:
        model.save(tmp_path / "few.onnx")
    assert refused.value.code == "DP415"


def write_recipe(path: Path, options: str = "", after: str = "") -> Path:
    path.write_text(
        'doc = "int8 convolutions"\ntarget = "ort-1.24"\n[step.opset]\n[step.fix-quirks]\n[step.weights]\n'
        f'convolutions = "int8"\nleast = 64\n{options}\n'
        f'[step.fp16]\nkeep_io = true\nallow = ["little-gain"]\n{after}\n'
    )
    return path


@pytest.mark.parametrize("opset", [17, 21])
def test_the_steps_behind_leave_it_in_8_bits_and_make_the_scales_fp16(opset: int, tmp_path: Path) -> None:
    source = network(tmp_path / "m.onnx", opset=opset)
    recipe = write_recipe(tmp_path / "r.toml", after="[step.simplify]")
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=str(recipe))
    assert record.exit_code == 0, record.error
    made = onnx.load(tmp_path / "out" / "model.onnx")
    kinds = {t.name: t.data_type for t in made.graph.initializer}
    wide = [n for n in made.graph.node if n.op_type == "DequantizeLinear"]
    assert len(wide) == 5  # simplify makes one of the two that read the shared weight
    for node in wide:
        assert [kinds[name] for name in node.input] == [TensorProto.INT8, TensorProto.FLOAT16, TensorProto.INT8]
    assert sum(n.op_type == "Cast" for n in made.graph.node) == 2, "the input and the output alone"
    checked = dmlprep.check(tmp_path / "out" / "model.onnx", target="ort-1.24")
    found = checked.facts.memory
    assert found is not None
    assert found.known
    assert not [f for f in checked.findings if f.code.startswith("DP6")]


def test_the_search_keeps_the_convolution_that_spoils_the_result(tmp_path: Path) -> None:
    source = network(tmp_path / "m.onnx", planted="shared")
    recipe = write_recipe(tmp_path / "r.toml", 'search = "auto"\ntolerance = 0.03')
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=str(recipe))
    assert record.exit_code == 0, record.error
    plain = {t.name for t in onnx.load(tmp_path / "out" / "model.onnx").graph.initializer}
    facts = next(s.facts for s in record.steps if s.step == "weights")
    assert "first" in facts.kept_weights
    assert "shared" in plain or any(name.startswith("shared") for name in plain)
    assert facts.error <= 0.03 < facts.error_of_all


@pytest.mark.dml
def test_directml_computes_the_same(tmp_path: Path) -> None:
    source = network(tmp_path / "m.onnx")
    recipe = write_recipe(tmp_path / "r.toml")
    record = dmlprep.prepare(source, out=tmp_path / "out", recipe=str(recipe), device="dml")
    assert record.exit_code == 0, record.error
    single = Model.open(source)
    run(single)
    single.save(tmp_path / "few.onnx")
    for path in (tmp_path / "few.onnx", tmp_path / "out" / "model.onnx"):
        # The same file on the CPU, which reads the same numbers; FP16 sums are rounded otherwise.
        verdict = compare(path, path, device="dml", tolerance="rel:1e-5" if path.stem == "few" else "rel:0.01")
        assert verdict.outcome == "passed", verdict
