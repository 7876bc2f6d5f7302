"""Tables in a text: on a narrow terminal, cells continue on the next line, and columns in the next table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlprep.portable.printable import inert, printable, shortened

_WHOLE = 24
"""Characters of the longest piece that is not broken; a path may be longer than a terminal is wide."""

_BETWEEN = 2
"""Characters between two columns."""


def show_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], left_aligned: Sequence[str] = ()
) -> None:
    """Print rows below bold heads; columns without a text are left out.

    The first column, which names the row, and those of ``left_aligned`` are aligned to the left.
    All others are aligned to the right.
    """
    # As text: in a plain string, rich reads text in brackets as a style.
    cells = [[Text(inert(shortened(printable(c)))) if isinstance(c, str) else c for c in row] for row in rows]
    indexes = [index for index in range(len(columns)) if any(row[index] for row in cells)]
    texts = {index: [row[index].plain for row in cells] for index in indexes}
    least = {index: _least(columns[index], texts[index]) for index in indexes}
    most = {index: max(map(len, (columns[index], *texts[index]))) for index in indexes}
    for part in _parts(indexes, least, console.width):
        widths = _widths({index: most[index] for index in part}, least, console.width)
        squeezed = sum(widths.values()) + _BETWEEN * (len(widths) - 1) > console.width  # rich narrows columns further
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, width in widths.items():
            starts = index == indexes[0] or columns[index] in left_aligned
            table.add_column(columns[index], justify="left" if starts else "right", overflow="fold", width=width)
        for row in cells:
            table.add_row(*(_folded(row[index], 0 if squeezed else widths[index]) for index in part))
        console.print(table)


def _folded(cell: Text, width: int) -> Text:
    """Return a cell as its column shows it. A fold may begin a line with ``::``, a command to a CI machine."""
    if cell.cell_len <= width or "::" not in cell.plain:
        return cell
    return Text(re.sub(":(?=:)", r"\\x3a", cell.plain))


def _least(name: str, cells: Sequence[str]) -> int:
    """Return the least characters of a column: a head is broken between words, a cell after an arrow."""
    pieces = [*name.split(), *(piece.strip() for cell in cells for piece in cell.replace("-> ", "->\n").split("\n"))]
    return min(max(map(len, pieces), default=0), _WHOLE)


def _parts(indexes: Sequence[int], least: Mapping[int, int], width: int) -> Iterator[list[int]]:
    """Yield the columns of each table; the first column is in all."""
    part = [*indexes[:1]]
    for index in indexes[1:]:
        if len(part) > 1 and sum(least[one] + _BETWEEN for one in part) + least[index] > width:
            yield part
            part = [*indexes[:1]]
        part.append(index)
    yield part


def _widths(widths: dict[int, int], least: Mapping[int, int], width: int) -> dict[int, int]:
    """Return the characters of each column: the widest are narrowed until all fit."""
    while sum(widths.values()) + _BETWEEN * (len(widths) - 1) > width:
        index = max(widths, key=lambda one: widths[one] - least[one])
        if widths[index] <= least[index]:
            break
        widths[index] -= 1
    return widths
