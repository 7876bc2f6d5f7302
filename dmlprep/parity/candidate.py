"""Candidates to compare with the original: a model file on a device, or a model derived by dmlprep, on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir

from dmlprep import runtime
from dmlprep.core.errors import InputError
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.graph.analysis.segments import PIECE_BYTES, WHOLE_BYTES, run_segments
from dmlprep.graph.model import Model
from dmlprep.parity.feeds.graph_feeds import Feed
from dmlprep.parity.feeds.sizes import graph_inputs
from dmlprep.parity.optimization_levels import LOWER_LEVELS, Level, lower_levels
from dmlprep.parity.reference import flatten
from dmlprep.passes.fusions import Written, write_out
from dmlprep.portable.arrays import Array
from dmlprep.record import Check, DeviceInfo
from dmlprep.record.aliases import SessionDevice
from dmlprep.runtime import DATA_FOLDER, RunValue, Session, SessionHost, SessionOptions, ValueInfo, cpu_host

Answers = Generator[tuple[DeviceInfo, dict[str, Array]], None, None]


def usable_device(device: SessionDevice, session: SessionOptions | None = None) -> tuple[str, DeviceInfo | None]:
    """Return why a device cannot be used on this machine (empty if it can), and facts about the device.

    The facts are ``None`` for the CPU, and if no device answered. ``session`` names the DirectML adapter or GPU.
    """
    if device == "cpu":
        return "", None
    status = runtime.dml_status(session=session)
    if not status.available:
        fix = f" ({status.fix})" if status.fix else ""
        return (status.reason or "no DirectML session is possible on this machine") + fix, status.device
    return "", status.device


def software_device(device: SessionDevice, info: DeviceInfo | None) -> bool:
    """Return True if a device computes on the CPU: ``cpu``, or a DirectML adapter in software.

    A timeout on such a device is not a fault of the model.
    """
    return device == "cpu" or (info is not None and info.software)


def open_session(
    device: SessionDevice, path: Path, options: SessionOptions, host: SessionHost | None = None
) -> Session:
    """Load a model file on a device, in the child process ``host`` or in a new one, and return the session.

    Raises:
        SessionFailure: the model cannot be loaded.
        CheckNotRun: DirectML is not available.
    """
    return runtime.open_cpu(path, options, host) if device == "cpu" else runtime.open_dml(path, options, host)


def adapt_feed(feed: Feed, inputs: Sequence[ValueInfo], where: str) -> Feed:
    """Return a feed with only a session's inputs, converted to their element types: FP32 to FP16, int64 to int32.

    Args:
        where: path of the model, for errors.

    Raises:
        InputError: the feed lacks an input, or an integer does not fit the narrower type.
    """
    return _adapted(feed, {value.name: value.dtype for value in inputs}, where)


def _adapted(feed: Feed, types: Mapping[str, str], where: str) -> Feed:
    adapted: Feed = {}
    for name, dtype in types.items():
        if name not in feed:
            what = f"the candidate has an input {name!r} that the reference does not have"
            raise InputError(what, where=where, code="DP705", fix="compare models with the same inputs")
        array = feed[name]
        if dtype == array.dtype.name or array.dtype.kind in "OUS" or dtype == "bfloat16":
            adapted[name] = array.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else array
            continue
        try:
            kind = np.dtype(dtype)
        except TypeError:
            adapted[name] = array
            continue
        if kind.kind in "iu" and array.dtype.kind in "iu":
            limits = np.iinfo(kind)
            if array.size and (array.min() < limits.min or array.max() > limits.max):
                raise InputError(f"values of input {name!r} do not fit {kind.name}", where=where, code="DP705")
        with np.errstate(over="ignore"):
            adapted[name] = array.astype(kind)
    return adapted


@dataclass(frozen=True)
class Candidate:
    """A model to compare with the reference, and how to run it.

    Attributes:
        check: name of the check in the verdict.
        where: path of the model, for messages.
        device: the device that it runs on.
        kind: the kind by which ``auto`` chooses a tolerance: ``cpu``, ``dml`` or ``fp16-emulation``.
        answers: a function of feeds and options that yields the device and the outputs by name, feed by feed. It raises
            ``SessionFailure`` if the model does not load or run, ``CheckNotRun`` if the device is not available,
            ``InputError`` if a feed does not fit.
        lower: lower optimisation levels to try if the model does not run at the default.
        ours: True for a model that dmlprep derived: if it does not run, this proves nothing about the user's model.
        code: code of the finding on outputs that differ; empty for DP701 or DP702.
        decides: True if the verdict decides about the model; False if it is information only.
    """

    check: Check
    where: str
    model: Model
    device: SessionDevice
    kind: Literal["cpu", "dml", "fp16-emulation"]
    answers: Callable[[Sequence[Feed], SessionOptions], Answers]
    lower: Sequence[Level] = ()
    ours: bool = False
    code: str = ""
    decides: bool = True


def file_candidate(
    model: Model, device: SessionDevice, *, retreat: bool = True, host: SessionHost | None = None
) -> Candidate:
    """Return a candidate that runs a model file on a device. Nothing runs before its ``answers`` are read.

    The CPU has no kernel for some fused operators (GroupNorm), and rounds in others (MatMulNBits). On the CPU the model
    runs with those nodes expanded, and the description of the device names them.

    Args:
        model: the model as opened; its file runs.
        retreat: True to let the CPU try FP16 files at lower optimisation levels.
        host: the child process for sessions on the CPU; ``None``: a new one.
    """
    path = model.path
    assert path is not None

    def of_file(feeds: Sequence[Feed], options: SessionOptions) -> Answers:
        # The model ran on the CPU within these limits before it runs on DirectML, where memory depends on the driver.
        options = replace(options, model_bytes=model.stored_bytes if device == "cpu" else None)
        with open_session(device, path, options, host if device == "cpu" else None) as session:
            for feed in feeds:
                yield session.device, flatten(session.run_any(adapt_feed(feed, session.inputs, str(path))))

    lower = lower_levels(model) if retreat and device == "cpu" else ()
    written = write_out(model) if device == "cpu" else Written(model, {})
    answers = _of_model(written.model, str(path), host, [str(written)]) if written.counts else of_file
    return Candidate(Check("parity", device), str(path), model, device, device, answers, lower)


def _of_model(
    model: Model,
    where: str,
    host: SessionHost | None,
    details: Sequence[str],
    name: str = "",
    whole_bytes: int = WHOLE_BYTES,
    piece_bytes: int = PIECE_BYTES,
) -> Callable[[Sequence[Feed], SessionOptions], Answers]:
    """Return the function ``Candidate.answers`` for a model in memory, which runs on the CPU.

    Args:
        where: path of the model, for errors.
        host: the child process for the sessions; ``None``: a new one.
        details: texts that describe the device.
        name: name of the emulated device; empty for the CPU itself.
        whole_bytes: largest size of weights in bytes with which the model runs whole; a larger one runs in pieces.
        piece_bytes: size of the weights of one piece in bytes.
    """

    def described(device: DeviceInfo | None) -> DeviceInfo:
        if name or device is None:
            return DeviceInfo(name or "cpu", [*details, f"run on {device}"], "emulation" if name else "cpu")
        return device.also(*details)

    def answers(feeds: Sequence[Feed], options: SessionOptions) -> Answers:
        inputs = graph_inputs(model)
        adapted = [_adapted(feed, {i.name: _name(i.dtype) for i in inputs}, where) for feed in feeds]
        with contextlib.ExitStack() as stack:
            serving = host if host is not None else stack.enter_context(cpu_host())
            if model.statistics().nbytes <= whole_bytes:
                with _linked(model, options, serving) as session:
                    for feed in adapted:
                        yield described(session.device), flatten(session.run_any(feed))
                return
            device, outputs = _in_pieces(model, adapted, options, serving, piece_bytes)
            for index in range(len(adapted)):
                yield described(device), flatten(outputs[index])

    return answers


def emulation_candidate(
    model: Model,
    check: Check,
    where: str,
    device: DeviceInfo,
    *,
    code: str = "",
    decides: bool = True,
    whole_bytes: int = WHOLE_BYTES,
    piece_bytes: int = PIECE_BYTES,
    host: SessionHost | None = None,
) -> Candidate:
    """Return a candidate that runs a derived model, which computes in FP32 on the CPU what FP16 hardware would compute.

    Args:
        check: name of the check in the verdict.
        where: path of the model from which it was derived, for messages.
        device: the emulated device, for the verdict.
        code: code of the finding on outputs that differ.
        decides: True if the verdict decides about the model; False if it is information only.
        whole_bytes: largest size of weights in bytes with which the model runs whole; a larger one runs in pieces, one
            after the other.
        piece_bytes: size of the weights of one piece in bytes.
        host: the child process for the sessions; ``None``: a new one.
    """
    answers = _of_model(model, where, host, device.details, device.name, whole_bytes, piece_bytes)
    return Candidate(check, where, model, "cpu", "fp16-emulation", answers, LOWER_LEVELS, True, code, decides)


def _name(dtype: ir.DataType | None) -> str:
    """Return the name of an element type as sessions report it: numpy's name, or ``string``."""
    if dtype is None or dtype == ir.DataType.STRING:
        return "string"
    return np.dtype(dtype.numpy()).name


