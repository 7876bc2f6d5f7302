"""Limits of memory and CPU time for one load or run of a model, by the size of its files and inputs.

A node of a few bytes can request gigabytes (ConstantOfShape, Expand) or years (Loop). The needs of an ordinary model
grow with its files and inputs. 256 bytes for each of their bytes is enough for 64 channels of a picture in FP32. A size
that is only a number in the model does not raise the limit.
"""

from __future__ import annotations

import msgspec

from dmlprep.process.ending import Ending

BYTES, BYTES_PER_BYTE = 1280 << 20, 256
"""The memory limit of a worker in bytes is a sum: the first number, and the second one for each byte of the model's
files and inputs. The worker itself has some 70 MiB. ONNX Runtime holds the weights up to four times while it
optimises a model."""

SECONDS, SECONDS_PER_MIB = 10.0, 20.0
"""The limit of one load or run in CPU seconds is a sum: the first number, and the second one for each MiB of the
model's files and inputs."""

PROCESSORS = 4
"""Number of processors whose time counts: CPU seconds count up to this multiple of the clock time. ONNX Runtime's
threads spin on all processors while they wait for each other."""

_MIB = 1 << 20

_BY_SIZE = "by the size of the model and its inputs"


class Allowance(msgspec.Struct, frozen=True):
    """Limits of one load or run of a model: private memory of the worker in bytes, and CPU seconds.

    CPU time counts up to ``PROCESSORS`` times the clock time. ``why_bytes`` and ``why_seconds`` name the source of each
    limit in error texts.
    """

    nbytes: int
    seconds: float
    why_bytes: str = _BY_SIZE
    why_seconds: str = _BY_SIZE

    def over(self, held: int, used: float) -> Ending | None:
        """Return the exceeded limit, as the ending that it causes, or ``None`` if the process is within both limits.

        Args:
            held: private memory of the process in bytes.
            used: CPU seconds that the process has used.
        """
        if held > self.nbytes:
            fix = _fix("run_bytes", 2 * held)
            return Ending("memory", limit=self.nbytes, used=held, why=self.why_bytes, fix=fix)
        if used > self.seconds:
            fix = _fix("run_seconds", int(10 * self.seconds) + 1)
            return Ending("processor", limit=self.seconds, used=used, why=self.why_seconds, fix=fix)
        return None


def allowance(nbytes: int, run_bytes: int | None = None, run_seconds: float | None = None) -> Allowance:
    """Return the limits for a model whose files and inputs have ``nbytes`` bytes in total.

    A limit that the user set, ``run_bytes`` or ``run_seconds``, replaces the computed one.
    """
    return Allowance(
        BYTES + BYTES_PER_BYTE * nbytes if run_bytes is None else run_bytes,
        SECONDS + SECONDS_PER_MIB * nbytes / _MIB if run_seconds is None else run_seconds,
        _BY_SIZE if run_bytes is None else "run_bytes",
        _BY_SIZE if run_seconds is None else "run_seconds",
    )


def _fix(name: str, least: int) -> str:
    """Return the text that says how to raise a limit to ``least``, rounded up to two digits and zeros."""
    step = 10 ** max(0, len(str(least)) - 2)
    limit = f"{name}={-(-least // step) * step}"
    return f"raise the limit if you trust the model: dmlprep --limit {limit} COMMAND, or {name} in [limits] of a recipe"
