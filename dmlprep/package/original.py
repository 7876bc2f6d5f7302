"""The original next to the prepared model, for the execution providers of hardware vendors (Windows ML)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dmlprep.core.errors import InputError, ModelRefused, UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged, data_files
from dmlprep.package.building import Runs, tensors
from dmlprep.package.contract import Contract, Original, Tensor

FILE = "original.onnx"
"""Name of the original in a package. Its data file, if it has one, is ``original.onnx.data``."""


@dataclass(frozen=True)
class OpenedOriginal:
    """The original of a run, which the prepared model can replace in an app.

    Attributes:
        fixed: size of each dimension that is free in it and fixed in the prepared model, by name.
        watch: the watcher of its files: they must not change until they are copied.
    """

    model: Model
    fixed: dict[str, int]
    watch: Unchanged

    @property
    def entry(self) -> Original:
        """The names of its files in a package."""
        return Original(FILE, [f"{FILE}.data"] if data_files(self.model) else [])

    def joined(self, contract: Contract) -> Contract:
        """Return the contract of a package that also has the original."""
        fixed = {**contract.fixed, **self.fixed}
        return msgspec.structs.replace(contract, original=self.entry, fixed=fixed)

    def save(self, folder: Path) -> list[Path]:
        """Write the model to a folder, and return the paths of its files.

        A model without data files is copied byte by byte. Several data files become one.

        Raises:
            InputError: a file of weights changed or cannot be read.
            OutputError, OSError: a file cannot be written.
        """
        assert self.model.path is not None
        target = folder / FILE
        if self.entry.data:
            self.model.save(target, external_over=-1)
        else:
            shutil.copyfile(self.model.path, target)
        self.watch.check()
        return [target, *(folder / name for name in self.entry.data)]


def open_original(path: Path, runs: Runs, prepared: Contract) -> OpenedOriginal:
    """Open the original of a run, and compare its inputs and outputs with those of the prepared model.

    Args:
        path: file of the original.
        prepared: the contract of the prepared model.

    Raises:
        UsageError: the language is Node, whose onnxruntime-node has no vendors' providers.
        InputError: it cannot be read, or is not the model that was prepared.
        ModelRefused: an app cannot use it instead of the prepared model, or the package has buckets.
    """
    if prepared.language == "node":
        what = "onnxruntime-node cannot register vendors' providers, so Node cannot use the original"
        raise UsageError(what, where="--original", fix="package for python, csharp or cpp, or leave out --original")
    if prepared.buckets:
        what = "a package with buckets cannot have the original"
        raise ModelRefused(what, where="--original", code="DP820", fix="prepare the model without buckets")
    watch = Unchanged()
    model = watch.take_model(path)
    record = runs.all[0].record
    known = {record.input_sha256, *record.facts.digests.values()}
    if foreign := next((file for file, sha in watch.digests.items() if sha not in known), None):
        what, fix = "this is not the file that was prepared", "pass the original, or prepare the model again"
        raise InputError(what, where=foreign, code="DP820", fix=fix)
    inputs, outputs = tensors(model)
    needed = [one for one in inputs if one.name not in model.ir.graph.initializers]
    fixed: dict[str, int] = {}
    differences = [
        *_differences("input", needed, prepared.inputs, fixed),
        *_differences("output", outputs, prepared.outputs, None),
    ]
    if differences:
        what = f"the prepared model cannot replace the original: {differences[0]}"
        fix = "prepare without a frame, FP16 inputs or other changes of inputs and outputs, or leave out --original"
        raise ModelRefused(what, where=str(path), code="DP820", fix=fix)
    return OpenedOriginal(model, fixed, watch)


def _differences(
    kind: str, original: list[Tensor], prepared: list[Tensor], fixed: dict[str, int] | None
) -> Iterator[str]:
    """Yield the differences between inputs or outputs that an app would see.

    A size that is free in the original may be fixed in the prepared model. Free sizes of inputs must have the same
    name in both.

    Args:
        kind: ``input`` or ``output``.
        fixed: gets the sizes of dimensions that are free in the original and fixed in the prepared model; ``None`` for
            outputs, whose sizes follow from the inputs.
    """
    names = [{one.name for one in side} for side in (original, prepared)]
    for name in sorted(names[0] ^ names[1]):
        yield f"{'the original' if name in names[1] else 'it'} has no {kind} {name!r}"
    after = {one.name: one for one in prepared}
    for one in original:
        new = after.get(one.name)
        if new is None:
            continue
        pairs = list(zip(one.shape, new.shape, strict=False))
        same = one.type == new.type and len(one.shape) == len(new.shape)
        for was, now in pairs:
            if isinstance(was, str) and isinstance(now, int):
                same = same and (fixed is None or fixed.setdefault(was, now) == now)
            else:
                same = same and (was == now or (fixed is None and isinstance(was, str)))
        if not same:
            yield f"its {kind} {one.name!r} is {new.type} {new.shape}, not {one.type} {one.shape}"
