"""Implement ``python run.py``: check the kit, run the worker with a time limit, and write ``result.zip``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import device, integrity, keys, limits, process, work
from .bounds import MOST_ADAPTERS, MOST_RUNS, MOST_SECONDS
from .locks import clear_left, hold_new
from .memory import Family
from .printable import inert, printable, shortened
from .replacing import rename_new, replace
from .shares import percent

_EXIT = {"passed": 0, "failed": 1, "not-run": 3}
_SLICE = 0.2  # seconds

_PREFIX = ".run-"
"""Prefix of the folders in which results are written. Leftovers of killed runs are removed."""


def _say(*lines: str) -> None:
    """Print lines in a form that is safe for terminals and CI systems."""
    sys.stdout.write("".join(f"{inert(shortened(printable(line)))}\n" for line in lines))
    sys.stdout.flush()


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``least`` to ``most``, for argparse.

    It refuses thousands of digits, which Python cannot parse.
    """

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    """Parse a time limit in seconds. NaN is refused, because it would mean to wait forever.

    Raises:
        argparse.ArgumentTypeError: the text is not a number above 0 and up to ``MOST_SECONDS``.
    """
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= MOST_SECONDS:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds above 0 and at most {MOST_SECONDS:g}")


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Run the model of this kit on DirectML and write result.zip for the person who sent it.",
        epilog="Exit codes: 0 the outputs match. 1 they differ, or the model fails. 2 "
        "the kit is damaged or the command is wrong. 3 the provider did not run.",
    )
    parser.add_argument("--provider", default=work.DML, choices=[work.DML, "CPUExecutionProvider"])
    adapter = parser.add_mutually_exclusive_group()
    number = _whole(0, MOST_ADAPTERS)
    adapter.add_argument("--device-id", type=number, metavar="N", help="adapter by its number in the order of DXGI")
    by_name = "adapter by vendor (NVIDIA, AMD, Intel, Qualcomm) or a part of its name"
    adapter.add_argument("--adapter", metavar="NAME", help=by_name)
    parser.add_argument(
        "--disable-metacommands", action="store_true", help="use DirectML's own shaders, not the vendor's"
    )
    parser.add_argument("--optimization", choices=["disabled", "basic", "extended", "all"])
    parser.add_argument("--runs", type=_whole(1, MOST_RUNS), metavar="N", help="number of timed runs of each feed")
    parser.add_argument("--time-limit", type=_seconds, metavar="SECONDS", help="time limit for all runs together")
    parser.add_argument("-o", "--out", type=Path, help="file for the result; by default result.zip next to run.py")
    parser.add_argument("--force", action="store_true", help="replace an existing result")
    parser.add_argument("--key", type=Path, metavar="FILE", help="sign the result with this kit's run key")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(list(arguments))


class _Refused(Exception):
    """The run does not start, or its result is not written. The arguments are the lines for the user."""


class _Stopped(KeyboardInterrupt):
    """The run was stopped by the signal with this number."""


_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_STOPS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
"""The signals that stop a run: Ctrl-C, a request to end, a closed terminal, and Ctrl-Break on Windows."""


def _stop(number: int, _frame: object) -> None:
    for stop in _STOPS:  # a second signal would interrupt the cleanup
        signal.signal(stop, signal.SIG_IGN)
    raise _Stopped(number)


