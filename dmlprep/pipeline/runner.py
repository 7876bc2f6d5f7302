"""Run models on the CPU for passes that need values, in child processes, with the user's feeds or seeded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, ModelRefused
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.graph.model import Frozen, Model
from dmlprep.metrics import holds_rare_floats
from dmlprep.parity import adapt_feed, at_some_level, lower_levels, make_feeds, sizes_text
from dmlprep.passes.fusions import write_out
from dmlprep.portable.arrays import Array
from dmlprep.record import REAL_INPUTS
from dmlprep.runtime import DATA_FOLDER, Session, SessionFailure, SessionHost, SessionOptions, cpu_host, open_evaluator
from dmlprep.runtime.types import NO_SPINNING, Optimization

LARGE = 64 << 20
"""Size of weights in bytes above which ONNX Runtime does not prepack them: that copies them, and rarely pays."""


class CpuRunner:
    """Runner of models on the CPU, for passes that need values. A context manager: leaving it ends its own process.

    The last model stays loaded until the next one, or until ``release``: searches and profiles run one model on several
    feeds, and loading takes longer than running.

    Args:
        feeds: a function that returns feeds for a model, at most the requested number; ``None``: seeded feeds of
            default sizes.
        time_limit: limit in seconds for each load and each run.
        host: the child process that runs the models; ``None``: the runner starts its own.
        other_sizes: a function that changes the sizes of later ``feeds``, called if a model does not run on the first
            ones (``RunFeeds.other_sizes``).
    """

    def __init__(
        self,
        feeds: Callable[[Model, int], list[dict[str, Array]]] | None = None,
        time_limit: float = 600.0,
        host: SessionHost | None = None,
        other_sizes: Callable[[Model], bool] | None = None,
    ) -> None:
        self._feeds, self._other_sizes = feeds, other_sizes
        self._time_limit = time_limit
        self._host = host
        self._own: SessionHost | None = None
        self._loaded = ExitStack()
        self._session: Session | None = None
        self._frozen: Frozen | None = None
        self._options: SessionOptions | None = None
        self._level: Optimization = "all"

    def run(
        self, model: Model, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None, *, optimized: bool = True
    ) -> dict[str, Array]:
        """Run ``model`` on the CPU as the proof does, with fused operators expanded; return its outputs by name.

        An FP16 model that ONNX Runtime does not run at its default optimisation runs at a lower level. Later FP16
        models begin at that level. A model in bfloat16 or FP64 without ONNX Runtime kernels runs in onnx's reference
        evaluator. Outputs in bfloat16 are returned as FP32, which represents each of their values.

        Args:
            outputs: names of the outputs to return; ``None``: all.
            optimized: False to turn graph optimisation off.

        Raises:
            ModelRefused: the model does not load or run, or its child process died.
            CheckNotRun: the model needs more memory or time than its limits allow.
        """

        def once(options: SessionOptions) -> dict[str, Array]:
            session = self._opened(model, options)
            # A derived model may have inputs of another width: those of the FP16 emulation are FP32.
            return session.run(adapt_feed(dict(feeds), session.inputs, str(model.path or "")), outputs)

        lower = lower_levels(model)
        level: Optimization = "disabled" if not optimized else self._level if lower else "all"
        options = SessionOptions(optimization=level, time_limit=self._time_limit, model_bytes=model.stored_bytes)
        try:
            results, lowered = at_some_level(once, options, lower)
            self._level = lowered.level if lowered is not None and optimized else self._level
        except SessionFailure as failure:
            self.release()
            if failure.kind == "limit":
                raise CheckNotRun(
                    f"limit exceeded: {failure.message}", fix=failure.next_step, code="DP703"
                ) from failure
            fix = f"the inputs are {sizes_text(feeds)}; --pin and parity.sizes set others, or {REAL_INPUTS}"
            text = f"the model does not run on the CPU: {failure.message}"
            raise ModelRefused(text, code="DP704", fix=fix if failure.kind == "run" else "") from failure
        return {n: a.astype("float32") if a.dtype.name == "bfloat16" else a for n, a in results.items()}

    def _opened(self, model: Model, options: SessionOptions) -> Session:
        """Return a session on the model: the present one if model and options are unchanged, otherwise a new one."""
        frozen = model.snapshot()
        known = self._frozen is not None and self._options == options and frozen.same_as(self._frozen)
        if self._session is not None and known:
            return self._session
        self.release()
        if self._host is None:
            self._host = self._own = cpu_host()
        path = Path(self._loaded.enter_context(temporary_folder("model"))) / "model.onnx"
        written = write_out(model).model
        data = written.save_linked(path, frozen if written is model else None)
        try:
            config = {DATA_FOLDER: str(data), **NO_SPINNING}
            if sum(tensor.nbytes for tensor in frozen.tensors) > LARGE:
                config["session.disable_prepacking"] = "1"
            linked = replace(options, config=config)
            self._session = self._loaded.enter_context(self._host.open(path, linked))
        except SessionFailure as failure:
            if failure.kind != "load" or not holds_rare_floats(model):
                raise
            model.save(path, force=True)
            self._session = self._loaded.enter_context(open_evaluator(path, options))
        self._frozen, self._options = frozen, options
        return self._session

    def release(self) -> None:
        """Unload the model that is loaded, if any."""
        self._session = self._frozen = self._options = None
        self._loaded.close()

    def __enter__(self) -> CpuRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        if self._own is not None:
            self._own.close()
            self._host = self._own = None

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        """Return at most ``count`` of the user's feeds, or ``count`` seeded ones: the same as for the proof.

        If the sizes of seeded feeds are free, the model runs on one feed; other sizes are tried if it fails.

        Raises:
            InputError: a user's feed does not fit the model in its present state.
            CheckNotRun: no feed can be generated for an input, or the run reached a limit.
        """
        if self._feeds is None:
            return make_feeds(model, count=count, rough=True)
        free = any(not isinstance(dim, int) for v in model.ir.graph.inputs for dim in v.shape or ())
        feeds = self._feeds(model, count)
        while free and feeds and (others := self._other_sizes) is not None:
            try:
                self.run(model, feeds[0])
                self._other_sizes = None  # these sizes work for all later feeds
            except ModelRefused:
                self._other_sizes = others if others(model) else None
                feeds = self._feeds(model, count)
        return feeds
