"""The table of nodes holds together, or a record with it is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dmlprep.record import RunRecord
from dmlprep.record.nodes import numbers

TABLE: dict[str, Any] = {
    "total": 4,
    "names": ["/a/Conv", "/a/Gelu", "/b/Conv"],
    "providers": "dcd",
    "floats": "hsm",
    "roles": "ccs",
    "operators": ["Conv", "Gelu"],
    "operator": "0 1 0",
    "reasons": [
        {"code": "DP500", "text": ""},
        {"code": "DP502", "text": "no kernel"},
        {"code": "DP201", "text": "free"},
    ],
    "reason": "0 1 0",
    "not_fused": "-1 -1 2",
    "types": ["float16[1,8]"],
    "type": "0 -1 0",
    "partition": "0 -1 -1",
    "inputs": "- 0 0,1",
    "cpu_left_out": 1,
    "crossings": {"total": 3, "values": ["x"], "to": "c", "producer": "0", "consumer": "-1", "nbytes": "-1"},
}


def _read(**nodes: Any) -> RunRecord:
    return RunRecord.from_json(json.dumps({"command": "prepare", "input": "m.onnx", "facts": {"nodes": nodes}}))


def test_a_table_comes_back_as_it_was() -> None:
    tables = RunRecord.from_json(_read(before=TABLE).to_json()).facts.nodes
    assert tables is not None
    table = tables.before
    assert list(table.reads()) == [[], [0], [0, 1]]
    assert numbers(table.not_fused) == [-1, -1, 2]
    assert table.crossings.total == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"total": 2},
        {"cpu_left_out": 2},
        {"providers": "dc"},
        {"providers": "dcx"},
        {"floats": ""},
        {"roles": "ccq"},
        {"operator": "0 1 2"},
        {"operator": "0 1"},
        {"operator": "0 1 x"},
        {"reason": "0 1 -1"},
        {"reason": "0 1 3"},
        {"not_fused": "-2 -1 2"},
        {"type": "1 -1 0"},
        {"graph": "0 0 0"},
        {"partition": "0 -1 9"},
        {"partition": "0 -1 " + "9" * 5000},
        {"names": ["a", "b", "n" * 201]},
        {"types": ["n" * 201]},
        {"operators": ["Conv", "Gelu", "Add", "Mul"]},
        {"inputs": "- 0 3"},
        {"inputs": "- 0 -1"},
        {"inputs": "- 0"},
        {"crossings": {"total": 0, "values": ["x"], "to": "c", "producer": "0", "consumer": "0", "nbytes": "0"}},
        {"crossings": {"total": 1, "values": ["x"], "to": "", "producer": "0", "consumer": "0", "nbytes": "0"}},
        {"crossings": {"total": 1, "values": ["x"], "to": "c", "producer": "0", "consumer": "3", "nbytes": "0"}},
        {"crossings": {"total": 1, "values": ["x"], "to": "c", "producer": "0", "consumer": "0", "nbytes": ""}},
    ],
)
def test_a_table_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        _read(before=TABLE | changes)


def test_a_table_of_another_format_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="format 2"):
        _read(before=TABLE, format=2)
