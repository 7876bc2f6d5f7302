"""The original's outputs on the CPU: computed once, stored on disk if they are large, compared with many times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import onnx_ir as ir

from dmlprep import runtime
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import pinned_values
from dmlprep.graph.model.random_ops import draws
from dmlprep.graph.model.walk import label, nodes
from dmlprep.metrics import (
    LAST_BITS,
    OutputGroup,
    holds_fp16,
    holds_rare_floats,
    noise_of,
    nudged,
    output_groups,
    quantizes,
    stretched,
)
from dmlprep.parity.feeds.framed import inside, outside
from dmlprep.parity.feeds.framed_feeds import feeds_of
from dmlprep.parity.feeds.graph_feeds import Feed
from dmlprep.parity.feeds.run_feeds import RunFeeds, silent, sizes_text, vanishes, variations
from dmlprep.parity.judging import JudgingOptions
from dmlprep.parity.optimization_levels import LOWER_LEVELS, Lowered, at_some_level, lower_levels
from dmlprep.passes.framing import between
from dmlprep.passes.fusions import LONG, Written, with_short_sums, write_out
from dmlprep.portable.arrays import Array
from dmlprep.portable.measure import ORDINARY_NOISE
from dmlprep.record import REAL_INPUTS, DeviceInfo, Verdict
from dmlprep.record.aliases import Progress
from dmlprep.runtime import DATA_FOLDER, RunValue, Session, SessionFailure, SessionHost, SessionOptions, open_evaluator
from dmlprep.runtime.types import NO_SPINNING, Optimization

_NOISE_SECONDS = 20.0
"""Longest run of the original, in seconds, for which its own noise is measured; that takes twice as long again."""

_MISREAD = 100.0
"""Factor: an error of the default optimisation is a fault if it exceeds this multiple of the inputs' last-bit noise.

