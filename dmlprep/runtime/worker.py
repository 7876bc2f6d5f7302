"""The Python worker: ``python -m dmlprep.runtime.worker cpu|dml|evaluator PARENT EXCHANGE``.

It speaks ``wire.py`` on its standard input and output. Whatever a native library prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dmlprep.runtime.memory import die_with_parent, prefer_as_victim
from dmlprep.runtime.offsite.process import no_crash_dialog
from dmlprep.runtime.serving import Worker


def main(arguments: list[str]) -> int:
    device, parent, exchange = arguments
    no_crash_dialog()
    die_with_parent(int(parent))
    prefer_as_victim()
    # Native libraries print to descriptor 1; the protocol keeps the pipe for itself.
    pipe = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(pipe, "wb", buffering=1 << 16) as out:
        make: type[Worker] = Worker
        if device == "evaluator":
            from dmlprep.runtime.evaluator import EvaluatorWorker as make
        make(device, Path(exchange), out).serve(sys.stdin.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
