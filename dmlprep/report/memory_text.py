"""What a record says of the device's memory, in one line."""

from __future__ import annotations

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.memory import MemoryEstimate


def memory_line(found: MemoryEstimate) -> str:
    """``memory of the device: about 120.1 MB (weights 102.2 MB, activations 16.8 MB, ...), and 107.9 MB shared``."""
    if not found.known:
        return f"memory of the device: not known, {found.unknown}"
    parts = [("weights", found.weights), ("activations", found.activations), ("inputs and outputs", found.feeds)]
    said = ", ".join(f"{name} {bytes_text(count)}" for name, count in parts)
    shared = bytes_text(max(found.shared_peak, found.shared_load))
    return f"memory of the device: about {bytes_text(found.peak)} ({said}), and {shared} of the machine's"
