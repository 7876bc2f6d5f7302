"""The rules of plain English, and where the repository's texts break them.

``patterns.toml`` lists words and what to write instead; ``allowed.toml`` the number of findings of each rule that are
left, which may only go down.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import accumulate
from pathlib import Path

from tests.prose.texts import Name, Text, files, read

_HERE = Path(__file__).parent
ALLOWED = _HERE / "allowed.toml"

_LONGEST = 30
"""Words of a sentence: more are a finding."""
_HARDEST = 40
"""Flesch reading ease of a page: less is a finding."""
_SHORTEST = 200
"""Words of a page: a shorter one has no reading ease."""
_VAGUE = {"found", "said", "told", "given", "kept", "left", "taken", "seen", "made"}
_STARTS = re.compile(r"(?:Of|What|Whether|That|Those|Once:|It is|One that)(?!\w)")
_END = re.compile(r"(?<=[.!?])[\")]?\s+(?=[\"(]?(?:[A-Z0-9]|dmlprep))")
_LETTERS = re.compile(r"(?<![\w./-])[^\W\d_]{3,}(?![\w/-])")
_SILENT = re.compile(r"(?<=[^aeiouyl])e$|(?<=[^dt])ed$|(?<=[^scgxz])es$")
_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,_/][^\W_]+)*")


@dataclass(frozen=True)
class Pattern:
    """Words of the dialect: a regular expression, what to write, a sentence that it finds and one that it does not."""

    find: str
    write: str
    wrong: str
    right: str

    def matches(self, lowered: str) -> Iterator[re.Match[str]]:
        """Yield the matches of whole words in lines of lower case."""
        # A look-behind at the head of the expression would make the search three times as long.
        for match in re.finditer(rf"(?:{self.find})(?:(?<=\W)|(?!\w))", lowered, re.MULTILINE):
            if not (match[0][0].isalnum() and lowered[match.start() - 1 : match.start()].isalnum()):
                yield match


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    file: str
    line: int
    rule: str
    """``dialect``, ``long``, ``start``, ``spelling``, ``name`` or ``hard``."""
    group: str
    excerpt: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.excerpt}\n    write: {self.write}"


@cache
def patterns() -> tuple[Pattern, ...]:
    """Return the list of ``patterns.toml``."""
    return tuple(Pattern(**row) for row in tomllib.loads((_HERE / "patterns.toml").read_text("utf-8"))["pattern"])


@cache
def allowed() -> dict[str, dict[str, int]]:
    """Return the findings that ``allowed.toml`` allows for each rule and group of texts."""
    return tomllib.loads(ALLOWED.read_text("utf-8"))


def find(texts: list[Text], names: Iterable[Name]) -> list[Finding]:
    """Return every place that breaks a rule, by file and line."""
    findings = [*_dialect(texts), *_by_text(texts)]
    for file, line, name in names:
        if name.strip("_").lower() in _VAGUE:
            findings.append(Finding(file, line, "name", "names", name, "what the thing is: candidates, matches, size"))
    for file, ease in readability(texts).items():
        if ease < _HARDEST:
            findings.append(Finding(file, 1, "hard", "docs", f"reading ease {ease:.0f}", "shorter sentences and words"))
    return sorted(findings, key=lambda finding: (finding.file, finding.line, finding.rule))


@cache
def everything() -> list[Finding]:
    """Return the findings of the whole tree."""
    return find(*read(files()))


def count(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Return the number of findings for each rule and group of texts."""
    counts: dict[str, dict[str, int]] = {}
    for (rule, group), number in sorted(Counter((f.rule, f.group) for f in findings).items()):
        counts.setdefault(rule, {})[group] = number
    return counts


def sentences(text: Text) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a text with its offset."""
    start = 0
    for end in _END.finditer(text.text):
        yield start, text.text[start : end.start()]
        start = end.end()
    yield start, text.text[start:]


def words(text: str) -> list[str]:
    """Return the words and numbers of a text."""
    return _TOKEN.findall(text)


def readability(texts: Iterable[Text]) -> dict[str, float]:
    """Return the Flesch reading ease of each page: 206.835 - 1.015 words a sentence - 84.6 syllables a word."""
    pages: dict[str, list[list[str]]] = {}
    for text in texts:
        if text.group == "docs" and text.flows:
            parts = [words(sentence) for _, sentence in sentences(text)]
            pages.setdefault(text.file, []).extend(part for part in parts if len(part) > 1)
    ease = {}
    for file, parts in pages.items():
        spoken = [_SILENT.sub("", word.lower()) for part in parts for word in part if word != "CODE"]
        if len(spoken) >= _SHORTEST:
            syllables = sum(max(1, len(re.findall(r"[aeiouy]+", word))) for word in spoken)
            length = sum(map(len, parts)) / len(parts)
            ease[file] = 206.835 - 1.015 * length - 84.6 * syllables / len(spoken)
    return ease


def _dialect(texts: list[Text]) -> Iterator[Finding]:
    # One search of all texts for each pattern: a search of each text would take ten times as long.
    starts = list(accumulate((len(text.text) + 1 for text in texts), initial=0))
    whole = "\n".join(text.text for text in texts).lower()
    for pattern in patterns():
        for match in pattern.matches(whole):
            index = bisect_right(starts, match.start()) - 1
            text, offset = texts[index], match.start() - starts[index]
            if text.opens and offset == 0 and _STARTS.match(text.text):
                continue  # the rule "start" finds it
            if text.group == "comments" and offset == 0 and pattern.find.startswith("(?:^"):
                continue  # a note at the end of a line is no sentence
            excerpt = text.text[max(0, offset - 50) : offset + len(match[0]) + 50]
            yield Finding(
                text.file,
                text.line(offset),
                "dialect",
                text.group,
                f"{match[0].strip()!r} in ...{excerpt}...",
                pattern.write,
            )


def _by_text(texts: list[Text]) -> Iterator[Finding]:
    rows = resources.files("codespell_lib").joinpath("data", "dictionary.txt").read_text("utf-8").splitlines()
    spelling = dict(row.split("->", 1) for row in rows)
    for text in texts:
        if text.opens and (start := _STARTS.match(text.text)):
            write = f"an imperative (Return, Fold) or a noun phrase instead of {start[0]!r}"
            yield Finding(text.file, text.line(0), "start", text.group, text.text, write)
        for match in _LETTERS.finditer(text.text):
            if right := spelling.get(match[0].lower()):
                yield Finding(text.file, text.line(match.start()), "spelling", text.group, match[0], right)
        if text.flows and text.group != "comments" and len(text.text) > 2 * _LONGEST:
            for offset, sentence in sentences(text):
                if (number := len(words(sentence))) > _LONGEST:
                    write = f"{number} words: write two sentences or a list; at most 20 words each"
                    yield Finding(text.file, text.line(offset), "long", text.group, sentence, write)
