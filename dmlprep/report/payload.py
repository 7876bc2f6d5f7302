"""The node tables as the page's script reads them: JSON in a ``script`` element, where no name ends that element."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dmlprep.portable.printable import printable, quoted
from dmlprep.record.nodes import NodeTable, NodeTables
from dmlprep.report.ribbon import kinds

_COLUMNS = ("total", "roles", "operator", "reason", "type", "partition", "inputs", "graph")
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
        "shared": shared,
        "names": rest,
        "kinds": "".join(_LETTERS[kind] for kind in kinds(table, half=half)),
        "reasons": [printable(str(one)) for one in table.reasons],
        "notFused": table.not_fused,
        **{name: getattr(table, name) for name in _COLUMNS},
        **{name: list(map(printable, getattr(table, name))) for name in ("operators", "types", "graphs")},
        "crossings": {
            "values": list(map(printable, crossings.values)),
            **{name: getattr(crossings, name) for name in ("to", "producer", "consumer", "nbytes")},
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
