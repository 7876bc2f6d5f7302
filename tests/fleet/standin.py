"""Stands in for ``dmlprep prepare`` in tests of the fleet: what a model's file says is what becomes of it.

``good`` (and whatever else), ``refused``, ``broken``, ``hangs``, ``crashes``, ``data=NAME`` for a data file that it
reads. Run as a file it is the program of a job; ``prepare`` is the same within a process.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any


def prepare(arguments: tuple[str, ...], say=lambda text: print(text, file=sys.stderr, flush=True)) -> int:
    """What the command does; the exit code."""
    from dmlprep.core.errors import InputError
    from dmlprep.record import Check, RunError, RunRecord, Verdict
    from dmlprep.record.placement import PlacementFacts
    from dmlprep.record.run_record import RunFacts

    options = dict(pairwise(arguments))
    out, model = Path(options["-o"]), Path(arguments[-1])
    text = model.read_text()
    say("pin: changed")
    if "broken" in text:
        return _raise(InputError("the file is truncated", where=str(model), code="DP001"), options, say)
    if "missing" in text:
        return _raise(InputError("no such feed", where=str(model), code="DP705"), options, say)
    if "crashes" in text:
        os.abort()
    if "hangs" in text:
        say(f"pid {os.getpid()}")
        time.sleep(600)
    digests = {str(model): _sha(model)}
    for word in text.split():
        if word.startswith("data="):
            data = model.parent / word.removeprefix("data=")
            digests[str(data)] = _sha(data)
    record = RunRecord(
        command="prepare",
        input=str(model),
        target="ort-1.30",
        facts=RunFacts(digests=digests, placement_after=PlacementFacts(nodes=4, dml_nodes=4, crossings=0)),
        verdicts=[Verdict(Check("parity", "cpu"), "passed")],
    )
    if "refused" in text:
        record.exit_code, record.error = 1, RunError("step pin refused", code="DP201")
    Path(options["--html"]).write_text("<p>report</p>")
    if record.exit_code == 0 and "makes nothing" not in text:
        record.output = str(out / "model.onnx")
        (out / "model.onnx").write_text(f"made of {text}")
        (out / "run.json").write_bytes(record.to_json())
    if "says nothing" not in text:
        Path(options["--record"]).write_bytes(record.to_json())
    say("save: 0 MB")
    return record.exit_code


def _raise(error: Any, options: dict[str, str], say: Callable[[str], None]) -> int:
    from dmlprep.record import RunError, RunRecord

    record = RunRecord("prepare", error.where, exit_code=error.exit_code, error=RunError.of(error))
    Path(options["--record"]).write_bytes(record.to_json())
    say(f"error: {error}")
    return error.exit_code


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(prepare(tuple(sys.argv[1:])))
