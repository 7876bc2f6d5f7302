"""Edit a JSON text where it stands: what is not changed keeps its form, its order and its numbers as written."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from typing import Any

from dmlprep.genai.document import whole_number

__all__ = ["JsonText"]

Path = Sequence[str | int]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=whole_number)


class JsonText:
    """A JSON document as text. The text is a valid document, which whoever makes this has checked.

    Only the objects and arrays on the way to an edit are taken apart, each once: a document with an edit in each of
    its sections costs its length for each level, not for each edit.

    Args:
        text: the document, without a byte-order mark.
    """

    def __init__(self, text: str) -> None:
        start = _skip(text, 0)
        end = _DECODER.raw_decode(text, start)[1]
        self._before, self._root, self._after = text[:start], _Value(text[start:end]), text[end:]
        self._newline = "\r\n" if "\r\n" in text else "\n"
        lead = self._root.lead(0) if len(self._root) else ""
        self._indent = (lead or "") if len(self._root) else "    "

    @property
    def text(self) -> str:
        """The document as it is now."""
        return self._before + self._root.render() + self._after

    def get(self, path: Path, default: Any = None) -> Any:
        """The value at ``path``, the whole document at an empty one; ``default`` where there is none."""
        found = self._walk(path)
        return default if found is None else _DECODER.decode(found[-1].render())

    def set(self, path: Path, value: Any) -> bool:
        """Write ``value`` at ``path``; objects on the way that are missing, or are something else, are made.

        Returns:
            whether that changed anything.
        """
        found = self._walk(path)
        if found is not None:
            if _same(_DECODER.decode(found[-1].render()), value):
                return False
            self._put(found, path, value)
            return True
        depth = len(path) - 1
        while (way := self._walk(path[:depth])) is None:
            depth -= 1
        for key in reversed(path[depth + 1 :]):
            value = {key: value}
        if way[-1].takes(path[depth]):
            self._insert(way, path[depth], value)
        else:
            self._put(way, path[:depth], {path[depth]: value})
        return True

    def remove(self, path: Path) -> bool:
        """Remove the member at ``path``; whether there was one."""
        found = self._walk(path)
        if found is None or not path:
            return False
        found[-2].remove(found[-2].find(path[-1]))
        return True

    def _walk(self, path: Path) -> list[_Value] | None:
        """The values on the way to ``path``, from the whole document to the value; ``None`` where it ends before."""
        found = [self._root]
        for key in path:
            index = found[-1].find(key)
            if index < 0:
                return None
            found.append(found[-1].member(index))
        return found

    def _put(self, way: list[_Value], path: Path, value: Any) -> None:
        """Another value in the place of the one at ``path``, to which ``way`` leads."""
        if not path:
            self._root = _Value(self._shown(value, ""))
            return
        parent = way[-2]
        index = parent.find(path[-1])
        parent.put(index, self._shown(value, parent.lead(index) or ""))

    def _insert(self, way: list[_Value], key: str | int, value: Any) -> None:
        """Add a member behind the last one of the object or array at the end of ``way``."""
        into = way[-1]
        name = "" if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}: "
        if len(into):
            lead = into.lead(len(into) - 1)
            gap = ", " if lead is None else f",{self._newline}{lead}"
            into.append(f"{gap}{name}{self._shown(value, lead or '', inline=lead is None)}")
        elif self._indent:
            outer = self._line_lead(way)
            lead = outer + self._indent
            into.fill(f"{self._newline}{lead}{name}{self._shown(value, lead)}{self._newline}{outer}")
        else:
            into.fill(f"{name}{self._shown(value, '', inline=True)}")

    def _shown(self, value: Any, lead: str, *, inline: bool = False) -> str:
        """A value as text whose lines begin with ``lead``."""
        if inline or not self._indent:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, ensure_ascii=False, indent=self._indent)
        return text.replace("\n", self._newline + lead)

    def _line_lead(self, way: list[_Value]) -> str:
        """The white space that the line begins with in which the last value of ``way`` stands."""
        for parent, value in zip(reversed(way[:-1]), reversed(way), strict=False):
            line = parent.line_before(value)
            if line is not None:
                return line[: len(line) - len(line.lstrip())]
        return self._before.rpartition("\n")[2]


class _Value:
    """The text of one value, from its first character to its last, taken apart where somebody looks into it.

    Args:
        text: that of a valid value.
    """

    __slots__ = ("_inner", "_names", "_places", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._forget()

    def _forget(self) -> None:
        self._places: tuple[array[int], array[int], array[int]] | None = None
        self._names: dict[str, int] = {}
        self._inner: dict[int, _Value] = {}

    def __len__(self) -> int:
        """How many members an object or elements an array has; 0 of another value."""
        return len(self._taken_apart()[0])

    def takes(self, key: str | int) -> bool:
        """Whether a member of this name, or an element, can be added."""
        return self._text[0] == ("[" if isinstance(key, int) else "{")

    def find(self, key: str | int) -> int:
        """The index of a member or an element; -1 where there is none. Of a name that stands twice the last counts, as
        for every reader."""
        if isinstance(key, int):
            return key if self.takes(key) and 0 <= key < len(self) else -1
        self._taken_apart()
        return self._names.get(key, -1)

    def member(self, index: int) -> _Value:
        """The value of a member; what is changed in it is changed here."""
        if index not in self._inner:
            _, values, ends = self._taken_apart()
            self._inner[index] = _Value(self._text[values[index] : ends[index]])
        return self._inner[index]

    def lead(self, index: int) -> str | None:
        """What stands before a member in its line, where that is white space alone; else ``None``."""
        begin = self._taken_apart()[0][index]
        newline = self._text.rfind("\n", 0, begin)
        before = self._text[newline + 1 : begin]
        return None if newline < 0 or before.strip() else before

    def line_before(self, member: _Value) -> str | None:
        """What stands before a member's value in its line; ``None`` where the line begins outside of this value."""
        index = next(index for index, inner in self._inner.items() if inner is member)
        value = self._taken_apart()[1][index]
        newline = self._text.rfind("\n", 0, value)
        return None if newline < 0 else self._text[newline + 1 : value]

    def put(self, index: int, text: str) -> None:
        """Another value in the place of a member's."""
        self._inner[index] = _Value(text)

    def append(self, text: str) -> None:
        """Add text behind the last member."""
        self._settle()
        end = self._taken_apart()[2][-1]
        self._splice(end, end, text)

    def fill(self, text: str) -> None:
        """Text between the brackets of a value without members."""
        self._splice(1, len(self._text) - 1, text)

    def remove(self, index: int) -> None:
        """Take a member out."""
        self._settle()
        begins, _, ends = self._taken_apart()
        if index + 1 < len(begins):
            self._splice(begins[index], begins[index + 1], "")
        else:
            self._splice(ends[index - 1] if index else begins[index], ends[index], "")

    def render(self) -> str:
        """The text as it is now."""
        if not self._inner:
            return self._text
        _, values, ends = self._taken_apart()
        pieces, place = [], 0
        for index in sorted(self._inner):
            pieces += [self._text[place : values[index]], self._inner[index].render()]
            place = ends[index]
        return "".join([*pieces, self._text[place:]])

    def _settle(self) -> None:
        self._text = self.render()
        self._forget()

    def _splice(self, begin: int, end: int, text: str) -> None:
        self._text = self._text[:begin] + text + self._text[end:]
        self._forget()

    def _taken_apart(self) -> tuple[array[int], array[int], array[int]]:
        """Where members begin, where their values begin, and where these end; nothing for a value that has none."""
        if self._places is not None:
            return self._places
        begins, values, ends = array("q"), array("q"), array("q")
        self._places = begins, values, ends
        text = self._text
        if text[0] not in "{[":
            return self._places
        place = _skip(text, 1)
        while text[place] not in "}]":
            begins.append(place)
            if text[0] == "{":
                name, place = _DECODER.raw_decode(text, place)
                self._names[name] = len(values)
                place = _skip(text, _skip(text, place) + 1)
            values.append(place)
            place = _DECODER.raw_decode(text, place)[1]
            ends.append(place)
            place = _skip(text, place)
            if text[place] == ",":
                place = _skip(text, place + 1)
        return self._places


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1 and true are not, nor are 1 and 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
