"""A process that runs one command after another, as the console script does: ``python -m tests.fuzz.worker``.

Each line of the standard input is a request ``{"folder": ..., "command": [...]}``; each line of the answer tells the
exit code, the traceback of what was raised, and the most memory held. The output of the command goes into files.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from dmlprep.cli.main import main

__all__: list[str] = []


def _command(folder: str, arguments: list[str]) -> dict[str, Any]:
    os.chdir(Path(folder) / "case")
    _reset_peak()
    sys.argv = ["dmlprep", "--debug", *arguments]
    code, raised = 0, ""
    with (
        (Path(folder) / "out.txt").open("w", encoding="utf-8", errors="surrogateescape", newline="") as out,
        (Path(folder) / "err.txt").open("w", encoding="utf-8", errors="surrogateescape", newline="") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        except BaseException:
            raised = traceback.format_exc()
    return {"code": code, "raised": raised[-6000:], "peak": _peak()}


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_command(request["folder"], request["command"])), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
