"""The node tables as the page's script reads them: JSON in a ``script`` element, where no name ends that element."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dmlprep.portable.printable import printable, quoted
from dmlprep.record.nodes import NodeTable, NodeTables
from dmlprep.report.ribbon import kinds

_LETTERS = {"dml": "d", "single": "s", "cpu": "c"}


def payload(tables: NodeTables | None, *, half: bool) -> str:
    """Return JSON without ``<``, ``>`` and ``&`` and with printable names; ``half``: whether the steps make FP16."""
    if tables is None:
        return "{}"
    data = [_table(tables.before, "before" if tables.after else "nodes", half=False if tables.after else half)]
    if tables.after is not None:
        data.append(_table(tables.after, "after", half=half))
    text = json.dumps({"tables": data}, separators=(",", ":"), ensure_ascii=False)
    return quoted(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(table: NodeTable, label: str, *, half: bool) -> dict[str, object]:
    shared, rest = _behind_one_another(map(printable, table.names))
    crossings = table.crossings
    return {
        "label": label,
        "total": table.total,
        "shared": shared,
        "names": rest,
        "kinds": "".join(_LETTERS[kind] for kind in kinds(table, half=half)),
        "roles": table.roles,
        "operators": list(map(printable, table.operators)),
        "operator": table.operator,
        "reasons": [printable(str(one)) for one in table.reasons],
        "reason": table.reason,
        "notFused": table.not_fused,
        "types": list(map(printable, table.types)),
        "type": table.type,
        "partition": table.partition,
        "inputs": table.inputs,
        "graphs": list(map(printable, table.graphs)),
        "graph": table.graph,
        "crossings": {
            "values": list(map(printable, crossings.values)),
            "to": crossings.to,
            "producer": crossings.producer,
            "consumer": crossings.consumer,
            "nbytes": crossings.nbytes,
        },
    }


def _behind_one_another(names: Iterable[str]) -> tuple[str, list[str]]:
    """How many characters each name shares with the one before, and the rest of it: nodes of one block stand together.

    Only ASCII is shared: beyond it JavaScript counts some characters twice.
    """
    shared, rest, last = [], [], ""
    for name in names:
        count = 0
        for ours, theirs in zip(name, last, strict=False):
            if ours != theirs or not ours.isascii():
                break
            count += 1
        shared.append(str(count))
        rest.append(name[count:])
        last = name
    return " ".join(shared), rest
