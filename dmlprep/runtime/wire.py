"""Requests of a session and answers of its worker, in the lines and files of ``process/wire.py``.

What is fed lies in ``FEEDS`` below the folder, which a sandboxed worker can only read: what it could write to, it could
replace by a link to another file of the user's, which the next feed would overwrite. What comes back lies in
``RESULTS``, which a sandboxed worker sees as the folder itself.

The same words are spoken by the Python worker (``worker.py``) and by the host program of the Linux runtime
(``native/host.c``), so that one session class serves all devices.

    request                                     answer
    hello                                       device KEY VALUE ...
    confine PATH ... (before the first load)    nothing; of the user's files the worker reads these from now on
    option KEY VALUE ... load ID MODEL          took SECONDS · input NAME TYPE DIM ... · output NAME TYPE DIM ...
    feed NAME TYPE FILE DIM ...                 value NAME TYPE FILE DIM ... · sequence NAME COUNT, then its values
      want NAME ... run ID                        · none NAME
    keep INPUT OUTPUT TYPE DIM ...
      hold ID shared|grown                      nothing; the values of the pairs stay with the session, for step
    feed ... want ... step ID                   as run
    feed ... want ... bind ID                   nothing; the feeds stay, for time
    time ID host|device COUNT SECONDS           took SECONDS ..., one a run
    memory                                      memory KEY BYTES ...
    placement ID                                node PROVIDER TYPE DOMAIN NAME ...
    timings ID                                  file PROFILE
    close ID · quit

Only the last word of a request line is answered; every answer ends with ``ok`` or with ``fail KIND MESSAGE``.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlprep.runtime.types import Dim

FEEDS, RESULTS = "feeds", "results"


def dims_to_fields(dims: Sequence[Dim]) -> list[str]:
    """``2``, ``$batch`` for a named dimension, ``?`` for one that has neither."""
    return ["?" if dim is None else f"${dim}" if isinstance(dim, str) else str(dim) for dim in dims]


def dims_from_fields(fields: Sequence[str]) -> tuple[Dim, ...]:
    """The inverse of ``dims_to_fields``."""
    return tuple(None if field == "?" else field[1:] if field.startswith("$") else int(field) for field in fields)