def main(kit: Path, arguments: Sequence[str]) -> int:
    """Run the kit in the folder ``kit`` with the arguments of the command line; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A console in a Windows code page may lack some letters of an adapter's name.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    asked = _arguments(arguments)
    if asked.worker is not None:
        return work.main(kit, asked.worker)
    for stop in _STOPS:
        if signal.getsignal(stop) != signal.SIG_IGN:
            signal.signal(stop, _stop)
    try:
        return _main(kit, asked)
    except _Stopped as stopped:
        with contextlib.suppress(OSError):  # the terminal may be closed
            _say("stopped; no result was written")
        return 128 + int(stopped.args[0] if sys.platform != "win32" else signal.SIGINT)
    except _Refused as refused:
        _say(*refused.args)
        return 2
    except OSError as error:
        _say(f"error: {error}")
        return 2


def _main(kit: Path, asked: argparse.Namespace) -> int:
    out = (asked.out or kit / "result.zip").absolute()
    if os.path.lexists(out) and not asked.force:
        raise _is_there(out)
    manifest, name, key = _checked(kit, asked)
    try:
        request = _request(manifest, asked)
    except (ValueError, OSError) as error:
        raise _Refused(f"error: {error}", "  fix: choose with --device-id, or remove --adapter") from error
    try:
        allowed = limits.memory_limit()
    except ValueError as error:
        raise _Refused(f"error: {limits.VARIABLE}: {error}") from error
    clear_left(out.parent, _PREFIX)
    own = hold_new(out.parent, _PREFIX)
    folder = own.path
    try:
        limit = float(asked.time_limit or manifest["time_limit"])
        began = time.monotonic()

        def work_on(asked_for: Mapping[str, object]) -> dict[str, object]:
            (folder / "request.json").write_text(json.dumps(asked_for), encoding="utf-8")
            return _work(kit, folder, limit, limit - (time.monotonic() - began), allowed)

        state = work_on(request)
        others, race = _candidates(manifest, request, state, work_on)
        result = _result(state, name, request, folder, others, race)
        try:
            _write(result, folder, out, key, asked.force)
        except FileExistsError:  # another program created it while the models ran
            raise _is_there(out) from None
    finally:
        own.remove()
    _summary(result)
    _say(f"wrote {out.name}: send it back")
    # One correct candidate is enough.
    return min((_EXIT[one["outcome"]] for one in (result, *result["others"])), default=3)


def _checked(kit: Path, asked: argparse.Namespace) -> tuple[dict[str, Any], str, keys.RunKey | None]:
    """Check the kit's files; return the content of ``kit.json``, the kit's id, and the key for the result.

    The key is ``None`` without ``--key``.

    Raises:
        _Refused: the kit is damaged, or the key is not its key.
    """
    try:
        manifest, name = integrity.read_manifest(kit)
    except ValueError as error:
        raise _Refused(f"error: {error}") from error
    key = None
    if asked.key is not None:
        try:
            key = keys.read_run_key(asked.key, name)
        except (ValueError, OSError) as error:
            fix = "  fix: pass the .run-key file of this kit"
            raise _Refused(f"error: --key: {error}", fix) from error
    elif manifest.get("nonce"):
        _say("this kit was packed with a key: without --key its result is not signed, and might be refused")
    _say(f"kit {name[:12]}: {manifest['model']['name']}, {len(manifest['feeds'])} feeds; checking its files")
    wrong = integrity.problems(kit, manifest)
    if wrong:
        raise _Refused(
            "error: this is not the kit that was packed",
            *(f"  {one}" for one in wrong[:10]),
            "  fix: extract the zip again into an empty folder; if that does not help, ask for it again",
        )
    return manifest, name, key


def _is_there(out: Path) -> _Refused:
    return _Refused(f"error: {out.name} already exists", "  fix: python run.py --force, or -o another.zip")


def _candidates(
    manifest: Mapping[str, Any],
    request: Mapping[str, object],
    first: Mapping[str, object],
    work_on: Callable[[Mapping[str, object]], dict[str, object]],
) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Run the other models of the kit, then time the correct ones in turn.

    Return the state of each other model, and the state of the timing. If the first model was not run, no other one is.
    With fewer than two correct models, the state of the timing is only a ``reason``.
    """
    listed = manifest.get("candidates", [])
    others: list[dict[str, object]] = []
    for number in range(1, len(listed)):
        _say(f"candidate {number + 1} of {len(listed)}: {listed[number]['name']}")
        if first["outcome"] == "not-run":
            others.append({"outcome": "not-run", "reason": first["reason"]})
        else:
            others.append(work_on({**request, "candidate": number}))
    right = [number for number, state in enumerate([first, *others]) if state["outcome"] == "passed"]
    if len(listed) < 2 or len(right) < 2:
        return others, {"reason": "fewer than two candidates to compare" if listed else ""}
    _say("timing the candidates in turn")
    return others, work_on({**request, "race": right, "race_seconds": manifest.get("bench_seconds", 20.0)})


