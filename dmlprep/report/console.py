"""A console for text from untrusted sources: it prints no markup, no emoji codes and no control characters of texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dmlprep.core.text.hanging_indent import indent_of, is_command
from dmlprep.portable.printable import apart, paragraph, printable, shortened


class PlainConsole(Console):
    """A console of rich that makes every text printable. A string stays on one line; a Text may have several lines.

    Colours, and the codes that move the cursor for a progress bar, come from rich itself and still work.
    """

    def __init__(self, *, text_width: int | None = None, **options: Any) -> None:
        """Create the console; ``options`` are those of rich's Console.

        ``text_width``: the number of characters at which a line is broken; by default the console's width.
        """
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._text_width = text_width

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects. A single Text is broken between words, and its next lines are indented.

        A command that users can copy is not broken.
        """
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
        """Return a string as a printable Text. rich calls this for strings and for the cells of tables."""
        return super().render_str(apart(shortened(printable(text))), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object, and make its text printable. rich calls this for each object inside another, too."""
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
