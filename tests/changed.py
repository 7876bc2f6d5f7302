"""Files that change while a command uses them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

__all__ = ["Once", "added", "flip", "names", "rewrite", "touch"]

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y)
<float[4] b = {1, 2, 3, 4}> { y = Add(x, b) }"""


def added(path: Path, *values: float) -> Path:
    """A model that adds four numbers, which lie in a data file beside it: ``a.onnx`` and ``a.data``."""
    proto = parser.parse_model(_TEXT)
    weights = numpy_helper.to_array(proto.graph.initializer[0]) if not values else np.array(values, np.float32)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "b"))
    onnx.save(proto, path, save_as_external_data=True, location=path.with_suffix(".data").name, size_threshold=0)
    return path


def rewrite(path: Path, content: bytes) -> None:
    """Write other contents of the same size in place, and leave number and time as they were."""
    before = path.stat()
    assert len(content) == before.st_size
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path: Path) -> None:
    """Change one byte in place, and leave size, number and time as they were."""
    content = path.read_bytes()
    rewrite(path, bytes([content[0] ^ 1]) + content[1:])


def touch(path: Path) -> None:
    """Change a file's time, which is all that commands see that read it once."""
    os.utime(path, ns=(1, 1))


def names(folder: Path) -> list[str]:
    """All that lies in a folder and below it, also what is hidden."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class Once:
    """A progress function: something happens at the first text that begins so."""

    def __init__(self, act: Callable[[], Any], at: str = "") -> None:
        self.act, self.at, self.done = act, at, False

    def __call__(self, _share: float, text: str) -> None:
        if not self.done and text.startswith(self.at):
            self.done = True
            self.act()