def _request(manifest: Mapping[str, Any], asked: argparse.Namespace) -> dict[str, object]:
    """Return the request for the worker: the kit's settings, overridden by the command line.

    Raises:
        ValueError: ``--adapter`` matches no adapter or several, or the provider uses no adapter.
        OSError: DXGI does not answer.
    """
    session = dict(manifest["session"])
    if asked.device_id is not None:
        session.pop("adapter", None)
        session["device_id"] = str(asked.device_id)
    if asked.adapter is not None:
        if asked.provider != work.DML:
            raise ValueError(f"--adapter chooses a GPU, but {asked.provider} does not use GPUs")
        session = device.with_number({**session, "adapter": asked.adapter})
    if asked.disable_metacommands:
        session["disable_metacommands"] = "1"
    if asked.optimization:
        session["optimization"] = asked.optimization
    runs = asked.runs if asked.runs is not None else manifest["runs"]
    return {"provider": asked.provider, "runs": runs, "warm_up": manifest["warm_up"], "session": session}


def _work(kit: Path, folder: Path, limit: float, remaining: float, allowed: limits.MemoryLimit) -> dict[str, object]:
    """Run the worker process to its end and return its state. If it died, the state describes the failure.

    Args:
        limit: the time limit of all workers together, in seconds.
        remaining: the seconds of it that remain for this worker.
        allowed: the memory limit of the worker.
    """
    command = [sys.executable, "-B", str(kit / "run.py"), "--worker", str(folder)]
    log = folder / "log.txt"
    with contextlib.suppress(OSError):
        (folder / work.STATE).unlink()  # the state of the previous worker
    job = process.Job()
    with log.open("wb") as sink:
        flags, environment = process.CREATION_FLAGS, process.environment()
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sink, stderr=sink, creationflags=flags, env=environment
        )
        try:
            job.add(child)
            family = Family(child.pid)
            code = _wait(child, remaining, lambda: _too_much(family, job, allowed))
            ended = f"the process died with {_exit_name(code)}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"it took longer than {limit:g} seconds (--time-limit)"
        except MemoryError as error:
            ended = f"it {error}"
        finally:
            with contextlib.suppress(OSError):
                child.kill()
            job.end()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
    state: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        state = json.loads((folder / work.STATE).read_text(encoding="utf-8"))
    if not state.get("outcome"):
        stage = state.get("stage", "start")
        ended = ended or "the process ended without a message"
        tail = log.read_bytes()[-2000:].decode("utf-8", "replace").strip()
        failure = {"stage": stage, "message": f"{ended}\n{tail}".strip(), "hresult": "", "causes": [], "next_step": ""}
        # Before a session exists, DirectML cannot have failed.
        before = stage in ("start", "import onnxruntime")
        state.update(outcome="not-run" if before else "failed", reason=f"{stage}: {ended}", failure=failure)
    return state


def _too_much(family: Family, job: process.Job, allowed: limits.MemoryLimit) -> None:
    """Raise a MemoryError if the child and its descendants use more memory than allowed."""
    if allowed.nbytes and (held := job.private_bytes() or family.private_bytes()) > allowed.nbytes:
        raise MemoryError(allowed.exceeded(held))


