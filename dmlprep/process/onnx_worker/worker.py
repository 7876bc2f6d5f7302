"""The worker process for onnx: it loads only onnx's extension module, without onnx's Python code, and runs as a file.

    python -I -S worker.py LIBRARY FOLDER

Besides ``process/confinement.py``, it imports no module of dmlprep, onnx, numpy or protobuf. So it is ready after some
55 ms. A request is its limits (``BOUNDS``) and a frame: the number of its parts, their lengths in bytes, and their
bytes. The first part is a word of ``WORK``. The answer is a frame: ``ok`` and the result, ``no`` and onnx's message, or
``memory``.
"""

from __future__ import annotations

import os
import struct
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

TYPE_CHECKING = False  # importing typing takes as long as starting Python
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO, Any

BOUNDS = struct.Struct("<QQ")
"""The limits of a request in its binary form: CPU seconds, and bytes of memory."""

_NUMBER = struct.Struct("<Q")
_LOG = 1 << 24
"""Limit for the size of native code's output, in bytes; a model can trigger such output."""

_TEXT = 20_000
"""Limit for the length of onnx's message, in characters; it may quote any text of the model."""


class TooLarge(Exception):
    """A frame is larger than its reader accepts."""


def read_frame(pipe: IO[bytes], most: int | None = None) -> list[bytes]:
    """Return the parts of the next frame, up to ``most`` bytes in total; empty if the pipe is closed.

    Raises:
        EOFError: the pipe is closed within a frame.
        TooLarge: the frame is larger than ``most``.
    """
    head = pipe.read(_NUMBER.size)
    if not head:
        return []
    (count,) = _NUMBER.unpack(_whole(head, _NUMBER.size))
    if most is not None and count > most:
        raise TooLarge
    lengths = struct.unpack(f"<{count}Q", _whole(pipe.read(8 * count), 8 * count))
    if most is not None and sum(lengths) > most:
        raise TooLarge
    return [_whole(pipe.read(length), length) for length in lengths]


def _whole(data: bytes, length: int) -> bytes:
    if len(data) < length:
        raise EOFError
    return data


def write_frame(pipe: IO[bytes], parts: Sequence[bytes], head: bytes = b"") -> None:
    """Write a frame, with ``head`` before it."""
    pipe.writelines([head, struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)), *parts])
    pipe.flush()


def _check(core: Any, model: bytes) -> list[bytes]:
    core.checker.check_model(model, False, False, False)
    return []


def _infer(core: Any, model: bytes, check_type: bytes, strict: bytes, propagate: bytes) -> list[bytes]:
    return [core.shape_inference.infer_shapes(model, check_type == b"1", strict == b"1", propagate == b"1")]


def _convert(core: Any, model: bytes, version: bytes) -> list[bytes]:
    return [core.version_converter.convert_version(model, int(version))]


def _inline(core: Any, model: bytes, *names: bytes) -> list[bytes]:
    texts = [name.decode() for name in names]
    return [core.inliner.inline_selected_functions(model, list(zip(texts[::2], texts[1::2], strict=True)), False)]


def _node(
    core: Any,
    domain: bytes,
    op_type: bytes,
    since: bytes,
    imported: bytes,
    ir_version: bytes,
    node: bytes,
    types: bytes,
    *named: bytes,
) -> list[bytes]:
    schema = core.defs.get_schema(op_type.decode(), int(since), domain.decode())
    pairs = [(name.decode(), value) for name, value in zip(named[::2], named[1::2], strict=True)]
    values = (dict(pairs[: int(types)]), dict(pairs[int(types) :]))
    inferred = schema._infer_node_outputs(node, *values, {}, {domain.decode(): int(imported)}, int(ir_version))
    return [part for name, value in inferred.items() for part in (name.encode(), value)]


def _body(
    core: Any, domain: bytes, op_type: bytes, since: bytes, version: bytes, node: bytes, *types: bytes
) -> list[bytes]:
    schema = core.defs.get_schema(op_type.decode(), int(since), domain.decode())
    return [schema.get_context_dependent_function_with_opset_version(int(version), node, list(types))]


WORK: dict[str, Callable[..., list[bytes]]] = {
    "check": _check,
    "infer": _infer,
    "convert": _convert,
    "inline": _inline,
    "node": _node,
    "body": _body,
}
"""For each word, a function that calls the extension module with the other parts of the request."""


def _load(library: str, folder: str) -> Any:
    """Return onnx's extension module, if possible without importing its package."""
    if library:
        loader = ExtensionFileLoader("onnx.onnx_cpp2py_export", library)
        try:
            module = loader.create_module(ModuleSpec(loader.name, loader, origin=library))
            loader.exec_module(module)
            return module
        except ImportError:
            sys.modules.pop(loader.name, None)
    sys.path.append(folder)
    import onnx.onnx_cpp2py_export as module_of_package

    return module_of_package


def _confined() -> Callable[[int, int], None]:
    """Restrict this process to its memory, its pipes, and a log of limited size: a request needs no more.

    The returned function sets the limits of a request: CPU seconds from its call, and bytes above the use at the call
    of ``_confined``. On systems other than Linux, both do nothing.
    """
    if not sys.platform.startswith("linux"):
        return lambda _seconds, _memory: None
    import resource

    package = ModuleType("dmlprep")  # without the imports in its __init__.py
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
    sys.modules["dmlprep"] = package
    from dmlprep.process.confinement import bounding, confine, limit

    limit_memory = bounding()
    limit(resource.RLIMIT_FSIZE, _LOG)
    confine()

    def bound(seconds: int, memory: int) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # The parent ends it earlier. This limit is for a stopped parent.
        limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + seconds + 2)
        limit_memory(memory)

    return bound


def _error_answer(error: Exception) -> list[bytes]:
    text = error.object.decode(errors="replace") if isinstance(error, UnicodeDecodeError) else str(error)
    return [b"no", (text[:_TEXT] or type(error).__name__).encode(errors="replace")]


def _main(library: str, folder: str) -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of native code is not an answer
    core = _load(library, folder)
    core.defs.get_schema("Identity", 1, "")  # registers all operators
    bound = _confined()
    write_frame(answers, [b"ready"])
    while bounds := requests.read(BOUNDS.size):
        bound(*BOUNDS.unpack(bounds))
        try:
            word, *parts = read_frame(requests)
            answer = [b"ok", *WORK[word.decode()](core, *parts)]
        except MemoryError:
            answer = [b"memory"]
        except Exception as error:
            answer = _error_answer(error)
        write_frame(answers, answer)


if __name__ == "__main__":
    _main(*sys.argv[1:])
    os._exit(0)
