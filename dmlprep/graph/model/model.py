"""The model: a file, its graph in memory (onnx-ir), and the files of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from dmlprep.graph.model import opening, protos, saving
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.frozen import Frozen, freeze, stub_index, thaw
from dmlprep.graph.model.tensors import append_aligned, as_mapped
from dmlprep.graph.model.walk import count_nodes, tensors
from dmlprep.record import Finding


@dataclass(frozen=True)
class Statistics:
    """The size and versions of a model.

    ``nodes``: number of nodes in all graphs and functions. ``nbytes``: size of all tensors in bytes, a shared tensor
    counted once. ``opsets``: domain -> version (``""`` is ai.onnx).
    """

    nodes: int
    nbytes: int
    opsets: dict[str, int]
    ir_version: int


class Model:
    """A model in memory, with the file that it was opened from.

    Attributes:
        path: the file it was opened from, ``None`` for a model created in memory.
        ir: the model in onnx-ir's form. Passes change it in place, or assign a new one.
        notes: findings about the file: repairs when it was opened, and other notes.
        budget: limit of constants and nodes that dmlprep may still create for it.
        opened: the frozen form of the model as read from its file; ``None`` for a model created in memory.
    """

    def __init__(
        self, graph: ir.Model, path: Path | None = None, notes: Sequence[Finding] = (), budget: Budget | None = None
    ) -> None:
        self.ir = graph
        self.path = path
        self.notes = tuple(notes)
        self.opened: Frozen | None = None
        self._held: Frozen | None = None
        self.budget = budget or Budget(file_nodes=count_nodes(graph))

    @classmethod
    def open(cls, path: Path | str) -> Model:
        """Open and check a model file; large weights are not read.

        Raises:
            InputError: the file is missing, not ONNX, cut short or hostile.
            ModelRefused: it has no outputs or content that dmlprep cannot preserve, or would grow beyond its limits.
            ToolFailed: onnx crashes on the model, or needs more than its limits.
        """
        path = Path(path)
        opened = opening.read(path)
        model = cls(opened.ir, path, opened.notes, opened.budget)
        model.opened = opened.frozen
        return model

    def save(
        self,
        path: Path | str,
        *,
        external_over: int = saving.EXTERNAL_OVER,
        force: bool = False,
        progress: saving.Progress | None = None,
        frozen: Frozen | None = None,
    ) -> saving.Saved:
        """Write the model to ``path``; see ``saving.write``."""
        path = Path(path)
        return saving.write(self.ir, path, external_over=external_over, force=force, progress=progress, frozen=frozen)

    def save_linked(self, path: Path | str, frozen: Frozen | None = None) -> Path:
        """Write the model for one of dmlprep's own sessions: a small file that refers to the existing files of weights.

        Paths of external data in it are relative to the root of the file system. Tensors that are not in a file go to
        ``PATH.own``. The written model is temporary, never a result. ``frozen`` is the frozen form of this model, if it
        exists; it saves time.

        Returns:
            the folder to which the data paths are relative: the root, or the folder of ``path`` if the files are on
                several drives; every tensor is copied then. The session needs this folder as
                ``session.model_external_initializers_file_folder_path``, and the model as bytes, not as a path.

        Raises:
            OSError: a file cannot be read or written.
            InputError: DP015, a file of weights has become shorter.
        """
        frozen = saving.to_write(self.ir, frozen)
        path = Path(path).resolve()
        root = Path(path.anchor)
        own = path.with_name(path.name + ".own")
        one_drive = all(Path(m.path.resolve().anchor) == root for m in map(as_mapped, frozen.tensors) if m is not None)
        folder = root if one_drive else path.parent
        offsets: dict[int, int] = {}
        with open(own, "wb") as file:
            for graph in protos.graphs(frozen.proto):
                for proto in graph.initializer:
                    index = stub_index(proto)
                    if index is None:
                        continue
                    tensor = frozen.tensors[index]
                    mapped = as_mapped(tensor)
                    if mapped is not None and one_drive:
                        place, offset = mapped.path.resolve(), mapped.offset
                    else:
                        if id(tensor) not in offsets:
                            offsets[id(tensor)] = append_aligned(tensor, file)
                        place, offset = own, offsets[id(tensor)]
                    protos.refer(proto, place.relative_to(folder).as_posix(), offset, tensor.nbytes)
        path.write_bytes(frozen.proto.SerializeToString())
        return folder

    def snapshot(self) -> Frozen:
        """Return the frozen form of the model as it is now. Tensors are shared, not copied."""
        return self._held or freeze(self.ir)

    @contextmanager
    def held(self, frozen: Frozen | None = None) -> Iterator[None]:
        """Freeze the model once for all calls of ``snapshot`` and ``copy`` in a block that does not change it.

        ``frozen`` is the frozen form of this model, if it exists; it saves time.
        """
        before = self._held
        self._held = frozen or self.snapshot()
        try:
            yield
        finally:
            self._held = before

    def restore(self, frozen: Frozen) -> None:
        """Replace the graph by that of a snapshot; path, notes and budget stay."""
        self.ir = thaw(frozen)

    def copy(self, frozen: Frozen | None = None) -> Model:
        """Return an independent model with the same tensors and a copy of the budget.

        ``frozen`` is the frozen form of this model, if it exists; it saves time.
        """
        return Model(thaw(frozen or self.snapshot()), self.path, self.notes, self.budget.fork())

    def become(self, other: Model) -> None:
        """Replace this model's graph and budget by those of a copy."""
        self.ir, self.budget = other.ir, other.budget

    @property
    def opset(self) -> int:
        """Opset version of the default domain (ai.onnx); 1 where the model imports none."""
        return int(self.ir.opset_imports.get("", 1))

    def statistics(self) -> Statistics:
        """Count nodes and bytes; read no weights."""
        unique = {id(t): t.nbytes for t in tensors(self.ir)}
        return Statistics(count_nodes(self.ir), sum(unique.values()), dict(self.ir.opset_imports), self.ir.ir_version)

    @property
    def stored_bytes(self) -> int:
        """Size of its files in bytes when it was opened; for a model created in memory, size of its tensors."""
        return self.budget.file_bytes or self.statistics().nbytes

    def digest(self) -> str:
        """Return the SHA-256 of the model file (without data files), in hexadecimal.

        For a model created in memory, that of the frozen graph, without the values of large tensors.

        Raises:
            OSError: the file cannot be read any more.
        """
        if self.path is None:
            return hashlib.sha256(freeze(self.ir).proto.SerializeToString(deterministic=True)).hexdigest()
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