def _wait(child: subprocess.Popen[bytes], limit: float, look: Callable[[], None]) -> int:
    """Wait for the child process and return its exit code.

    It waits in slices, because Windows delivers Ctrl-C only between two waits. ``look`` is called between two waits. An
    exception from it ends the wait.

    Raises:
        subprocess.TimeoutExpired: the child ran longer than ``limit`` seconds.
    """
    end = time.monotonic() + limit
    while True:
        try:
            return child.wait(max(0.0, min(_SLICE, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                raise
        look()


def _exit_name(code: int) -> str:
    known = {0xC0000005: "an access violation", 0xC0000409: "a stack overrun", 0xC00000FD: "a stack overflow"}
    if code < 0:
        return f"signal {-code}"
    return f"{known[code]} ({code:08X})" if code in known else f"exit code {code} ({code:08X})"


def _result(
    state: dict[str, object],
    name: str,
    request: Mapping[str, object],
    folder: Path,
    others: Sequence[Mapping[str, Any]],
    race: Mapping[str, object],
) -> dict[str, Any]:
    feeds = [feed for one in (state, *others) for feed in one.get("feeds", [])]
    named = {file for feed in feeds for file in feed["outputs"].values()}
    files = {}
    for path in sorted((folder / "outputs").glob("*.npy")):
        if (member := f"outputs/{path.name}") in named:  # an interrupted feed leaves files that no feed names
            size, digest = integrity.file_digest(path)
            files[member] = {"bytes": size, "sha256": digest}
    result = {
        "format": 1,
        "kit": name,
        "provider": request["provider"],
        "runs": request["runs"],
        **_of_model(state, request),
        "others": [_of_model(one, request) for one in others],
        "turns": race.get("turns", {}),
        "untimed": "" if race.get("turns") else race.get("reason", ""),
        "system": state.get("system", {}),
        "device": state.get("device", {}),
        "files": files,
    }
    result["seal"] = integrity.seal(result)
    return result


def _of_model(state: Mapping[str, Any], request: Mapping[str, object]) -> dict[str, object]:
    """Return the part of the result for one model: its outcome, session and feeds."""
    return {
        "outcome": state["outcome"],
        "reason": state.get("reason", ""),
        "failure": state.get("failure"),
        "session": {"options": request["session"], **state.get("session", {})},
        "feeds": state.get("feeds", []),
    }


def _write(result: Mapping[str, Any], folder: Path, out: Path, key: keys.RunKey | None, force: bool) -> None:
    """Write the result and its output files as ``out``, a zip, atomically; sign it if there is a key.

    Raises:
        FileExistsError: ``out`` exists, and ``force`` is not set.
    """
    document = json.dumps(result, indent=1, sort_keys=True).encode("ascii")
    part = folder / "result.zip"
    with zipfile.ZipFile(str(part), "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr("result.json", document)
        if key is not None:
            archive.writestr(keys.RESULT_SEAL, key.seal(document) + b"\n")
        for file in result["files"]:
            archive.write(str(folder / file), file)
    (replace if force else rename_new)(part, out)


def _summary(result: Mapping[str, Any]) -> None:
    for key in ("adapter", "adapter number", "driver", "directml", "directml library"):
        if key in result["device"]:
            _say(f"  {key}: {result['device'][key]}")
    session = result["session"]
    if "kernels" in session:
        _say("  kernels: " + ", ".join(f"{n} on {p}" for p, n in sorted(session["kernels"].items())))
    for number, feed in enumerate(result["feeds"], 1):
        timed = sorted(feed["seconds"])
        _say(f"  feed {number}: first run {feed['first_seconds']:.4f} s, then {timed[len(timed) // 2]:.4f} s")
        for one in feed["metrics"]:
            equal = f"{percent(one['share_equal'], 2)} equal" if one["share_equal"] < 1 else ""
            numbers = one["note"] or equal or f"max|d|/max|expected| {one['max_rel']:.3g}, cosine {one['cosine']:.6f}"
            _say(f"    {one['output']}: {'as expected' if one['passed'] else 'NOT as expected'}, {numbers}")
    for number, one in enumerate(result["others"], 2):
        _say(f"  candidate {number}: {one['outcome']}" + (f", {one['reason']}" if one["reason"] else ""))
    for number, turns in sorted(result["turns"].items()):
        runs = sorted(seconds for turn in turns for seconds in turn)
        _say(
            f"  candidate {int(number) + 1}: {1000 * runs[len(runs) // 2]:.4g} ms a run, "
            "measured in turn with the others"
        )
    if result["provider"] != work.DML:
        _say(f"  on {result['provider']}: this proves nothing about DirectML")
    _say(f"{result['outcome']}" + (f": {result['reason']}" if result["reason"] else ""))
    failure = result["failure"] or {}
    if failure.get("hresult"):
        _say(f"  {failure['hresult']}; likely: {'; '.join(failure['causes'])}")
    if failure.get("next_step"):
        _say(f"  next: {failure['next_step']}")
