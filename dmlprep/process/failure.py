"""The error of a session that could not answer."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import ClassVar

from dmlprep.core.errors import DmlprepError, OutputError
from dmlprep.portable.hresult import diagnose, plain_text
from dmlprep.record.check import FailureKind

__all__ = ["FULL", "FailureKind", "SessionFailure", "disk_full", "failure"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Values of ``errno`` for a full disk, an exhausted quota, or a file at its largest size."""

_FIX: dict[FailureKind, str] = {
    "load": "dmlprep check shows what the model needs",
    "run": "check that the inputs have the shapes and types that the model declares",
    "crash": "try optimization level disabled, then dmlprep bisect to find the node",
    "timeout": "raise the time limit, or use smaller inputs",
    "hang": "dmlprep bisect finds the node; if it only waits for another program, raise the time limit",
    "memory": "use smaller inputs or a machine with more memory; DMLPREP_MEMORY_LIMIT=24G allows more",
    "limit": "raise the limit, if you trust the model",
    "device-removed": "try disable_metacommands, then smaller inputs, then another driver",
    "protocol": "this is probably a bug of dmlprep: report it with this message",
}


class SessionFailure(DmlprepError):
    """A model could not be loaded or run. The worker is a child process, so the caller continues.

    Attributes:
        kind: ``load`` and ``run``: ONNX Runtime refused, and the worker is alive. ``crash``: the worker died or did not
            start. ``timeout``, ``hang``: it was ended after its time limit, while it was computing or did nothing.
            ``memory``: it exceeded its memory limit, or an allocation failed. ``limit``: it exceeded the limits for the
            size of the model and its inputs (``allowance``). ``device-removed``: the device was removed or reset.
            ``protocol``: the worker's answer or log was too large or not valid, or a file of the exchange was not
            readable or writable.
        hresult: ``80070057 E_INVALIDARG``; empty if the message has none.
        causes: likely causes, the most likely first.
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
    """Return, without raising it, a failure for a message of the runtime, with an explanation of its HRESULT.

    If the HRESULT says that the device was removed, ``load`` and ``run`` become ``device-removed``.
    """
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
    """Return, without raising it, the error for an exchange folder on a full disk, which is not the model's fault."""
    what = f"a temporary file cannot be written: {error.strerror or error}"
    return OutputError(what, where=str(folder), fix="free some space there, or set TMPDIR to a folder with more space")
