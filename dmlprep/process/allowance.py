"""How much memory and processor time one load or run of a model may take: it follows from what the user handed over.

A node of some bytes can ask for gigabytes (ConstantOfShape, Expand) or for years (Loop). What an honest model holds and
computes grows with its files and its inputs: 256 bytes for each of their bytes is 64 channels of a picture in FP32. Of
tensors that a model makes of a number in it, no size is believed.
"""

from __future__ import annotations

import msgspec

from dmlprep.process.ending import Ending

BYTES, BYTES_PER_BYTE = 1280 << 20, 256
"""Bytes that the worker of any model may hold, and as many more for each byte of the model's files and inputs. The
worker itself has some 70 MiB. ONNX Runtime holds the weights up to four times while it optimises a model."""

SECONDS, SECONDS_PER_MIB = 10.0, 20.0
"""Seconds of processor time for one load or run of any model, and as many more for each MiB of its files and inputs."""

PROCESSORS = 4
"""Processors that count at most: ONNX Runtime's threads spin on all of them while they wait for one another."""

_MIB = 1 << 20

_BY_SIZE = "by the size of the model and its inputs"


class Allowance(msgspec.Struct, frozen=True):
    """Bytes of private memory of the worker, and seconds of processor time, that one load or run may take.

    At most ``PROCESSORS`` processors count at once. ``why_bytes`` and ``why_seconds`` are for the error text.
    """

    nbytes: int
    seconds: float
    why_bytes: str = _BY_SIZE
    why_seconds: str = _BY_SIZE

    def over(self, held: int, used: float) -> Ending | None:
        """Return the limit that a process is over which holds so many bytes and has used so many seconds."""
        if held > self.nbytes:
            fix = _fix("run_bytes", 2 * held)
            return Ending("memory", limit=self.nbytes, used=held, why=self.why_bytes, fix=fix)
        if used > self.seconds:
            fix = _fix("run_seconds", int(10 * self.seconds) + 1)
            return Ending("processor", limit=self.seconds, used=used, why=self.why_seconds, fix=fix)
        return None


def allowance(nbytes: int, run_bytes: int | None = None, run_seconds: float | None = None) -> Allowance:
    """What follows from ``nbytes`` of model files and inputs, or what the user allows."""
    return Allowance(
        BYTES + BYTES_PER_BYTE * nbytes if run_bytes is None else run_bytes,
        SECONDS + SECONDS_PER_MIB * nbytes / _MIB if run_seconds is None else run_seconds,
        _BY_SIZE if run_bytes is None else "run_bytes",
        _BY_SIZE if run_seconds is None else "run_seconds",
    )


def _fix(name: str, least: int) -> str:
    """How to raise a limit, to a number of two digits and zeros."""
    step = 10 ** max(0, len(str(least)) - 2)
    limit = f"{name}={-(-least // step) * step}"
    return f"raise the limit if you trust the model: dmlprep --limit {limit} COMMAND, or {name} in [limits] of a recipe"
