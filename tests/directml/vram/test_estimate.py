"""Estimates of real graphs: against what was measured with DirectML, and what holds for any graph."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.targets import find_target
from dmlprep.directml.vram import estimate
from dmlprep.graph.model import Model
from dmlprep.record.memory import MemoryEstimate
from tests.fixtures_index import fixture

_PAGE = 1 << 16


def estimated(model: onnx.ModelProto | Path, folder: Path, vram: int | None = None) -> MemoryEstimate:
    path = folder / "m.onnx"
    if isinstance(model, Path):
        path = model
    else:
        onnx.save(model, path)
    opened, target = Model.open(path), find_target("ort-1.30")
    graph = read_facts(opened, target.tables)
    return estimate(graph, place_facts(graph, target, opened.opset), target, vram)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')


def test_a_chain_of_convolutions_holds_two_of_its_tensors(tmp_path: Path) -> None:
    """The block of 16 MiB and its rounding were measured, as those of the next tests (docs/memory.md)."""
    found = estimated(_chain(["Conv"] * 5, side=512), tmp_path)
    mib = 1 << 20
    assert found.activations == 16 * mib
    assert found.feeds == 2 * 8 * mib
    assert found.peak == found.weights + found.activations + found.feeds
    assert found.load == found.weights == _PAGE


def test_element_wise_steps_take_no_memory_of_their_own(tmp_path: Path) -> None:
    found = estimated(_chain(["Sin", "Relu", "Sqrt", "Exp"], side=512), tmp_path)
    assert (found.activations, found.weights) == (0, 0)


@pytest.mark.parametrize(
    ("body", "mib"),
    [
        ("a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(a, w) y = Add(x, b)", 8),
        (
            "a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(a, w) c = Conv<pads=[1,1,1,1]>(b, w) "
            "d = Add(a, c) y = Conv<pads=[1,1,1,1]>(d, w)",
            24,
        ),
        ("a = Conv<pads=[1,1,1,1]>(x, w) s = Sigmoid(a) b = Mul(a, s) y = Conv<pads=[1,1,1,1]>(b, w)", 16),
        ("a = Conv<pads=[1,1,1,1]>(x, w) b = Transpose<perm=[0,1,3,2]>(a) y = Conv<pads=[1,1,1,1]>(b, w)", 16),
        ("a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) y = Conv<pads=[1,1,1,1]>(b, w)", 8),
        (
            "a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(a, w) c = Conv<pads=[1,1,1,1]>(a, w) "
            "y = Concat<axis=1>(b, c)",
            8,
        ),
    ],
    ids=["residual", "residual inside", "silu", "transpose", "relu", "concat"],
)
def test_blocks_of_fused_graphs_are_as_measured(tmp_path: Path, body: str, mib: int) -> None:
    text = f"g (float[1,8,512,512] x) => (float[1,{16 if 'Concat' in body else 8},512,512] y) {{ {body} }}"
    model = parsed(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w"))
    found = estimated(model, tmp_path)
    block = found.activations >> 20
    assert block == 1 << (mib - 1).bit_length()  # the block takes a power of two


def test_a_free_size_leaves_nothing_to_say(tmp_path: Path) -> None:
    found = estimated(fixture("residual_cnn").path, tmp_path)
    assert not found.known
    assert "batch" in found.unknown
    assert (found.peak, found.largest) == (0, [])


def test_rows_beside_a_tile_keep_the_weights_more_often(tmp_path: Path) -> None:
    def product(rows: int, vram: int | None = None) -> MemoryEstimate:
        model = parsed(f"g (float[{rows},1024] x) => (float[{rows},1024] y) {{ y = MatMul(x, w) }}")
        model.graph.initializer.append(numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w"))
        return estimated(model, tmp_path, vram)

    assert [product(rows).weights >> 20 for rows in (64, 77, 100, 128)] == [4, 8, 12, 4]
    tiled = next(way for way in product(100, vram=_PAGE).ways if way.how == "rows in 64s")
    assert tiled.peak == product(100).peak - (8 << 20)


def test_what_helps_is_estimated_by_the_same_rules(tmp_path: Path) -> None:
    found = estimated(_chain(["Conv"] * 4, side=512, batch=4), tmp_path, vram=1 << 20)
    ways = {way.how: way.peak for way in found.ways}
    assert ways["FP16"] == estimated(_chain(["Conv"] * 4, side=512, batch=2), tmp_path).peak
    assert ways["batch 1"] == estimated(_chain(["Conv"] * 4, side=512), tmp_path).peak
    assert set(ways) == {"FP16", "batch 1", "half the height and width"}
    assert estimated(_chain(["Conv"] * 4, side=512, batch=4), tmp_path, vram=found.peak).ways == []


def test_nodes_inside_a_branch_count_where_their_node_runs(tmp_path: Path) -> None:
    model = parsed(
        """g (bool c, float[1024,1024] x) => (float[1024,1024] y) {
            y = If (c) <then_branch = t () => (float[1024,1024] a) { b = MatMul(x, x) a = MatMul(b, b) },
                        else_branch = e () => (float[1024,1024] d) { d = Identity(x) }>
        }"""
    )
    found = estimated(model, tmp_path)
    assert found.known
    assert found.peak >= 3 << 22


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["Conv", "Relu", "Sigmoid", "Add", "Transpose", "MaxPool"]), max_size=12), st.data())
def test_any_graph_holds_its_largest_tensor_and_names_decide_nothing(
    tmp_path_factory: pytest.TempPathFactory, operators: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("graphs")
    side = data.draw(st.sampled_from([16, 64, 200]))
    model = _chain(operators, side=side)
    found = estimated(model, folder)
    tensor = 8 * side * side * 4
    count = len(operators) + 2
    assert found.peak - found.weights >= tensor
    # Each tensor takes a buffer of at most twice its size, or the smallest; the block of a fused graph as well.
    assert found.peak - found.weights <= 2 * count * max(2 * tensor, _PAGE) + 2 * _PAGE
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = f"z{len(name)}{name[::-1]}"
    for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        value.name = f"z{len(value.name)}{value.name[::-1]}"
    renamed = estimated(model, folder)
    numbers = ("peak", "load", "shared_peak", "shared_load", "weights", "activations", "feeds")
    assert [getattr(renamed, name) for name in numbers] == [getattr(found, name) for name in numbers]


@pytest.mark.parametrize(
    ("side", "known"), [(2**20, True), (2**27, False), (2**29, False)], ids=["4 TB", "72 PB", "1 EB"]
)
def test_sizes_beyond_any_machine_are_said_to_be(tmp_path: Path, side: int, known: bool) -> None:
    began = time.perf_counter()
    found = estimated(parsed(f"g (float[{side},{side}] x) => (float[{side},{side}] y) {{ y = Relu(x) }}"), tmp_path)
    assert found.known is known
    assert found.peak == (2 * 4 * side * side if known else 0)
    assert known or "larger than any machine's memory" in found.unknown
    assert time.perf_counter() - began < 5


def test_what_nobody_reads_and_what_the_cpu_alone_reads_is_left_out(tmp_path: Path) -> None:
    model = parsed(
        """g (float[1,8,64,64] x, string[4096] s) => (float[1,8,64,64] y, string[4096] t) {
            a = Sin(x) b = Cos(x) unread = Concat<axis=1>(a, b) y = Exp(a) t = Identity(s)
        }"""
    )
    found = estimated(model, tmp_path)
    assert found.known
    assert found.feeds == 2 * 131072


def test_names_out_of_a_hostile_file_are_bounded(tmp_path: Path) -> None:
    model = _chain(["Conv", "Conv"], side=16)
    long = "\x1b[31m" + "n" * 5000
    model.graph.initializer[0].name = long
    for node in model.graph.node:
        node.name = long + node.output[0]
        node.input[:] = [long if name == "w" else name for name in node.input]
    found = estimated(model, tmp_path)
    assert found.known
    for text in [found.at, *(one.name for one in found.largest), *(one.node for one in found.largest)]:
        assert len(text) <= 200
        assert "\x1b" not in text


def _chain(operators: list[str], side: int, batch: int = 1) -> onnx.ModelProto:
    """Operators on [batch, 8, side, side], each on the result of the one before; Add also on that before that."""
    nodes, before, value = [], "x", "x"
    for number, operator in enumerate(operators):
        made = f"v{number}"
        inputs = {"Conv": [value, "w"], "Add": [value, before]}.get(operator, [value])
        options = {
            "Conv": {"pads": [1] * 4},
            "MaxPool": {"kernel_shape": [3, 3], "pads": [1] * 4},
            "Transpose": {"perm": [0, 1, 3, 2]},
        }.get(operator, {})
        nodes.append(helper.make_node(operator, inputs, [made], **options))
        before, value = value, made
    nodes.append(helper.make_node("Identity" if not operators else "Sin", [value], ["y"]))
    shape = [batch, 8, side, side]
    weights = [numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w")] if "Conv" in operators else []
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
