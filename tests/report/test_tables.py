"""Tables on narrow terminals: nothing is cut, and nothing stands beyond the last column."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from dmlprep.report.console import PlainConsole
from dmlprep.report.tables import show_table

_WORDS = st.lists(st.text("abcxyz019.", min_size=1, max_size=14), max_size=3).map(" ".join)


def _shown(columns: list[str], rows: list[list[str]], width: int) -> str:
    written = io.StringIO()
    show_table(PlainConsole(file=written, width=width, color_system=None), columns, rows)
    return written.getvalue()


@given(
    st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(_WORDS, min_size=n, max_size=n), min_size=1, max_size=5)),
    st.sampled_from([40, 60, 80, 120]),
)
def test_all_is_there_and_fits(rows: list[list[str]], width: int) -> None:
    columns = ["name", "runs/s", "peak memory", "on DirectML", "first", "nodes", "crossings", "weights"][: len(rows[0])]
    text = _shown(columns, rows, width)
    assert max(map(len, text.splitlines()), default=0) <= width
    for column, head in enumerate(columns):
        said = [row[column] for row in rows]
        words = [word for cell in said for word in cell.split()]
        assert all(text.count(word) >= words.count(word) for word in words)
        assert not any(said) or all(word in text for word in head.split())


def test_a_cell_is_broken_after_an_arrow_and_a_path_anywhere() -> None:
    path = "models/" + "deep/" * 12 + "detector.onnx"
    text = _shown(["", "weights"], [[path, "22.3 kB -> 11.8 kB"]], 40)
    assert path in "".join(line[:28].strip() for line in text.splitlines())
    assert [line[28:].strip() for line in text.splitlines() if line[28:].strip()] == [
        "weights",
        "22.3 kB ->",
        "11.8 kB",
    ]


@given(
    st.lists(st.sampled_from(["::error::x", "::", "a", "abcdefgh", " ", "/", ":"]), min_size=1, max_size=9).map(
        "".join
    ),
    st.sampled_from([8, 12, 20, 40, 80]),
)
def test_no_fold_begins_a_line_with_a_command_to_a_ci_machine(name: str, width: int) -> None:
    text = _shown(["job", "path"], [[name, name], ["b", name]], width)
    assert [line for line in text.splitlines() if line.lstrip().startswith("::")] == []


def test_a_cell_that_fits_is_not_changed() -> None:
    assert "com.microsoft::FastGelu" in _shown(["operator", "nodes"], [["com.microsoft::FastGelu", "2"]], 80)
