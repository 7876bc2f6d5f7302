"""The table of nodes says what the placement says, and stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.placement import Placement
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.placement.table import node_table
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.record.nodes import NodeTable, numbers

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def _table(name: str) -> tuple[NodeTable, Placement]:
    model, target = Model.open(MODELS / name), find_target("latest")
    graph = read_facts(model, target.tables)
    placement = place_facts(graph, target, model.opset)
    return node_table(graph, placement), placement


def test_columns_are_those_of_the_placement() -> None:
    table, placement = _table("detector_nms.onnx")
    assert table.total == len(placement.nodes)
    assert table.names == [n.name for n in placement.nodes]
    assert [table.operators[i] for i in numbers(table.operator)] == [n.op for n in placement.nodes]
    assert table.providers.count("d") == placement.dml_nodes
    assert numbers(table.partition) == [-1 if n.partition is None else n.partition for n in placement.nodes]
    reasons = [table.reasons[i] for i in numbers(table.reason)]
    assert [one.code for one in reasons] == [n.code for n in placement.nodes]
    assert table.crossings.total == len(placement.crossings) == 3
    (away,) = [index for index, letter in enumerate(table.providers) if letter == "c"]
    assert away in numbers(table.crossings.consumer)
    assert table.types[numbers(table.type)[0]].startswith("float[")
    assert {"int64[?,3]", "float[num_detections,4]"} <= set(table.types)  # one unknown size, and one with a name
    assert all(one < index for index, row in enumerate(table.reads()) for one in row)


def test_nodes_of_a_body_follow_their_owner() -> None:
    table, placement = _table("nested_control.onnx")
    assert sorted(table.names) == sorted(n.name for n in placement.nodes)
    graphs = [table.graphs[i] for i in numbers(table.graph)]
    inside = next(index for index, path in enumerate(graphs) if path)
    assert graphs[inside].startswith(table.names[inside - 1])


def test_what_is_beyond_the_bound_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlprep.directml.placement.table.NODES", 10)
    table, _ = _table("detector_nms.onnx")
    assert (table.total, len(table.names), table.cpu_left_out) == (32, 10, 1)
    assert set(numbers(table.crossings.consumer)) == {-1}