Measured on the fixtures: at most 8. A mean without ``keepdims`` that is fused into a LayerNormalization: a million and
more.
"""

_MORE_SECONDS = 20.0
"""Time limit in seconds of the search for feeds on which more of the outputs vary."""

_SPILL = 4 << 20
"""Size in bytes from which on an output is stored on disk until it is compared."""

_DRAWS = 4
"""Number of further runs that must give equal outputs before a model with random nodes counts as repeatable."""


def flatten(outputs: Mapping[str, RunValue]) -> dict[str, Array]:
    """Return outputs as tensors by name. A sequence becomes ``name (length)``, ``name[0]``, ``name[1]`` ...

    An empty optional becomes an empty array.
    """
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat[f"{name} (length)"] = np.array(len(value))
            flat.update({f"{name}[{i}]": item for i, item in enumerate(value)})
        else:
            flat[name] = np.empty(0) if value is None else value
    return flat


class Reference:
    """The original with its feeds and, once computed, its outputs. A context manager: leaving it removes the outputs.

    If the candidate has a frame (pre- and post-processing in the graph), feeds and outputs are those of the framed
    model.

    Attributes:
        inputs: ``given`` by the user, or ``seeded``; empty if the model has no inputs.
        device: the device that computed the outputs; ``None`` until then.
        lowered: the optimisation level below the default at which the original had to run; ``None`` for the default.
            ``noise`` can set it too.
        mended: True if ONNX Runtime does not load the file, and ran the model as dmlprep repaired it at opening.
        written_out: text about the fused operators that were expanded for the CPU; empty if there are none.
    """

    def __init__(
        self,
        feeds: RunFeeds,
        like: Model,
        seeds: int = 2,
        time_limit: float = 600.0,
        host: SessionHost | None = None,
        judging_options: JudgingOptions = JudgingOptions(),  # noqa: B008 - frozen
    ) -> None:
        """Choose the feeds: all of the user's, or ``seeds`` seeded ones. Nothing runs yet.

        Args:
            feeds: the feeds of the run, with the original model.
            like: the candidate. Seeded feeds have its fixed sizes; if it has FP16, some pictures are noise.
            time_limit: limit in seconds for each load and each run.
            host: the child process for the sessions; ``None``: each session starts its own.

        Raises:
            InputError: a user's feed does not fit ``like``, or ``judging_options`` names an unknown output.
            UsageError: too many or too large seeded feeds are requested.
            CheckNotRun: no feed can be generated for an input.
        """
        self.model = feeds.original
        self._run_feeds, self._like, self._seeds = feeds, like, seeds
        self.feeds = self._made_feeds()
        self._frame = between(self.model.ir, like.ir)
        self._judged = self.model if self._frame is None else like
        judging_options.check(self._judged)
        self.path = self.model.path or Path()
        self.inputs: Literal["", "given", "seeded"] = feeds.source if any(self.feeds) else ""
        self.judging_options = judging_options
        self._time_limit = time_limit
        self._host = host
        self._folder = temporary_folder("reference")
        self.device: DeviceInfo | None = None
        self.lowered: Lowered | None = None
        self.mended = False
        self.written_out = ""
        self._written: Written | None = None
        self._refused = False
        self._beyond: SessionFailure | None = None
        self._outputs: list[dict[str, Array]] = []
        self._seconds = 0.0
        self._noise: tuple[dict[str, float], str] | None = None

    @classmethod
    def of(
        cls,
        original: Path | Model,
        feeds: Sequence[Mapping[str, Array]] | None = None,
        like: Model | None = None,
        sizes: Mapping[str, int] | None = None,
        seeds: int = 2,
        time_limit: float = 600.0,
        judging_options: JudgingOptions = JudgingOptions(),  # noqa: B008 - frozen
    ) -> Reference:
        """Return a reference for an original, with the user's feeds or, without any, with seeded ones.

        Args:
            like: the candidate. Seeded feeds have its fixed sizes and values, and respect its limits of indices.
                ``None``: the original itself.
            sizes: sizes for dimensions that stay free, by name or by ``input:axis``.
            seeds: number of seeded feeds.
            time_limit: limit in seconds for each load and each run.

        Raises:
            InputError: the model cannot be read, a feed does not fit, or ``judging_options`` names an unknown output.
                Or, with seeded feeds, a size is for a dimension that the model does not have.
            UsageError: too many or too large seeded feeds are requested, or Pillow is missing for a frame.
            CheckNotRun: no feed can be generated for an input.
            ModelRefused, ToolFailed: as ``Model.open``; or DP305, the frame contradicts itself.
        """
        model = original if isinstance(original, Model) else Model.open(original)
        like = like or model
        values = pinned_values(like.ir, model.ir.graph.inputs)
        frame = between(model.ir, like.ir)
        run_feeds = feeds_of(
            model, feeds or (), sizes, values=values, framing=None if frame is None else lambda _: frame
        )
        return cls(run_feeds, like, seeds, time_limit, None, judging_options)

    def _made_feeds(self) -> list[Feed]:
        feeds = self._run_feeds
        return feeds.of(self._like, feeds.user_count or self._seeds, rough=holds_fp16(self._like))

    def compute(self, progress: Progress = lambda share, text: None) -> int:
        """Run the original on every feed and store its outputs, unless that was done; return the number of outputs.

        This can change seeded ``feeds``: other sizes if the original does not run, more feeds if outputs do not vary.

        Raises:
            SessionFailure: it does not load or run.
            UsageError, ModelRefused: as ``framed.inside``, for a candidate with a frame.
        """
        if self._beyond is not None:
            raise self._beyond
        if not self._outputs:
            options, began = self._options(), time.perf_counter()
            levels = lower_levels(self.model) or LOWER_LEVELS[-1:]  # its fusions may be wrong, the model is not
            try:
                self._outputs, self.lowered = at_some_level(partial(self._computed, progress), options, levels)
            except SessionFailure as failure:
                self._refused = failure.kind == "run"
                if failure.kind == "limit":
                    self._beyond = failure  # the next check would reach the same limit
                raise
            self._seconds = time.perf_counter() - began
        return len(self._outputs[0]) if self._outputs else 0

    def _options(self, optimization: Optimization = "all") -> SessionOptions:
        size = self.model.stored_bytes
        return SessionOptions(optimization, time_limit=self._time_limit, model_bytes=size, config=NO_SPINNING)

    def _computed(self, progress: Progress, options: SessionOptions) -> list[dict[str, Array]]:
        all_outputs: list[dict[str, Array]] = []
        with self._open(options) as session:
            self.device = session.device
            for index in range(len(self.feeds)):
                progress(index / len(self.feeds), f"reference, feed {index + 1} of {len(self.feeds)}")
                try:
                    outputs = session.run_any(self._inside(self.feeds[index]))
                except SessionFailure as failure:
                    if index or failure.kind != "run":
                        raise
                    outputs = self._on_other_sizes(session, failure)
                all_outputs.append(self._keep_all(index, self._outside(outputs)))
            # A search for FP16 islands used the feeds of this run, so the proof must not change them.
            if self.inputs == "seeded" and not holds_fp16(self._like):
                self._tell_more(session, all_outputs)
        return all_outputs

    def _on_other_sizes(self, session: Session, failure: SessionFailure) -> dict[str, RunValue]:
        """Try seeded feeds of other sizes until the original runs on the first one; return its outputs.

        ``feeds`` are then of these sizes.

        Raises:
            SessionFailure: ``failure``, the first one, if it runs on no sizes.
        """
        while self._run_feeds.other_sizes(self._like):
            self.feeds = self._made_feeds()
            with suppress(SessionFailure):
                return session.run_any(self._inside(self.feeds[0]))
        self.feeds = self._made_feeds()
        raise failure

    def _tell_more(self, session: Session, answers: list[dict[str, Array]]) -> None:
        """Search for feeds on which more outputs vary; add them to ``feeds``, and their outputs to ``answers``.

        If feeds were added, those on which an output is zero up to rounding are removed, unless that makes an output
        constant. With a user's metric, nothing is added.
        """
        began, groups = time.perf_counter(), self.groups()
        pinned = pinned_values(self._like.ir, self.model.ir.graph.inputs)
        mute = silent(groups, answers)
        feeds = list(self.feeds)
        for other in variations(feeds[0], pinned) if mute and self.judging_options.metric is None else ():
            if not mute or time.perf_counter() - began > _MORE_SECONDS:
                break
            try:
                outputs = session.run_any(self._inside(other))
            except SessionFailure as failure:
                if failure.kind != "run":
                    break
                continue
            answers.append(self._keep_all(len(answers), self._outside(outputs)))
            feeds.append(other)
            mute = silent(groups, answers)
        if len(feeds) > len(self.feeds):
            # A feed on which an output is zero up to rounding proves nothing, and would be judged by the scale of the
            # others.
            useful = [index for index, outputs in enumerate(answers) if not vanishes(outputs)]
            if useful and silent(groups, [answers[index] for index in useful]) == mute:
                feeds, answers[:] = [feeds[index] for index in useful], [answers[index] for index in useful]
        self.feeds = feeds

    def _inside(self, feed: Feed) -> Feed:
        """Return the feed for the original that belongs to a candidate's ``feed``: equal, unless there is a frame."""
        return inside(self._frame, feed, self.model.ir)

    def _outside(self, outputs: Mapping[str, RunValue]) -> dict[str, Array]:
        """Return the outputs that a candidate should give if the original gives ``outputs``; a frame changes them."""
        return outside(self._frame, flatten(outputs))

    def _keep_all(self, feed: int, outputs: Mapping[str, Array]) -> dict[str, Array]:
        return {n: self._keep(feed, i, a) for i, (n, a) in enumerate(outputs.items())}

    def _open_as(self, model: Model, options: SessionOptions) -> AbstractContextManager[Session]:
        """Open a session on the CPU for a changed form of the original, which is in memory, without copying weights."""
        path = Path(self._folder.name) / "mended.onnx"
        linked = replace(options, config={**options.config, DATA_FOLDER: str(model.save_linked(path))})
        return runtime.open_cpu(path, linked, self._host)

    def _open(self, options: SessionOptions) -> AbstractContextManager[Session]:
        """Open a session for the original on the CPU.

        Fused operators that the CPU does not have, or computes otherwise, are expanded. A file that does not load, and
        was repaired when it was opened, runs as repaired. A model that is too new for this ONNX Runtime, or has types
        for which it lacks kernels, runs in onnx's reference evaluator.

        Raises:
            SessionFailure: the model does not load in any of these ways.
        """
        if self._written is None:
            self._written = write_out(self.model)
        if self._written.counts:
            with suppress(SessionFailure):
                session = self._open_as(self._written.model, options)
                self.written_out = str(self._written)
                return session
        try:
            return runtime.open_cpu(self.path, options, self._host)
        except SessionFailure as failure:
            if failure.kind == "load" and self.model.notes:
                with suppress(SessionFailure):
                    session = self._open_as(self.model, options)
                    self.mended = True
                    return session
            newest = find_target()
            too_new = self.model.opset > newest.max_opset or self.model.ir.ir_version > newest.max_ir
            if failure.kind != "load" or not (too_new or holds_rare_floats(self.model)):
                raise
            return open_evaluator(self.path, options)

    def stamp(self, verdict: Verdict, *, remind: bool = True) -> Verdict:
        """Return the verdict with the origin of its inputs: the user's, or seeded.

        If the original did not run on seeded inputs, the reason says how to pass others. ``remind``: True to add a note
        that seeded inputs prove less.
        """
        if self.inputs == "seeded" and verdict.outcome == "not-run" and self._refused:
            remedy = f"the inputs are synthetic: {REAL_INPUTS}"
            findings = [msgspec.structs.replace(one, remedy=remedy) for one in verdict.findings]
            sizes = f"{sizes_text(self.feeds[0])}; --pin, --size and parity.sizes set others"
            reason = f"{verdict.reason}; the inputs are synthetic ({sizes}): {REAL_INPUTS}"
            verdict = msgspec.structs.replace(verdict, reason=reason, findings=findings)
        return verdict.on(self.inputs, remind=remind)

    def outputs(self, index: int) -> dict[str, Array]:
        """Return the original's outputs on feed ``index``, by name. ``compute`` must have run."""
        return self._outputs[index]

    def groups(self) -> list[OutputGroup]:
        """Return the outputs in groups: those of a group are compared together, such as the boxes of a detector."""
        return output_groups(self._judged, self.judging_options.measures)

    def noise(self, progress: Progress = lambda share, text: None) -> tuple[dict[str, float], str]:
        """Return the original's own noise: how much its outputs change by rounding alone. It is measured once.

        The noise is the larger error of two: without graph optimisation, and on feeds that differ by a last bit. For
        FP32 and large feeds, there is a third: with long sums added in parts. Without floating-point inputs, the
        weights differ instead. If a fusion computes wrong numbers, the outputs without optimisation replace the stored
        ones, and ``lowered`` is set.

        Returns:
            the noise by output; and the reason if it was not measured, otherwise empty.
        """
        if self._noise is None:
            why = self._without_noise()
            self._noise = ({}, why) if why else self._measured_noise(progress)
        return self._noise

    def _without_noise(self) -> str:
        if self.judging_options.noise == "off":
            return "parity.noise is off"
        if self.lowered is not None or self.device is None or self.device.provider != "cpu":
            return "it does not run unchanged on the CPU provider"
        if self.judging_options.noise == "auto" and self._seconds > _NOISE_SECONDS:
            return f"the original took {self._seconds:.0f} s"
        return "it draws random numbers" if self.random_node() else ""

    def _measured_noise(self, progress: Progress) -> tuple[dict[str, float], str]:
        # A frame computes in FP32: the model inside it sees last bits that its bytes do not have.
        feeds = [self._inside(feed) for feed in self.feeds]
        moved = [nudged(feed, index) for index, feed in enumerate(feeds)]
        floats = any(array.dtype.kind == "f" for feed in feeds for array in feed.values())
        last_bit, outputs = dict[str, float](), list[dict[str, Array]]()
        try:
            if floats:
                last_bit = self._own_error(self._open(self._options()), moved, progress)
            unoptimized = self._own_error(self._open(self._options("disabled")), feeds, progress, outputs)
            if not floats and max(unoptimized.values(), default=0.0) > ORDINARY_NOISE:
                session = self._open_as(_with_moved_weights(self.model), self._options())
                last_bit = self._own_error(session, feeds, progress)
        except SessionFailure as failure:
            return last_bit, "" if last_bit else failure.message.splitlines()[0]
        if (wrong := self._misread(unoptimized, last_bit)) > 0:
            at_default = f"gives other outputs, {wrong:.2g} off: a fusion changes its result"
            self._outputs, self.lowered = outputs, Lowered("disabled", "numbers", at_default)
            return last_bit, ""
        longest = dict[str, float]()
        if not holds_fp16(self._like) and any(array.size >= LONG for feed in feeds for array in feed.values()):
            with suppress(SessionFailure):
                if (parts := with_short_sums(self.model)) is not None:
                    longest = self._own_error(self._open_as(parts, self._options()), feeds, progress)
        noise = {name: max(error, last_bit.get(name, 0.0)) for name, error in unoptimized.items()}
        return {name: max(error, longest.get(name, 0.0)) for name, error in noise.items()}, ""

    def _own_error(
        self,
        opened: AbstractContextManager[Session],
        feeds: Sequence[Feed],
        progress: Progress,
        outputs: list[dict[str, Array]] | None = None,
    ) -> dict[str, float]:
        """Run another session on ``feeds``; return the error of each output against the original's stored outputs.

        Args:
            opened: the session, which is closed afterwards.
            outputs: a list to which the new outputs are appended, feed by feed; ``None``: they are dropped.

        Raises:
            SessionFailure: the session fails.
        """
        groups, worst = self.groups(), dict[str, float]()
        with opened as session:
            for index, feed in enumerate(feeds):
                progress(index / len(feeds), "the original's own noise")
                got = self._outside(session.run_any(feed))
                own = noise_of(groups, self.outputs(index), [got])
                worst.update({name: max(error, worst.get(name, 0.0)) for name, error in own.items()})
                if outputs is not None:
                    outputs.append(self._keep_all(len(feeds) + index, got))
        return worst

    def _misread(self, unoptimized: Mapping[str, float], last_bit: Mapping[str, float]) -> float:
        """Return the error of the original at the default optimisation, if a fusion computes wrong numbers there.

        0 if the outputs differ no more than rounding explains, and for quantized models: a fusion may skip the rounding
        of their activations.

        Args:
            unoptimized: error of each output between the default and no optimisation.
            last_bit: error of each output on feeds that differ by a last bit.
        """
        wrong = [
            error
            for name, error in unoptimized.items()
            if name in last_bit and error > max(ORDINARY_NOISE, _MISREAD * last_bit[name])
        ]
        return 0.0 if quantizes(self.model) else max(wrong, default=0.0)

    def last_bits(self) -> float:
        """Return the largest relative error that last bits of the inputs cause in a quantized original.

        A device's FP32 differs by last bits, which a model with quantized activations rounds to whole steps. The error
        is 0 for other models, and if the noise is not measured or a run fails.
        """
        if not quantizes(self.model) or self._without_noise():
            return 0.0
        groups, worst = self.groups(), 0.0
        try:
            with self._open(self._options()) as session:
                for units in LAST_BITS:
                    for index, feed in enumerate(self.feeds):
                        got = self._outside(session.run_any(stretched(self._inside(feed), units)))
                        worst = max(worst, *noise_of(groups, self.outputs(index), [got]).values(), 0.0)
        except SessionFailure:
            return 0.0
        return worst

    def _drawing(self) -> list[ir.Node]:
        return [n for n in nodes(self.model.ir) if draws(n)]

    def random_node(self) -> str:
        """Return the label of a random node that makes the original's outputs differ from run to run; otherwise empty.

        The original runs again only if it has a random node, several times in one session; if that fails, the result is
        empty too. A few small outputs may be equal by chance, and the first run of a session may draw the same numbers
        as that of another session.
        """
        drawing = self._drawing()
        if not drawing or not self._outputs:
            return ""
        try:
            with self._open(self._options(self.lowered.level if self.lowered is not None else "all")) as session:
                for _ in range(_DRAWS):
                    if not _same(self._outputs[0], self._outside(session.run_any(self._inside(self.feeds[0])))):
                        return label(drawing[0])
        except SessionFailure:
            return ""
        return ""

    def _keep(self, feed: int, index: int, array: Array) -> Array:
        if array.nbytes < _SPILL or array.dtype.kind in "OUS":
            return array
        path = Path(self._folder.name) / f"{feed}-{index}"
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(path)
        mapped: Array = np.memmap(path, np.uint8, "r").view(array.dtype).reshape(array.shape)
        return mapped

    def close(self) -> None:
        """Drop the stored outputs and remove their files."""
        self._outputs.clear()
        self._folder.cleanup()

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_moved_weights(model: Model) -> Model:
    """Return a copy of the model, opened again, whose FP32 weights differ by one unit in the last place.

    Vectors and scalars stay, since fusions need exact values in some of them.
    """
    moved = Model.open(model.path) if model.path is not None else model.copy()
    for value in moved.ir.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) > 1:
            value.const_value = ir.tensor(nudged({"": tensor.numpy()})[""], name=value.name)
    return moved


def _same(outputs: Mapping[str, Array], again: Mapping[str, Array]) -> bool:
    return all(
        n in again and a.shape == again[n].shape and np.array_equal(a, again[n], equal_nan=a.dtype.kind == "f")
        for n, a in outputs.items()
    )
