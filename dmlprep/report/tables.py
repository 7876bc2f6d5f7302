"""Print tables. On a narrow terminal, cells continue on the next line, and columns continue in a further table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlprep.portable.printable import inert, printable, shortened

_WHOLE = 24
"""The most characters of a piece of text that is never broken. A path may be longer than a terminal is wide."""

_BETWEEN = 2
"""The number of characters between two columns."""


def show_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], left_aligned: Sequence[str] = ()
) -> None:
    """Print a table with bold heads. Columns whose cells are all empty are left out.

    The first column, which names the row, and the columns named in ``left_aligned`` are aligned to the left, all others
    to the right.
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
    """Return a cell, with ``::`` escaped if the cell is broken into lines of ``width`` characters.

    Otherwise a line could begin with ``::``, which is a command in the log of a CI system.
    """
    if cell.cell_len <= width or "::" not in cell.plain:
        return cell
    return Text(re.sub(":(?=:)", r"\\x3a", cell.plain))


def _least(name: str, cells: Sequence[str]) -> int:
    """Return the least width of a column in characters, at most 24.

    The head ``name`` may be broken between words, a cell after an arrow ``->``.
    """
    pieces = [*name.split(), *(piece.strip() for cell in cells for piece in cell.replace("-> ", "->\n").split("\n"))]
    return min(max(map(len, pieces), default=0), _WHOLE)


def _parts(indexes: Sequence[int], least: Mapping[int, int], width: int) -> Iterator[list[int]]:
    """Divide columns into tables that fit ``width``: yield the indices of each table's columns.

    The first column is in every table. ``least``: the least width of each column.
    """
    part = [*indexes[:1]]
    for index in indexes[1:]:
        if len(part) > 1 and sum(least[one] + _BETWEEN for one in part) + least[index] > width:
            yield part
            part = [*indexes[:1]]
        part.append(index)
    yield part


def _widths(widths: dict[int, int], least: Mapping[int, int], width: int) -> dict[int, int]:
    """Narrow the columns of a table until they fit ``width``, and return the width of each in characters.

    The columns with most room are narrowed first, none below its least width: the table may stay too wide.
    """
    while sum(widths.values()) + _BETWEEN * (len(widths) - 1) > width:
        index = max(widths, key=lambda one: widths[one] - least[one])
        if widths[index] <= least[index]:
            break
        widths[index] -= 1
    return widths
