"""onnxsim 0.8, in a child process: a crash or a hang of it is a sentence, not the end of dmlprep.

Only ``onnxsim.simplify`` is used. The model goes over by file, without its weights (``passes/simplify.py`` takes them
out before).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from dmlprep.errors import ModelRefused

__all__ = ["SKIPPED", "simplify"]

SKIPPED = ("fuse_bn_into_conv", "eliminate_duplicate_initializer")
"""Left out: folding a BatchNormalization rounds weights anew (ONNX Runtime does it at load), and merging equal
initializers makes names vanish that later steps report by."""

_NO_WINDOW = 0x08000000 if sys.platform == "win32" else 0  # CREATE_NO_WINDOW
_NO_DIALOG = 0x8003  # SetErrorMode: a crash ends the process and shows no dialog

_LAST_LINES = 2000  # characters of the child's stderr that may stand in a message


def simplify(
    proto: onnx.ModelProto, *, time_limit: float = 600.0, constant_bytes: int = 1 << 20, merge_equal: bool = True
) -> onnx.ModelProto:
    """Simplify a model.

    Args:
        proto: under 2 GiB; initializers that are to keep their exact values stand as inputs.
        time_limit: seconds.
        constant_bytes: no node is folded into a constant larger than this.
        merge_equal: whether nodes that look equal become one; wrong for nodes that draw random numbers.

    Returns:
        the simplified model; nothing about its validity is promised.

    Raises:
        ModelRefused: DP301, the simplifier failed, crashed or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="dmlprep-") as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(proto.SerializeToString())
        # -P: modules of the working directory are not imported.
        command = [sys.executable, "-P", "-m", "dmlprep.engines.onnxsim", str(before), str(after), str(constant_bytes)]
        command += SKIPPED if merge_equal else (*SKIPPED, "eliminate_common_subexpression")
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=time_limit,
                check=False,
                cwd=folder,
                creationflags=_NO_WINDOW,
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(f"onnxsim took more than {time_limit:g} seconds") from error
        if done.returncode != 0 or not after.exists():
            raise _failed(_reason(done.returncode, done.stderr))
        result = onnx.ModelProto()
        result.ParseFromString(after.read_bytes())
        return result


def _failed(what: str) -> ModelRefused:
    return ModelRefused(what, where="onnxsim", code="DP301", fix="leave the step out, or give it more time")


def _reason(code: int, stderr: bytes) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else str(-code)
        return f"onnxsim crashed ({name})"
    if code > 255:
        return f"onnxsim crashed (exit code 0x{code:08x})"
    lines = [line.strip() for line in stderr.decode(errors="replace")[-_LAST_LINES:].splitlines() if line.strip()]
    return f"onnxsim failed: {lines[-1]}" if lines else f"onnxsim failed with exit code {code}"


def _child(before: str, after: str, constant_bytes: str, *skipped: str) -> None:
    if sys.platform == "win32":
        ctypes.WinDLL("kernel32").SetErrorMode(_NO_DIALOG)
    import onnxsim

    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        result, _ = onnxsim.simplify(
            onnx.load(before),
            check_n=0,
            skipped_optimizers=list(skipped),
            tensor_size_threshold=f"{constant_bytes}B",
            mutable_initializer=True,
            certify=False,
            import_custom_schemas=False,
        )
    Path(after).write_bytes(result.SerializeToString())


if __name__ == "__main__":
    _child(*sys.argv[1:])
