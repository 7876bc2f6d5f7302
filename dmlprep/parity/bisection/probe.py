"""Run parts of the two models of a bisection, each in a fresh session, and count the runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.graph.model import Model
from dmlprep.metrics import Tolerance, measure
from dmlprep.parity.bisection.graph_cuts import declare, prefix
from dmlprep.parity.candidate import adapt_feed, open_session
from dmlprep.parity.reference import flatten
from dmlprep.passes.fusions import write_out
from dmlprep.portable.arrays import Array
from dmlprep.record import DeviceInfo, OutputMetrics
from dmlprep.record.aliases import SessionDevice
from dmlprep.runtime import DATA_FOLDER, SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host
from dmlprep.runtime.ort_messages import fuses_an_output_away

_MASK = -1e9
"""Values at or below this are masks: added to scores so that a softmax ignores them. FP16 has -65504 or -inf."""


def differ(name: str, reference: Array, candidate: Array, tolerance: Tolerance) -> OutputMetrics:
    """Compare a value inside two models, and return its metrics.

    Large negative numbers are masks. A mask in both models counts as equal, even if FP16 made it minus infinity.
    """
    if reference.shape == candidate.shape and reference.dtype.kind == "f" and reference.size:
        with np.errstate(over="ignore"):  # in FP16 the bound is -inf
            masked = (reference <= _MASK) & (candidate <= -1e4)
        if masked.any():
            reference, candidate = np.where(masked, 0, reference), np.where(masked, 0, candidate)
    return measure(name, reference, candidate, tolerance)


class Prober:
    """Runner for parts of both models on one feed: the reference on the CPU and the candidate on its device.

    Use it as a context manager, which ends the child processes. On the CPU, nodes without a kernel (GroupNorm) run
    expanded into simpler operators.

    Attributes:
        models: the models under ``reference`` and ``candidate``.
        feed: inputs of the whole models.
        runs: number of sessions opened so far.
        device: the device that ran the candidate; ``None`` until then.
    """

    def __init__(
        self,
        reference: Model,
        candidate: Model,
        feed: Mapping[str, Array],
        device: SessionDevice,
        options: SessionOptions,
        time_limit: float,
    ) -> None:
        self.models: dict[str, Model] = {"reference": reference, "candidate": candidate}
        self.feed = dict(feed)
        self.runs = 0
        # Size of the whole models, also where only a part runs: a part computes no more.
        self._bytes = reference.stored_bytes + candidate.stored_bytes
        self.device: DeviceInfo | None = None
        # One worker for all runs of a device: starting one costs 0.4 s on the CPU and seconds on DirectML.
        self._hosts: dict[str, SessionHost] = {"cpu": cpu_host()}
        if device == "dml":
            self._hosts["dml"] = dml_host(session=options)
        self._on: dict[str, SessionDevice] = {"reference": "cpu", "candidate": device}
        self._options = {"reference": SessionOptions(time_limit=time_limit), "candidate": options}

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._hosts.values():
            host.close()

    def whole(self, side: Literal["reference", "candidate"]) -> dict[str, Array]:
        """Run a whole model on its device, and return its outputs by name.

        Raises:
            SessionFailure: it does not load or run.
            InputError: the feed lacks one of its inputs, or does not fit its type.
        """
        model, on, options = self.models[side], self._on[side], self._options[side]
        path = model.path
        assert path is not None
        if on == "cpu" and write_out(model).counts:
            return self.part(model, on, options, self.feed, candidate=side == "candidate")
        return self._run(path, on, options, self.feed, side == "candidate")

    def values(self, side: Literal["reference", "candidate"], names: Iterable[str]) -> dict[str, Array]:
        """Run only the part of a model that computes the values ``names``, and return these by name.

        A value that the runtime does not return is missing in the result.

        Raises:
            SessionFailure: the part does not load or run.
        """
        names = list(names)
        # DirectML 1.15 returns no value for an output that a fused activation reads too: return a copy there.
        by_copy = self._on[side] == "dml"
        part, exposed = prefix(self.models[side], names, by_copy=by_copy)
        on, options, candidate = self._on[side], self._options[side], side == "candidate"
        try:
            outputs = self.part(part, on, options, self.feed, candidate=candidate)
        except SessionFailure as failure:
            # ONNX Runtime 1.24 fuses a GELU away although the graph returns a copy of a value inside it.
            if not by_copy or not fuses_an_output_away(failure.message):
                raise
            part, exposed = prefix(self.models[side], names)
            outputs = self.part(part, on, options, self.feed, candidate=candidate)
        return {name: outputs[output] for name, output in exposed.items() if output in outputs}

    def part(
        self, part: Model, device: SessionDevice, options: SessionOptions, feed: Mapping[str, Array], *, candidate: bool
    ) -> dict[str, Array]:
        """Run a part of a model without copying its weights, and return its outputs by name.

        Args:
            candidate: True if the part runs for the candidate, so that ``self.device`` is set.

        Raises:
            SessionFailure: it does not load or run.
        """
        written = write_out(part) if device == "cpu" else None
        with temporary_folder("bisect") as folder:
            path = Path(folder) / "part.onnx"
            data = (written.model if written is not None else part).save_linked(path)
            options = replace(options, config={**options.config, DATA_FOLDER: str(data)})
            outputs = self._run(path, device, options, feed, candidate)
        if candidate and written is not None and written.counts and self.device is not None:
            self.device = self.device.also(str(written))
        return outputs

    def every(self, part: Model, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Run a part on the CPU; return by name every value of known type that it computes, none if it does not run."""
        model = part.copy()
        graph = model.ir.graph
        have = {id(v) for v in graph.outputs}
        graph.outputs.extend(v for n in graph for v in n.outputs if v.name and id(v) not in have)
        declare(model.ir, [v for v in graph.outputs if v.type is None])
        typed = [v for v in graph.outputs if v.type is not None]
        graph.outputs.clear()
        graph.outputs.extend(typed)
        try:
            return self.part(model, "cpu", SessionOptions(optimization="basic"), feed, candidate=False)
        except SessionFailure:
            return {}

    def shows(
        self,
        part: Model,
        inputs: Mapping[str, Array],
        expected: Mapping[str, Array],
        tolerance: Tolerance,
        device: SessionDevice,
        options: SessionOptions | None = None,
    ) -> tuple[bool, str]:
        """Run a part alone, and test whether it shows the fault.

        Args:
            inputs: arrays by input name.
            expected: outputs by name to compare with; empty: only a failure counts.
            options: options of the session, with the candidate's time limit; ``None``: those of the candidate. If the
                part runs on the CPU and the candidate does not, the reference's options are always used.

        Returns:
            True if the part fails or an output differs from ``expected``; and the message of the failure, empty if it
            ran.
        """
        own = self._options["candidate"]
        options = own if options is None else replace(options, time_limit=own.time_limit)
        if device == "cpu" and self._on["candidate"] != "cpu":
            options = self._options["reference"]
        try:
            answers = self.part(part, device, options, inputs, candidate=False)
        except SessionFailure as failure:
            return True, failure.message
        differing = (n for n in expected if n in answers and not differ(n, expected[n], answers[n], tolerance).passed)
        return next(differing, None) is not None, ""

    def _run(
        self, path: Path, device: SessionDevice, options: SessionOptions, feed: Mapping[str, Array], candidate: bool
    ) -> dict[str, Array]:
        self.runs += 1
        if device == "cpu":
            options = replace(options, model_bytes=self._bytes)
        with open_session(device, path, options, self._hosts[device]) as session:
            if candidate:
                self.device = session.device
            return flatten(session.run_any(adapt_feed(dict(feed), session.inputs, str(path))))
