"""Save a model: weights stream one tensor at a time, files appear whole or not at all, a model with its data file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
import onnx_ir as ir

from dmlprep.errors import OutputError
from dmlprep.files import FileSet, remove, replace, unreadable, unwritable
from dmlprep.files.run_folder import noted, run_name
from dmlprep.model import protos
from dmlprep.model.frozen import Frozen, freeze, stub_index
from dmlprep.model.tensors import as_mapped, write_to
from dmlprep.model.wire import varint

__all__ = ["EXTERNAL_OVER", "Saved", "Writer", "append_aligned", "write", "write_file"]

EXTERNAL_OVER = 1 << 30
"""Models with more tensor bytes than this get a data file: protobuf stops at 2 GiB, and some readers earlier."""

_ALIGN_BIG, _ALIGN_SMALL, _BIG = 4096, 64, 1 << 20

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Saved:
    """What was written.

    Attributes:
        files: the model file, and its data file where there is one.
        nbytes: of all files.
        sha256: of the model file (its data file is not read again).
    """

    files: tuple[Path, ...]
    nbytes: int
    sha256: str


class Writer:
    """Write files beside their targets, then rename them all: ``with Writer() as w: w.open(path) ...; w.commit()``.

    Leaving without ``commit``, by any exception or Ctrl-C, removes what was begun. Several files are of one folder,
    and are replaced as one (``files.exchange``); the last one begun is their head.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Path, Path, BinaryIO]] = []
        self._begun = contextlib.ExitStack()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for temporary, _target, file in self._open:
            with contextlib.suppress(OSError):  # closing writes what is buffered, for which a full disk has no room
                file.close()
            with contextlib.suppress(OSError):
                remove(temporary)
        self._open.clear()
        self._begun.__exit__(kind, error, trace)

    def open(self, target: Path) -> BinaryIO:
        """Begin a file that will become ``target``."""
        # Short, whatever the target's name: there are limits on names and paths.
        digest = hashlib.sha256(target.name.encode("utf-8", "replace")).hexdigest()
        temporary = target.with_name(f".dmlprep-{run_name()}-{digest[:8]}.part")
        self._begun.enter_context(noted("staging", folder=os.path.abspath(target.parent), made=[]))
        file = open(temporary, "xb")  # noqa: SIM115 - closed in commit or __exit__
        self._open.append((temporary, target, file))
        return file

    def commit(self, gone: Collection[str] = ()) -> None:
        """Rename every file to its target.

        Args:
            gone: names of files beside the last target that belong to what it replaces, and go.

        Raises:
            OutputError: a file cannot be replaced; where there are several, all old ones are as before.
        """
        for _, _, file in self._open:
            file.close()
        if not self._open:
            return
        head = self._open[-1][1]
        new = {target.name: temporary for temporary, target, _ in self._open}
        others = tuple(name for name in (*new, *gone) if name != head.name)
        if others:
            FileSet(head.parent, head.name, others).exchange(new)
        else:
            with _plain_errors(head):
                replace(new[head.name], head)
        self._open.clear()


