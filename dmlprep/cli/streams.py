"""stdout and stderr while a command runs: output of other code cannot control a terminal or imitate dmlprep's lines.

dmlprep's own text goes through ``cli.output`` and ``cli.console``, which make it printable and write to the stream
itself.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from dmlprep.portable.printable import INDENT, OURS, inert, printable

_LONGEST_COMMAND = 16
"""Most characters of the start of a command to a CI machine."""


class Guarded(io.TextIOBase):
    """A stream for the output of other code.

    Attributes:
        own: the stream itself, for text that is printable already, and for dmlprep's colours.
        beside: receives whole texts while the terminal shows a bar of progress.
    """

    def __init__(self, stream: TextIO) -> None:
        self.own = stream
        self.beside: Callable[[str], None] | None = None
        self._line = ""  # what the last line, which has no end yet, ends with

    def write(self, text: str) -> int:
        """Write ``text``. Line ends stay; other characters that control a terminal or a CI machine are escaped.

        Lines that look like dmlprep's own are indented. If ``beside`` is set, it gets the text instead.
        """
        if not isinstance(text, str):
            raise TypeError(f"a text stream needs str, not {type(text).__name__}")
        if self.beside is not None:
            if text.strip():
                self.beside(text.rstrip("\n"))
            return len(text)
        lines = []
        for number, line in enumerate(text.split("\n")):
            if number:
                self._line = ""
            safe_line = printable(line)
            start = safe_line.casefold()  # of a line that may come in pieces
            forged = bool(start) and any(word.startswith(start) or start.startswith(word) for word in OURS)
            shown = inert(safe_line, self._line)
            lines.append(INDENT + shown if forged and not self._line else shown)
            self._line = (self._line + shown)[-_LONGEST_COMMAND:]
        self.own.write("\n".join(lines))
        return len(text)

    def flush(self) -> None:
        """Flush the stream itself; one that was closed has nothing left to flush.

        Python flushes an object when it deletes it, perhaps after the stream was closed.
        """
        if not self.own.closed:
            self.own.flush()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self.own.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self.own.fileno()

    def writable(self) -> bool:
        """Return ``True``."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self.own.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """The error handler of the stream's encoding."""
        return self.own.errors


def own(stream: TextIO) -> TextIO:
    """Return the stream itself, for printable text."""
    return stream.own if isinstance(stream, Guarded) else stream


def hold_descriptors() -> None:
    """Redirect closed standard streams to the null device.

    Otherwise the next file that is opened, a model, would get the number of one of them.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


@contextmanager
def guarded() -> Iterator[None]:
    r"""Guard stdout and stderr, and let them accept every character: one that they lack is written as ``\u043c``.

    A pipe or a file on Windows has the code page of Windows (cp1252, cp437), which has few of the letters in paths and
    tensor names. A stream that was closed before the start discards its text.
    """
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout, sys.stderr = (cast(TextIO, Guarded(_ready(stream) or nowhere)) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _ready(stream: TextIO | None) -> TextIO | None:
    if stream is None or stream.closed:
        return None
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
