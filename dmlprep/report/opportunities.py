"""Show opportunities: what would still make a model faster, smaller or safer, its gain, and the command."""

from __future__ import annotations

from collections.abc import Sequence

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.opportunities import Opportunity

SHOWN = 3
"""The most opportunities in a summary."""


def gain_text(one: Opportunity) -> str:
    """Return the estimated gain, such as ``save 2 copies (1.2 MB) in each run, 40.4 kB of the file``.

    A gain without numbers is ``faster`` or ``safer``.
    """
    each_run = [f"{one.launches:,} launch{'es' * (one.launches > 1)}"] if one.launches > 0 else []
    copied = bytes_text(one.copied_bytes) if one.copied_bytes > 0 else ""
    if one.copies > 0:
        each_run.append(f"{one.copies:,} cop{'y' if one.copies == 1 else 'ies'}{f' ({copied})' if copied else ''}")
    elif copied:
        each_run.append(f"{copied} of copies")
    each_run += [f"{bytes_text(one.fed_bytes)} of inputs and outputs"] if one.fed_bytes > 0 else []
    parts = [f"{', '.join(each_run)} in each run"] if each_run else []
    parts += [f"{bytes_text(one.file_bytes)} of the file"] if one.file_bytes > 0 else []
    parts += [f"{bytes_text(one.memory_bytes)} of device memory"] if one.memory_bytes > 0 else []
    if not parts:
        return "faster" if one.milliseconds else "safer"
    return f"save {'up to ' if one.kind == 'fp16' else ''}{', '.join(parts)}"


def lines(every: Sequence[Opportunity], most: int = SHOWN) -> list[str]:
    """Return two lines for each of the first ``most`` opportunities: its gain with the change, and the command.

    The last line counts those that are left out.
    """
    texts = [text for one in every[:most] for text in (f"{gain_text(one)}: {one.text}", f"  {one.command}")]
    left_out = len(every) - most
    return texts + ([f"and {left_out} smaller gain{'s' * (left_out > 1)}"] if left_out > 0 else [])
