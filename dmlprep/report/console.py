"""A console for texts that quote strangers: no markup, no codes for emoji, and nothing that acts on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dmlprep.record.printable import apart, paragraph, printable, shortened

__all__ = ["PlainConsole"]


class PlainConsole(Console):
    """A console whose every text has passed ``printable``: a string stays on its line, a Text may have several.

    The colours, and the codes that move the cursor for a bar of progress, are rich's own: they are no text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as text: cells of tables, and what is printed as it is."""
        return super().render_str(apart(shortened(printable(text))), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything that is shown comes through here, at each level of what holds something else."""
        return super().render(_plain(renderable) if isinstance(renderable, Text) else renderable, options)


def _plain(text: Text) -> Text:
    said = apart(paragraph(text.plain))
    if said == text.plain:
        return text
    # Its parts lose their colours: where they lie has moved.
    plain = text.blank_copy()
    plain.append(said)
    return plain
