"""Read Windows ML's catalog of execution providers, if the package ``windowsml`` is installed.

A child process reads it, because the catalog is native code that connects to Windows Update. Nothing is downloaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

from dmlprep.core.files import parse_json
from dmlprep.process.tools import run_tool

_LIMIT = 30.0
"""Time limit of the child process in seconds."""


def catalog_lines(system: str = sys.platform) -> list[str]:
    """Return one line of text for each provider that Windows ML has for this machine.

    If there are none, or the catalog does not answer, the only line says so. On other systems, and without the package
    ``windowsml``, there are no lines. DirectML is not in the result. Windows ML lists it as "DirectML (legacy)", and
    every ONNX Runtime for Windows has it.
    """
    if system != "win32" or find_spec("windowsml") is None:
        return []
    try:
        done = run_tool([sys.executable, "-P", "-m", "dmlprep.runtime.catalog"], limit=_LIMIT)
    except subprocess.TimeoutExpired:
        return [f"no answer within {_LIMIT:g} s"]
    except OSError as error:
        return [f"does not answer: {error}"]
    try:
        rows = parse_json(done.stdout.splitlines()[-1], list[tuple[str, str, str]])
    except (ValueError, IndexError):
        last = [f"exit code {done.returncode}", *done.stderr.strip().splitlines()][-1]
        return [f"does not answer: {last}"]
    return [f"{name} {version}: {state}" for name, version, state in rows] or ["no providers for this machine"]


_STATES = {"Ready": "ready", "NotReady": "installed, not loaded yet", "NotPresent": "can be downloaded"}
"""Words for the values of ``windowsml.EpReadyState``."""


def _ask() -> None:
    import windowsml

    with windowsml.EpCatalog() as catalog:
        states = ((one, one.ready_state.name) for one in catalog.find_all_providers())
        sys.stdout.write(json.dumps([[one.name, one.version, _STATES.get(name, name)] for one, name in states]) + "\n")


if __name__ == "__main__":
    _ask()
