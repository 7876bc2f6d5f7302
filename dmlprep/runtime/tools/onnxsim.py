"""onnxsim 0.8, in a child process: a crash, a hang or a hunger for memory of it is a sentence, not the end of dmlprep.

The process is ``onnxsim_process.py``. The model goes over by file, without its weights (``passes/simplify.py`` takes
them out before). The process is kept for the next call, for as long as that may be soon.
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
"""Left out: folding a BatchNormalization rounds weights anew (ONNX Runtime does it at load), merging equal initializers
makes names vanish that later steps report by, and DirectML has no kernel for the operators of ai.onnx that the others
make (Gelu, Attention, RMSNormalization, RotaryEmbedding)."""

MEMORY, MEMORY_A_BYTE = 1 << 30, 256
"""Bytes of memory that it may hold, and more for each byte of the model, which has no weights. It takes 40 MB by
itself, 90 MB where it runs nodes on ONNX Runtime; a graph of 20,000 nodes takes 110 bytes a byte. What needs more folds
constants that grow without end."""

_LARGE = 32 << 20
"""Bytes of a model after which the process ends: it does not give its memory back."""

_process = KeptChild("onnxsim_process.py", "onnxsim")


def _run(model: bytes, arguments: Sequence[str], time_limit: float) -> bytes:
    """Give a serialized model and get another. After a ``SessionFailure`` the process is gone."""
    with _process.used() as child:
        before, after = child.exchange / "before.onnx", child.exchange / "after.onnx"
        hand_over(before, model)
        memory = min(MEMORY + MEMORY_A_BYTE * len(model), allowed_memory().nbytes)  # 0: the user wants no limit
        child.ask([["simplify", str(before), str(after), *arguments]], limit=time_limit, memory=memory)
        result = after.read_bytes()
        if len(model) + len(result) > _LARGE:
            child.close()
        else:
            with contextlib.suppress(OSError):  # on Windows a scanner may look at them; they go with the folder
                before.unlink()
                after.unlink()
        return result


def simplify(
    proto: onnx.ModelProto, *, time_limit: float = 600.0, constant_bytes: int = 1 << 20, merge_equal: bool = True
) -> onnx.ModelProto:
    """Simplify a model under 2 GiB; nothing about the validity of the result is promised.

    Initializers that are to keep their exact values stand as inputs. No node is folded into a constant larger than
    ``constant_bytes``. ``merge_equal``: nodes that look equal become one; wrong for nodes that draw random numbers.

    Raises:
        ModelRefused: DP301, the simplifier failed, crashed or took too long.
    """
    skipped = SKIPPED if merge_equal else (*SKIPPED, "eliminate_common_subexpression")
    result = onnx.ModelProto()
    try:
        result.ParseFromString(_run(proto.SerializeToString(), [str(constant_bytes), *skipped], time_limit))
        check_bounds(result, "its result")  # folding makes tensors that the file did not have
    except SessionFailure as failed:
        prefix = "" if failed.kind in ("timeout", "hang", "crash", "memory") else "onnxsim failed: "
        more = "" if failed.kind == "memory" else ", or raise its time limit"
        raise _refused(f"{prefix}{failed.message}", more) from failed
    except (DecodeError, OSError) as error:
        raise _refused(f"onnxsim returned no model: {error}") from error
    except (InputError, ModelRefused) as error:
        raise _refused(f"onnxsim returned a model beyond the limits: {error.where}: {error.what}") from error
    return result


def end() -> None:
    """End the process that is kept, where there is one; the next call starts another."""
    _process.end()


def _refused(what: str, more: str = ", or raise its time limit") -> ModelRefused:
    return ModelRefused(what, where="onnxsim", code="DP301", fix=f"remove the step{more}")
