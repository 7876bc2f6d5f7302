"""A console for text from untrusted sources: no markup, no codes for emoji, and no control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dmlprep.core.text.hanging_indent import indent_of, is_command
from dmlprep.portable.printable import apart, paragraph, printable, shortened


class PlainConsole(Console):
    """A console whose every text has passed ``printable``: a string stays on its line, a Text may have several.

    The colours, and the codes that move the cursor for a bar of progress, are rich's own: they are no text.
    """

    def __init__(self, *, text_width: int | None = None, **options: Any) -> None:
        """Make a console of rich; ``text_width`` is the width at which a text is broken, by default the console's."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._text_width = text_width

    def print(self, *objects: Any, **options: Any) -> None:
        """Break a single text between words, and indent its next lines; do not break a command that can be copied."""
        if len(objects) == 1 and isinstance(objects[0], Text) and not self.soft_wrap and not options:
            text = _plain(objects[0])
            if is_command(text.plain):
                super().print(text, soft_wrap=True)
                return
            for line in _hanging(text, self, self._text_width or self.width):
                super().print(line)
            return
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as text: cells of tables, and text that is printed unchanged."""
        return super().render_str(apart(shortened(printable(text))), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Make a renderable printable, and everything that it contains, at each level."""
        return super().render(_plain(renderable) if isinstance(renderable, Text) else renderable, options)


def _hanging(text: Text, console: Console, width: int) -> Iterable[Text]:
    indent = indent_of(text.plain)
    if text.cell_len <= width or "\n" in text.plain or width < 2 * indent:
        return [text]
    lines = text.wrap(console, width - indent)
    for line in lines[1:]:
        line.pad_left(indent)
    for line in lines:
        line.rstrip()
    return lines


def _plain(text: Text) -> Text:
    content = apart(paragraph(text.plain))
    if content == text.plain:
        return text
    # Its parts lose their colours, because their positions have changed.
    plain = text.blank_copy()
    plain.append(content)
    return plain
