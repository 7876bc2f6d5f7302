"""How much memory and processor time one load or run of a model may take: it follows from what the user handed over.

A node of some bytes can ask for gigabytes (ConstantOfShape, Expand) or for years (Loop). What an honest model holds and
computes grows with its files and its inputs: 256 bytes for each of their bytes is 64 channels of a picture in FP32. Of
tensors that a model makes of a number in it, no size is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["BYTES", "BYTES_PER_BYTE", "PROCESSORS", "SECONDS", "SECONDS_PER_MIB", "Allowance", "allowance"]

BYTES, BYTES_PER_BYTE = 1280 << 20, 256
"""Bytes that the worker of any model may hold, and as many more for each byte of the model's files and inputs. The
worker itself has some 70 MiB. ONNX Runtime holds the weights up to four times while it optimises a model."""

SECONDS, SECONDS_PER_MIB = 10.0, 20.0
"""Seconds of processor time for one load or run of any model, and as many more for each MiB of its files and inputs."""

PROCESSORS = 4
"""Processors that count at most: ONNX Runtime's threads spin on all of them while they wait for one another."""

_MIB = 1 << 20

_BY_SIZE = "by the size of the model and its inputs"


@dataclass(frozen=True)
class Allowance:
    """What one load or run may take.

    Attributes:
        nbytes: of private memory of the worker.
        seconds: of processor time, of at most ``PROCESSORS`` processors at once.
        why_bytes, why_seconds: what they follow from, for the error text.
    """

    nbytes: int
    seconds: float
    why_bytes: str = _BY_SIZE
    why_seconds: str = _BY_SIZE

    def out_of_memory(self, held: int) -> tuple[str, str]:
        """The rest of a sentence on who held more, and how to allow more."""
        most = f"the limit is {self.nbytes >> 20} MiB ({self.why_bytes})"
        fix = self._fix("run_bytes", _round(2 * held))
        return f"held {held >> 20} MiB, {most}, and was ended", fix

    def out_of_time(self, used: float) -> tuple[str, str]:
        """The same for processor time."""
        most = f"the limit is {self.seconds:.3g} s ({self.why_seconds})"
        fix = self._fix("run_seconds", _round(int(10 * self.seconds) + 1))
        return f"used {used:.3g} s of processor time, {most}, and was ended", fix

    @staticmethod
    def _fix(name: str, enough: int) -> str:
        return (
            f"raise the limit if you trust the model: dmlprep --limit {name}={enough} COMMAND, "
            f"or {name} in [limits] of a recipe"
        )


def allowance(nbytes: int, run_bytes: int | None = None, run_seconds: float | None = None) -> Allowance:
    """What follows from ``nbytes`` of model files and inputs, or what the user allows."""
    found = Allowance(BYTES + BYTES_PER_BYTE * nbytes, SECONDS + SECONDS_PER_MIB * nbytes / _MIB)
    if run_bytes is not None:
        found = replace(found, nbytes=run_bytes, why_bytes="run_bytes")
    if run_seconds is not None:
        found = replace(found, seconds=run_seconds, why_seconds="run_seconds")
    return found


def _round(count: int) -> int:
    """A number of two digits and zeros that is at least ``count``."""
    step: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // step) * step
