"""Save a model: weights stream one tensor at a time; a model and its data file appear together or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from dmlprep.core.errors import OutputError
from dmlprep.core.files.writing import Writer, plain_errors
from dmlprep.graph.model import protos
from dmlprep.graph.model.frozen import Frozen, freeze, stub_index
from dmlprep.graph.model.shared_data import SharedData
from dmlprep.graph.model.tensors import append_aligned, as_mapped, write_tensor
from dmlprep.graph.model.wire import varint

EXTERNAL_OVER = 1 << 30
"""Models with more tensor bytes than this get a data file: protobuf stops at 2 GiB, and some readers earlier."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Saved:
    """The result of saving: the model file and any data file, their size in bytes, and SHA-256 of the model file."""

    files: tuple[Path, ...]
    nbytes: int
    sha256: str


def write(
    model: ir.Model,
    target: Path,
    *,
    external_over: int = EXTERNAL_OVER,
    force: bool = False,
    progress: Progress | None = None,
    frozen: Frozen | None = None,
) -> Saved:
    """Write ``model`` to ``target``; if its tensors exceed ``external_over`` bytes, write them to ``target.data``.

    The folder is made if it is missing.

    Args:
        force: True to replace existing files. An old ``target.data`` without a successor is removed then.
        progress: called with the number of tensor bytes written since the last call.
        frozen: the frozen form of ``model``, if it exists; it saves time.

    Raises:
        OutputError: the target exists (without ``force``), is a folder or one of the model's own files, or cannot be
            written (disk full, no permission).
        InputError: a file of weights cannot be read, or has become shorter.
    """
    frozen = to_write(model, frozen)
    external = sum(t.nbytes for t in frozen.tensors) > external_over
    data_target = target.with_name(target.name + ".data")
    targets = [target, data_target] if external else [target]
    with plain_errors(target, {m.path for m in map(as_mapped, frozen.tensors) if m is not None}):
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
            # The data file of an earlier, larger model of the same name is removed with that model.
            writer.commit(gone=() if external or not force else (data_target.name,), force=force)
        return Saved(tuple(targets), sum(t.stat().st_size for t in targets), sha)


def to_write(model: ir.Model, frozen: Frozen | None = None) -> Frozen:
    """Return a frozen form to write, which the caller may change: only its initializers are references.

    ``frozen`` is the frozen form of ``model``, if it exists; it is copied.
    """
    if frozen is None:
        return freeze(model, attributes=False)
    whole = frozen.completed()
    return Frozen(protos.copy(whole.proto), whole.tensors)


def write_sharing(model: ir.Model, target: Path, shared: SharedData, *, progress: Progress | None = None) -> Saved:
    """Write ``model`` to ``target``, replacing it, and add its large tensors to a data file that other models share.

    The result is about the file ``target`` only, without the data file.

    Raises:
        OutputError: the disk is full, or the files cannot be written.
        InputError: a file of weights cannot be read, or has become shorter.
    """
    frozen = freeze(model, attributes=False)
    with plain_errors(target, {m.path for m in map(as_mapped, frozen.tensors) if m is not None}):
        if not shared.nbytes:
            _check_room(target, frozen)  # how much a later model shares is known only while it is written
        _refer(frozen, shared.path.name, shared.add([tensor for _, tensor in _stubs(frozen)], progress))
        payload = frozen.proto.SerializeToString()
        with Writer() as writer:
            writer.open(target).write(payload)
            writer.commit()
    return Saved((target,), len(payload), hashlib.sha256(payload).hexdigest())


def _check_room(target: Path, frozen: Frozen) -> None:
    needed = sum(t.nbytes for t in frozen.tensors) + frozen.proto.ByteSize()
    if shutil.disk_usage(target.parent).free < needed:
        what = f"the disk is full: {needed / 1e6:.1f} MB needed"
        raise OutputError(what, where=str(target), fix="free some space, or write elsewhere with -o")


def _check_targets(targets: list[Path], frozen: Frozen, force: bool) -> None:
    sources = {m.path.resolve() for m in map(as_mapped, frozen.tensors) if m is not None}
    for target in targets:
        if target.resolve() in sources:
            what = "this file belongs to the input model, which dmlprep never overwrites"
            raise OutputError(what, where=str(target), fix="choose another folder with -o")
        if target.is_dir():
            raise OutputError("this is a folder", where=str(target), fix="pass a file or a folder with -o")
        if target.exists() and not force:
            raise OutputError("the file exists", where=str(target), fix="pass --force to replace it")


def _data_file(frozen: Frozen, location: str, file: BinaryIO, progress: Progress | None) -> None:
    """Write all large tensors to the open data file, and let the proto refer to it by ``location``."""
    offsets: dict[int, int] = {}  # one copy for a tensor that several initializers share
    for _, tensor in _stubs(frozen):
        if id(tensor) not in offsets:
            offsets[id(tensor)] = append_aligned(tensor, file, progress)
    _refer(frozen, location, offsets)


def _refer(frozen: Frozen, location: str, offsets: Mapping[int, int]) -> None:
    """Let the proto's large initializers refer to a data file; ``offsets``: ``id`` of a tensor -> offset in bytes."""
    for proto, tensor in _stubs(frozen):
        protos.refer(proto, location, offsets[id(tensor)], tensor.nbytes)


def _stubs(frozen: Frozen) -> Iterator[tuple[onnx.TensorProto, ir.TensorProtocol]]:
    """Yield the initializers that are references to large tensors, with these tensors."""
    for graph in protos.graphs(frozen.proto):
        indices = ((t, stub_index(t)) for t in graph.initializer)
        yield from ((t, frozen.tensors[index]) for t, index in indices if index is not None)


def _clear_reference(stub: onnx.TensorProto) -> None:
    del stub.external_data[:]
    stub.ClearField("data_location")


def _tag(field: int, length: int) -> bytes:
    return varint(field << 3 | 2) + varint(length)


def _inline(frozen: Frozen, file: BinaryIO, progress: Progress | None) -> None:
    """Write the model with all tensors as one protobuf file, one initializer of the main graph after the other.

    ``frozen`` is changed and cannot be used afterwards.

    In protobuf, the fields of a message may be in any order, and a message field in several pieces. So the graph's
    other fields come first, then one initializer after another with its raw_data last.
    """
    proto = frozen.proto
    for stub, tensor in _stubs(frozen):
        if not any(stub is t for t in proto.graph.initializer):
            _clear_reference(stub)
            stub.raw_data = tensor.tobytes()
    heads: list[tuple[bytes, ir.TensorProtocol | None]] = []
    size = 0
    for stub in proto.graph.initializer:
        index = stub_index(stub)
        held = None if index is None else frozen.tensors[index]
        if held is not None:
            _clear_reference(stub)
        nbytes = held.nbytes if held is not None else 0
        head = stub.SerializeToString() + (_tag(9, nbytes) if held is not None else b"")
        head = _tag(5, len(head) + nbytes) + head
        heads.append((head, held))
        size += len(head) + nbytes
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
