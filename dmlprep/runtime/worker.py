"""The Python worker: ``python -P worker.py EXCHANGE cpu|dml|evaluator``.

It speaks ``wire.py`` on its standard input and output. Whatever a native library prints goes to standard error.

It is run as a file: the packages around it import what a worker never asks for, in a quarter of the processor time
that it needs until it is ready.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def alone() -> None:
    """Let ``dmlprep`` and ``dmlprep.runtime`` be folders of modules, whose own imports are not made."""
    here = Path(__file__).parent
    for name, folder in (("dmlprep", here.parent), ("dmlprep.runtime", here)):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)


def main(arguments: list[str]) -> int:
    exchange, device = arguments
    if device != "evaluator":  # which reads models as the rest of dmlprep does
        alone()
    from dmlprep.runtime.serving import Worker, answers, serve

    with answers() as out:
        make: type[Worker] = Worker
        if device == "evaluator":
            from dmlprep.runtime.evaluator import EvaluatorWorker as make
        serve(sys.stdin.buffer, out, make(device, Path(exchange), out).handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
