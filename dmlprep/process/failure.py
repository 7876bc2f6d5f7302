"""A session that could not answer."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import ClassVar

from dmlprep.core.errors import DmlprepError, OutputError
from dmlprep.portable.hresult import diagnose, plain_text
from dmlprep.record.check import FailureKind

__all__ = ["FULL", "FailureKind", "SessionFailure", "disk_full", "failure"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A disk, a quota or the size that one file may have is used up."""

_FIX: dict[FailureKind, str] = {
    "load": "the message is from ONNX Runtime; dmlprep check shows what the model needs",
    "run": "check that the inputs have the shapes and types that the model declares",
    "crash": "try optimization level disabled, then dmlprep bisect to find the node",
    "timeout": "raise the time limit, or use smaller inputs",
    "hang": "dmlprep bisect finds the node; if it only waits for another program, raise the time limit",
    "memory": "use smaller inputs or a machine with more memory; DMLPREP_MEMORY_LIMIT=24G allows more",
    "limit": "raise the limit, if you trust the model",
    "device-removed": "try disable_metacommands, then smaller inputs, then another driver",
    "protocol": "this is a bug of dmlprep: report it with this message",
}


class SessionFailure(DmlprepError):
    """A model could not be loaded or run; the process that was asked is a child, so the caller goes on.

    Attributes:
        kind: ``load`` and ``run``: ONNX Runtime refused, the worker lives; ``crash``, ``timeout``, ``hang``,
            ``memory``: the worker died or was ended, because it was still computing or did nothing when its time was
            up; ``limit``: it was ended, because it took more than follows from the size of the model and its inputs
            (``allowance``); ``device-removed``: the device is gone; ``protocol``: the worker spoke nonsense.
        hresult: ``80070057 E_INVALIDARG``, empty when the message holds none.
        causes: likely causes, the likeliest first.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        where: str = "",
        hresult: str = "",
        causes: tuple[str, ...] = (),
        next_step: str = "",
    ) -> None:
        super().__init__(message, where=where, fix=next_step, code="DP802")
        self.kind: FailureKind = kind
        self.message = message
        self.hresult = hresult
        self.causes = causes
        self.next_step = next_step


def failure(kind: FailureKind, raw: bytes | str, where: str = "") -> SessionFailure:
    """A failure from what the runtime said, with the HRESULT in it explained."""
    message = plain_text(raw)
    hresult = diagnose(message)
    if hresult is None:
        return SessionFailure(kind, message, where=where, next_step=_FIX[kind])
    if hresult.removed and kind in ("load", "run"):
        kind = "device-removed"
    if hresult.name not in message:
        message = f"{hresult}: {message}"
    step = hresult.next_step
    return SessionFailure(kind, message, where=where, hresult=str(hresult), causes=hresult.causes, next_step=step)


def disk_full(folder: Path, error: OSError) -> OutputError:
    """What to raise where the exchange with a worker does not fit on the disk: no fault of the model."""
    what = f"a temporary file cannot be written: {error.strerror or error}"
    return OutputError(what, where=str(folder), fix="free some space there, or set TMPDIR to a folder with more space")
