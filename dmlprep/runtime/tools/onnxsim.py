"""Run onnxsim 0.8 in a child process: a crash, a hang or an out-of-memory error becomes an error message.

The process is ``onnxsim_process.py``. The model is passed as a file, without its weights (``passes/simplify.py``
removes them before). The process is kept for a while for the next call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import onnx
from google.protobuf.message import DecodeError

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model.bounds import check_bounds
from dmlprep.process.failure import SessionFailure
from dmlprep.process.starting import allowed_memory
from dmlprep.runtime.tools.kept_child import KeptChild, hand_over

SKIPPED = (
    *("fuse_bn_into_conv", "eliminate_duplicate_initializer"),
    *("fuse_gelu", "fuse_attention", "fuse_gqa", "fuse_rms_norm", "fuse_rope"),
)
"""Optimizers that are skipped. Folding a BatchNormalization rounds weights again (ONNX Runtime folds it at load).
Merging equal initializers removes names that later steps report. The others create operators of ai.onnx without a
DirectML kernel (Gelu, Attention, RMSNormalization, RotaryEmbedding)."""

MEMORY, MEMORY_A_BYTE = 1 << 30, 256
"""Memory limit in bytes: a fixed part, and a part for each byte of the model, which has no weights. The process
needs 40 MB, or 90 MB if it runs nodes in ONNX Runtime. A graph of 20,000 nodes needs 110 bytes for each of its
bytes. A model that needs more folds constants without end."""

_LARGE = 32 << 20
"""Size in bytes of a model with its result above which the process ends after the call, because it does not free
memory."""

_process = KeptChild("onnxsim_process.py", "onnxsim")


def _run(model: bytes, arguments: Sequence[str], time_limit: float) -> bytes:
    """Return the simplified form of a serialized model, as bytes. After a ``SessionFailure`` the process has ended.

    ``arguments``: the size limit of a folded constant in bytes, then the optimizers to skip.
    """
    with _process.used() as child:
        before, after = child.exchange / "before.onnx", child.exchange / "after.onnx"
        hand_over(before, model)
        memory = min(MEMORY + MEMORY_A_BYTE * len(model), allowed_memory().nbytes)  # 0: the user set no limit
        child.ask([["simplify", str(before), str(after), *arguments]], limit=time_limit, memory=memory)
        result = after.read_bytes()
        if len(model) + len(result) > _LARGE:
            child.close()
        else:
            with contextlib.suppress(OSError):  # on Windows a scanner may have them open; they go with the folder
                before.unlink()
                after.unlink()
        return result


def simplify(
    proto: onnx.ModelProto,
    *,
    time_limit: float = 600.0,
    constant_bytes: int = 1 << 20,
    merge_equal: bool = True,
    drop_dead: bool = True,
) -> onnx.ModelProto:
    """Return a simplified copy of a model under 2 GiB. The result might be invalid: the caller must check it.

    Initializers that must keep their exact values are inputs of ``proto``.

    Args:
        time_limit: in seconds.
        constant_bytes: limit for the size of a constant that a node is folded into.
        merge_equal: merge nodes that look equal, which is wrong for nodes that draw random numbers.
        drop_dead: remove unused nodes.

    Raises:
        ModelRefused: DP301, the simplifier failed, crashed, exceeded its time or memory, or returned no valid model.
        OutputError: the disk with the temporary files is full.
    """
    skipped = SKIPPED if merge_equal else (*SKIPPED, "eliminate_common_subexpression")
    skipped = skipped if drop_dead else (*skipped, "eliminate_deadend")
    result = onnx.ModelProto()
    try:
        result.ParseFromString(_run(proto.SerializeToString(), [str(constant_bytes), *skipped], time_limit))
        check_bounds(result, "its result")  # folding creates tensors that the file did not have
    except SessionFailure as failed:
        prefix = "" if failed.kind in ("timeout", "hang", "crash", "memory") else "onnxsim failed: "
        more = ", or raise its time limit" if failed.kind in ("timeout", "hang") else ""
        raise _refused(f"{prefix}{failed.message}", more) from failed
    except (DecodeError, OSError) as error:
        raise _refused(f"onnxsim returned no model: {error}") from error
    except (InputError, ModelRefused) as error:
        raise _refused(f"onnxsim returned a model beyond the limits: {error.where}: {error.what}") from error
    return result


def end() -> None:
    """End the process that is kept, if there is one; the next call starts another."""
    _process.end()


def _refused(what: str, more: str = "") -> ModelRefused:
    return ModelRefused(what, where="onnxsim", code="DP301", fix=f"remove the step{more}")
