"""The Python worker: ``python -m dmlprep.runtime.worker PARENT EXCHANGE cpu|dml|evaluator``.

It speaks ``wire.py`` on its standard input and output. Whatever a native library prints goes to standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dmlprep.runtime.serving import Worker, answers


def main(arguments: list[str]) -> int:
    parent, exchange, device = arguments
    with answers(int(parent)) as out:
        make: type[Worker] = Worker
        if device == "evaluator":
            from dmlprep.runtime.evaluator import EvaluatorWorker as make
        make(device, Path(exchange), out).serve(sys.stdin.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
