"""The Python worker: ``python -P worker.py EXCHANGE cpu|dml|evaluator``.

It uses the protocol of ``wire.py`` on standard input and output. Output of native libraries goes to standard error.

It runs as a file, because the packages around it would import modules that a worker never needs. That would take a
quarter of its start-up CPU time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def alone() -> None:
    """Register ``dmlprep`` and ``dmlprep.runtime`` as packages without running their ``__init__.py``.

    Modules in them can then be imported alone.
    """
    here = Path(__file__).parent
    for name, folder in (("dmlprep", here.parent), ("dmlprep.runtime", here)):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)


def main(arguments: list[str]) -> int:
    """Serve requests on standard input until it ends."""
    exchange, device = arguments
    if device != "evaluator":  # the evaluator reads models like the rest of dmlprep
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
