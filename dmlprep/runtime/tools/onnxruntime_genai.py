"""Generate text greedily with onnxruntime-genai, an optional package, in a child process (``genai_process.py``).

The process has limits of time and memory, and uses the line format of ``process/wire.py``. It sends no data: the
telemetry of onnxruntime-genai is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dmlprep.core.errors import CheckNotRun
from dmlprep.process.child import Child
from dmlprep.process.failure import failure
from dmlprep.process.starting import allowed_memory
from dmlprep.runtime.environment import installed_versions, python

_WITH_DIRECTML = ("onnxruntime-genai-winml", "onnxruntime-genai-directml")
PACKAGES = ("onnxruntime-genai", *_WITH_DIRECTML, "onnxruntime-genai-cuda")
"""Packages that all install the folder ``onnxruntime_genai``."""


def missing(provider: Literal["cpu", "dml"]) -> str:
    """Return why onnxruntime-genai cannot generate on a provider here; empty if it can."""
    installed = installed_versions(PACKAGES)
    if not installed or find_spec("onnxruntime_genai") is None:
        return f'onnxruntime-genai is not installed: {python()} -m pip install "dmlprep[genai]"'
    if provider == "dml" and not installed.keys() & {*_WITH_DIRECTML}:
        return f"{' and '.join(installed)} has no DirectML: {' or '.join(_WITH_DIRECTML)} has"
    return ""


def generate(
    folder: Path, provider: Literal["cpu", "dml"], prompt: Sequence[int], count: int, *, time_limit: float = 600.0
) -> tuple[list[int], str]:
    """Generate text with a genai folder; return the new tokens (ids), and the version of onnxruntime-genai.

    Each token is the most likely one, whatever the folder's search options are, even after an end of the text.

    Args:
        prompt: token ids.
        count: number of tokens to generate.
        time_limit: in seconds.

    Raises:
        CheckNotRun: onnxruntime-genai is not installed, or lacks this provider.
        SessionFailure: it cannot run the folder, or exceeded its time or memory.
    """
    if reason := missing(provider):
        raise CheckNotRun(reason)
    # Hugging Face's cache consists of links.
    linked = [path.resolve() for path in folder.iterdir() if path.is_symlink()]
    process = str(Path(__file__).with_name("genai_process.py"))
    child = Child.of_file(process, "onnxruntime-genai", reads=[folder.resolve(), *linked])
    try:
        request = ["generate", str(folder.resolve()), provider, str(count), *map(str, prompt)]
        answer = child.ask([request], limit=time_limit, memory=allowed_memory().nbytes, where=str(folder))
    finally:
        child.kill()  # its destructors can hang
    try:
        (version,) = [row[1] for row in answer if row[0] == "version"]
        tokens = [int(token) for row in answer if row[0] == "tokens" for token in row[1:]]
        if len(tokens) != count:
            raise ValueError(f"{len(tokens)} tokens of {count}")
    except (ValueError, IndexError) as error:
        what = f"onnxruntime-genai returned an invalid answer: {error}"
        raise failure("protocol", what, str(folder)) from error
    return tokens, version