@contextlib.contextmanager
def _plain_errors(target: Path, sources: Collection[Path] = ()) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is not None and Path(error.filename) in sources:
            raise unreadable(error, Path(error.filename)) from error
        raise unwritable(error, target) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a small file, whole or not at all; what is there is replaced.

    Raises:
        OutputError: the path cannot be written.
    """
    with _plain_errors(path), Writer() as writer:
        writer.open(path).write(content)
        writer.commit()


def write(
    model: ir.Model,
    target: Path,
    *,
    external_over: int = EXTERNAL_OVER,
    force: bool = False,
    progress: Progress | None = None,
) -> Saved:
    """Write ``model`` to ``target``, with ``target.data`` beside it when its tensors exceed ``external_over`` bytes.

    Args:
        force: replace files that are there.
        progress: called with the number of tensor bytes written since the last call.

    Raises:
        OutputError: the target exists, is one of the model's own files, or the disk is full.
    """
    frozen = freeze(model, attributes=False)
    external = sum(t.nbytes for t in frozen.tensors) > external_over
    data_target = target.with_name(target.name + ".data")
    targets = [target, data_target] if external else [target]
    with _plain_errors(target, {m.path for m in map(as_mapped, frozen.tensors) if m is not None}):
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_targets(targets, frozen, force)
        needed = sum(t.nbytes for t in frozen.tensors) + frozen.proto.ByteSize()
        if shutil.disk_usage(target.parent).free < needed:
            raise OutputError(
                f"the disk is full: {needed / 1e6:.1f} MB are needed",
                where=str(target),
                fix="free some space, or write elsewhere with -o",
            )
        with Writer() as writer:
            if external:
                _data_file(frozen, data_target.name, writer.open(data_target), progress)
                payload = frozen.proto.SerializeToString()
                writer.open(target).write(payload)
                sha = hashlib.sha256(payload).hexdigest()
            else:
                file = writer.open(target)
                _inline(frozen, file, progress)
                file.flush()
                with open(file.name, "rb") as again:
                    sha = hashlib.file_digest(again, "sha256").hexdigest()
            # The data file of an earlier, larger model of the same name goes with that model.
            writer.commit(gone=() if external or not force else (data_target.name,))
        return Saved(tuple(targets), sum(t.stat().st_size for t in targets), sha)


def _check_targets(targets: list[Path], frozen: Frozen, force: bool) -> None:
    sources = {m.path.resolve() for m in map(as_mapped, frozen.tensors) if m is not None}
    for target in targets:
        if target.resolve() in sources:
            raise OutputError(
                "this is a file of the input model, and input is never overwritten",
                where=str(target),
                fix="choose another folder with -o",
            )
        if target.is_dir():
            raise OutputError("this is a directory", where=str(target), fix="name a file, or a folder with -o")
        if target.exists() and not force:
            raise OutputError("the file exists", where=str(target), fix="pass --force to replace it")


def _write_tensor(tensor: ir.TensorProtocol, file: BinaryIO, progress: Progress | None) -> None:
    before = file.tell()
    write_to(tensor, file)
    file.flush()
    # copy_file_range moves the descriptor behind the buffer's back: ask the descriptor where it is
    file.seek(os.lseek(file.fileno(), 0, os.SEEK_CUR))
    if file.tell() - before != tensor.nbytes:
        raise OSError(f"tensor {tensor.name!r} wrote {file.tell() - before} bytes instead of {tensor.nbytes}")
    if progress:
        progress(tensor.nbytes)


def append_aligned(tensor: ir.TensorProtocol, file: BinaryIO, progress: Progress | None = None) -> int:
    """Append a tensor at an aligned offset, by which ONNX Runtime can map it; returns the offset in bytes."""
    file.write(b"\0" * (-file.tell() % (_ALIGN_BIG if tensor.nbytes >= _BIG else _ALIGN_SMALL)))
    offset = file.tell()
    _write_tensor(tensor, file, progress)
    return offset


def _data_file(frozen: Frozen, location: str, file: BinaryIO, progress: Progress | None) -> None:
    """Write all tensors to the data file and point the proto at it."""
    offsets: dict[int, int] = {}  # one copy for a tensor that several initializers share
    for proto in _stubs(frozen.proto):
        tensor = frozen.tensors[stub_index(proto) or 0]
        if id(tensor) not in offsets:
            offsets[id(tensor)] = append_aligned(tensor, file, progress)
        del proto.external_data[:]
        for key, value in (("location", location), ("offset", offsets[id(tensor)]), ("length", tensor.nbytes)):
            proto.external_data.add(key=key, value=str(value))


def _stubs(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in protos.graphs(proto):
        yield from (t for t in graph.initializer if stub_index(t) is not None)


def _tag(field: int, length: int) -> bytes:
    return varint(field << 3 | 2) + varint(length)


def _inline(frozen: Frozen, file: BinaryIO, progress: Progress | None) -> None:
    """Write one protobuf file, streaming the main graph's initializers into it.

    Protobuf lets the fields of a message stand in any order, and a message field in several pieces: the graph's own
    fields come first, then one initializer after another with its raw_data last.
    """
    proto = frozen.proto
    for stub in _stubs(proto):
        index = stub_index(stub)
        if index is not None and not any(stub is t for t in proto.graph.initializer):
            del stub.external_data[:]
            stub.ClearField("data_location")
            stub.raw_data = frozen.tensors[index].tobytes()
    heads: list[tuple[bytes, ir.TensorProtocol | None]] = []
    size = 0
    for tensor in proto.graph.initializer:
        index = stub_index(tensor)
        held = None if index is None else frozen.tensors[index]
        if held is not None:
            del tensor.external_data[:]
            tensor.ClearField("data_location")
        head = tensor.SerializeToString()
        length = len(head)
        if held is not None:
            raw = _tag(9, held.nbytes)
            head += raw
            length += len(raw) + held.nbytes
        head = _tag(5, length) + head
        heads.append((head, held))
        size += len(head) + (held.nbytes if held is not None else 0)
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    file.write(proto.SerializeToString())
    file.write(_tag(7, len(graph) + size))
    file.write(graph)
    for head, held in heads:
        file.write(head)
        if held is not None:
            _write_tensor(held, file, progress)
