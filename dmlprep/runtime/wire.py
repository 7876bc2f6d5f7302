"""The protocol of a session and its worker, in the lines and files of ``process/wire.py``.

Feeds are files in ``FEEDS``, a folder that a sandboxed worker can only read. Otherwise it could replace a feed by a
link to a user's file, which the next feed would overwrite. Results are files in ``RESULTS``, which a sandboxed worker
sees as its exchange folder.

The Python worker (``worker.py``) and the host program of the Linux runtime (``native/host.c``) use the same protocol.
So one session class serves all devices.

| request | answer |
|---|---|
| hello | device KEY VALUE ... |
| confine PATH ... (before the first load) | none; from now on the worker reads only these user files |
| option KEY VALUE ... load ID MODEL | took SECONDS, device KEY VALUE ..., input and output NAME TYPE DIM ... |
| feed NAME TYPE FILE DIM ..., want NAME ..., run ID | for each output one of the three lines below |
| | value NAME TYPE FILE DIM ... |
| | sequence NAME COUNT, then its values |
| | none NAME |
| keep INPUT OUTPUT TYPE DIM ..., hold ID shared or grown | none; the session keeps the values of the pairs for step |
| feed ..., want ..., step ID | as for run |
| feed ..., want ..., bind ID | none; the session keeps the feeds for time |
| time ID host or device COUNT SECONDS | took SECONDS ..., one for each run |
| memory | memory KEY BYTES ... |
| placement ID | node PROVIDER TYPE DOMAIN NAME ... |
| timings ID | file PROFILE |
| close ID | none |
| quit | none; the worker ends |

The items of a sequence are ``feed`` lines after ``feedsequence NAME COUNT TYPE``. Without ``want``, all outputs are
sent. Only the last word of a request gets an answer. Every answer ends with ``ok`` or with ``fail KIND MESSAGE``.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlprep.runtime.types import Dim

FEEDS, RESULTS = "feeds", "results"


def dims_to_fields(dims: Sequence[Dim]) -> list[str]:
    """Return dimensions as fields: ``2`` for a size, ``$batch`` for a named dimension, ``?`` for an unknown one."""
    return ["?" if dim is None else f"${dim}" if isinstance(dim, str) else str(dim) for dim in dims]


def dims_from_fields(fields: Sequence[str]) -> tuple[Dim, ...]:
    """Return dimensions from fields: the inverse of ``dims_to_fields``."""
    return tuple(None if field == "?" else field[1:] if field.startswith("$") else int(field) for field in fields)