@contextlib.contextmanager
def open_exact(model: Model, options: SessionOptions) -> Iterator[tuple[Session, str]]:
    """Open a session on the CPU, with fused operators expanded that the CPU cannot run exactly.

    Yields:
        the session; and a text about the expanded operators, empty if there are none and the file itself runs.

    Raises:
        SessionFailure: the model cannot be loaded.
    """
    written = write_out(model)
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(cpu_host())
        if written.counts:
            yield stack.enter_context(_linked(written.model, options, host)), str(written)
        else:
            assert model.path is not None
            yield stack.enter_context(runtime.open_cpu(model.path, options, host)), ""


@contextlib.contextmanager
def _linked(model: Model, options: SessionOptions, host: SessionHost) -> Iterator[Session]:
    """Open a session on a model in memory; its file in a temporary folder links to the weights instead of copying."""
    with temporary_folder("shadow") as folder:
        path = Path(folder) / "model.onnx"
        config = {**options.config, DATA_FOLDER: str(model.save_linked(path))}
        with host.open(path, replace(options, config=config, model_bytes=model.stored_bytes)) as session:
            yield session


def _in_pieces(
    model: Model, feeds: Sequence[Feed], options: SessionOptions, host: SessionHost, piece_bytes: int
) -> tuple[DeviceInfo | None, list[dict[str, RunValue]]]:
    """Run a model in pieces of ``piece_bytes`` of weights: load each piece once, and run it on all feeds.

    Returns:
        the device, and the outputs by name for each feed.
    """
    device: DeviceInfo | None = None

    def run(piece: Model, values: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        nonlocal device
        with _linked(piece, options, host) as session:
            device = session.device
            outputs = [
                session.run_any({name: several[index] for name, several in values.items()})
                for index in range(len(feeds))
            ]
        return {name: [one[name] for one in outputs] for name in outputs[0]}

    every: dict[str, list[Any]] = {name: [feed[name] for feed in feeds] for name in feeds[0]}
    outputs = run_segments(run, model, every, piece_bytes)
    return device, [{name: several[index] for name, several in outputs.items()} for index in range(len(feeds))]
