"""Edit a JSON text where it stands: what is not changed keeps its form, its order and its numbers as written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dmlprep.genai.document import whole_number

__all__ = ["JsonText"]

Path = Sequence[str | int]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=whole_number)


@dataclass(frozen=True)
class _Member:
    """A member of an object, or an element of an array: where its name and its value stand."""

    key: str | int
    begin: int
    value: int
    end: int


class JsonText:
    """A JSON document as text. The text is a valid document, which whoever makes this has checked.

    Args:
        text: the document, without a byte-order mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        first = next(iter(self._members(self._start())), None)
        lead = self._lead(first.begin) if first is not None else None
        self._indent = lead if lead else ("" if lead is None and first is not None else "    ")

    def get(self, path: Path, default: Any = None) -> Any:
        """The value at ``path``, the whole document at an empty one; ``default`` where there is none."""
        if path and self._find(path) is None:
            return default
        return _DECODER.raw_decode(self.text, self._value_at(path))[0]

    def set(self, path: Path, value: Any) -> bool:
        """Write ``value`` at ``path``; objects on the way that are missing are made.

        Returns:
            whether that changed anything.
        """
        if self._find(path) is not None and _same(self.get(path), value):
            return False
        depth = len(path)
        while depth and self._find(path[:depth]) is None:
            depth -= 1
        if depth == len(path):
            found = self._find(path)
            assert found is not None
            self._splice(found.value, found.end, self._shown(value, self._lead(found.begin) or ""))
            return True
        for key in reversed(path[depth + 1 :]):
            value = {key: value}
        self._insert(path[:depth], path[depth], value)
        return True

    def remove(self, path: Path) -> bool:
        """Remove the member at ``path``; whether there was one."""
        found = self._find(path)
        if found is None:
            return False
        beside = list(self._members(self._value_at(path[:-1])))
        index = next(i for i, member in enumerate(beside) if member.key == path[-1])
        if index + 1 < len(beside):
            self._splice(found.begin, beside[index + 1].begin, "")
        elif index:
            self._splice(beside[index - 1].end, found.end, "")
        else:
            self._splice(found.begin, found.end, "")
        return True

    def _insert(self, path: Path, key: str | int, value: Any) -> None:
        """Add a member behind the last one of the object or array at ``path``."""
        start = self._value_at(path)
        beside = list(self._members(start))
        name = "" if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}: "
        if beside:
            lead = self._lead(beside[-1].begin)
            text = self._shown(value, lead or "", inline=lead is None)
            gap = ", " if lead is None else f",{self._newline}{lead}"
            self._splice(beside[-1].end, beside[-1].end, f"{gap}{name}{text}")
            return
        end = _DECODER.raw_decode(self.text, start)[1]
        if not self._indent:
            self._splice(start + 1, end - 1, f"{name}{self._shown(value, '', inline=True)}")
            return
        outer = self._line_lead(start)
        lead = outer + self._indent
        text = self._shown(value, lead)
        self._splice(start + 1, end - 1, f"{self._newline}{lead}{name}{text}{self._newline}{outer}")

    def _shown(self, value: Any, lead: str, *, inline: bool = False) -> str:
        """A value as text whose lines begin with ``lead``."""
        if inline or not self._indent:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, ensure_ascii=False, indent=self._indent)
        return text.replace("\n", self._newline + lead)

    def _splice(self, begin: int, end: int, text: str) -> None:
        self.text = self.text[:begin] + text + self.text[end:]

    def _lead(self, place: int) -> str | None:
        """What stands before ``place`` in its line, where that is white space alone; else ``None``."""
        before = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return before if "\n" in self.text[:place] and not before.strip() else None

    def _line_lead(self, place: int) -> str:
        """The white space that the line of ``place`` begins with."""
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return line[: len(line) - len(line.lstrip())]

    def _start(self) -> int:
        return self._skip(0)

    def _skip(self, place: int) -> int:
        found = _SPACE.match(self.text, place)
        return found.end() if found else place

    def _value_at(self, path: Path) -> int:
        if not path:
            return self._start()
        found = self._find(path)
        assert found is not None
        return found.value

    def _find(self, path: Path) -> _Member | None:
        place, found = self._start(), None
        for key in path:
            # of a name that stands twice the last one counts, as for every reader
            found = next((m for m in reversed(list(self._members(place))) if m.key == key), None)
            if found is None:
                return None
            place = found.value
        return found

    def _members(self, start: int) -> Iterator[_Member]:
        """The members of the object or array that begins at ``start``; none of another value."""
        opening = self.text[start : start + 1]
        if opening not in ("{", "["):
            return
        place, index = self._skip(start + 1), 0
        while self.text[place] not in "}]":
            begin, key = place, index
            named: str | int = key
            if opening == "{":
                named, place = _DECODER.raw_decode(self.text, place)
                place = self._skip(self._skip(place) + 1)
            end = _DECODER.raw_decode(self.text, place)[1]
            yield _Member(named, begin, place, end)
            index += 1
            place = self._skip(end)
            if self.text[place] == ",":
                place = self._skip(place + 1)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1 and true are not, nor are 1 and 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
