"""Save a model: weights stream one tensor at a time, files appear whole or not at all, a model with its data file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
import onnx_ir as ir

from dmlprep.errors import OutputError
from dmlprep.files import FileSet, remove, replace, unreadable, unwritable
from dmlprep.files.replacing import rename_new
from dmlprep.files.run_folder import noted, run_name
from dmlprep.model import protos
from dmlprep.model.frozen import Frozen, freeze, stub_index
from dmlprep.model.shared_data import SharedData
from dmlprep.model.tensors import append_aligned, as_mapped, write_tensor
from dmlprep.model.wire import varint

__all__ = ["EXTERNAL_OVER", "Saved", "Writer", "write", "write_file", "write_sharing"]

EXTERNAL_OVER = 1 << 30
"""Models with more tensor bytes than this get a data file: protobuf stops at 2 GiB, and some readers earlier."""

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

    def commit(self, gone: Collection[str] = (), *, force: bool = True) -> None:
        """Rename every file to its target.

        Args:
            gone: names of files beside the last target that belong to what it replaces, and go.
            force: whether files that are there may be replaced; also one that appeared since the command looked.

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
            FileSet(head.parent, head.name, others).exchange(new, force=force)
        else:
            with _plain_errors(head):
                (replace if force else rename_new)(new[head.name], head)
        self._open.clear()


@contextlib.contextmanager
def _plain_errors(target: Path, sources: Collection[Path] = ()) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise OutputError("the file exists", where=str(target), fix="pass --force to replace it") from error
    except OSError as error:
        if error.filename is not None and Path(error.filename) in sources:
            raise unreadable(error, Path(error.filename)) from error
        raise unwritable(error, target) from error


def write_file(path: Path, content: bytes, *, force: bool = True) -> None:
    """Write a small file, whole or not at all.

    Args:
        force: replace what is there.

    Raises:
        OutputError: the path cannot be written.
    """
    with _plain_errors(path), Writer() as writer:
        writer.open(path).write(content)
        writer.commit(force=force)


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
        _check_room(target, frozen)
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
            writer.commit(gone=() if external or not force else (data_target.name,), force=force)
        return Saved(tuple(targets), sum(t.stat().st_size for t in targets), sha)


def write_sharing(model: ir.Model, target: Path, shared: SharedData, *, progress: Progress | None = None) -> Saved:
    """Write ``model`` to ``target``, its tensors into a data file beside it that other models have too.

    Args:
        shared: the file; it gets what it does not have.
        progress: as in ``write``.

    Raises:
        OutputError: the disk is full, or the files cannot be written.
    """
    frozen = freeze(model, attributes=False)
    with _plain_errors(target, {m.path for m in map(as_mapped, frozen.tensors) if m is not None}):
        if not shared.nbytes:
            _check_room(target, frozen)  # how much of a later model is there already shows while it is written
        used = [frozen.tensors[stub_index(proto) or 0] for proto in _stubs(frozen.proto)]
        _refer(frozen, shared.path.name, shared.add(used, progress))
        payload = frozen.proto.SerializeToString()
        with Writer() as writer:
            writer.open(target).write(payload)
            writer.commit()
    return Saved((target,), len(payload), hashlib.sha256(payload).hexdigest())


def _check_room(target: Path, frozen: Frozen) -> None:
    needed = sum(t.nbytes for t in frozen.tensors) + frozen.proto.ByteSize()
    if shutil.disk_usage(target.parent).free < needed:
        raise OutputError(
            f"the disk is full: {needed / 1e6:.1f} MB are needed",
            where=str(target),
            fix="free some space, or write elsewhere with -o",
        )


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


def _data_file(frozen: Frozen, location: str, file: BinaryIO, progress: Progress | None) -> None:
    """Write all tensors to the data file and point the proto at it."""
    offsets: dict[int, int] = {}  # one copy for a tensor that several initializers share
    for proto in _stubs(frozen.proto):
        tensor = frozen.tensors[stub_index(proto) or 0]
        if id(tensor) not in offsets:
            offsets[id(tensor)] = append_aligned(tensor, file, progress)
    _refer(frozen, location, offsets)


def _refer(frozen: Frozen, location: str, offsets: Mapping[int, int]) -> None:
    """Point the proto's initializers at a data file."""
    for proto in _stubs(frozen.proto):
        tensor = frozen.tensors[stub_index(proto) or 0]
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
            write_tensor(held, file, progress)
