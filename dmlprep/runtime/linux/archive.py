"""A Debian archive: its signed release file, its package index, and which packages a set of roots needs.

Own code in place of apt and debootstrap, so that neither root nor Debian is needed. Formats: the Debian Policy Manual,
chapters 5 (control files, 5.6.12 versions) and 7 (relationships), and the repository format of the Debian wiki.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

PACKAGE_LIMIT = 1 << 30
"""Bytes of one package, at most; the largest that is installed here has 111 MB."""


class BadIndex(Exception):
    """An index that says something no archive says."""


Group = tuple[tuple[str, str, str], ...]
"""Alternatives of a relation, each of (name, operator or "", version)."""


@dataclass(frozen=True)
class Package:
    """One binary package of the index of ``suite``; ``filename`` is its path below the mirror, ``size`` its bytes.

    ``needs`` holds its Depends and Pre-Depends.
    """

    name: str
    version: str
    suite: str
    filename: str
    size: int
    sha256: str
    needs: tuple[Group, ...] = field(repr=False, default=())


def parse_release(text: str) -> dict[str, tuple[str, int]]:
    """SHA-256 and size in bytes of every file that a release file names, by its path below the suite.

    Raises:
        ValueError: a line of them is none.
    """
    lines = takewhile(lambda line: line.startswith(" "), text.partition("\nSHA256:\n")[2].splitlines())
    return {path: (digest, int(size)) for digest, size, path in map(str.split, lines)}


_RELATION = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^)\s]{1,256})\s*\))?")


_FORMS = {
    "Package": re.compile(r"[a-z0-9][a-z0-9+.-]*"),
    "Version": re.compile(r"([0-9]{1,9}:)?[A-Za-z0-9][A-Za-z0-9.+~-]{0,255}"),
    "Filename": re.compile(r"(?!.*/\.\.?/)[A-Za-z0-9][A-Za-z0-9_./+~:%-]*\.deb"),
    "Size": re.compile(r"[0-9]{1,15}"),
    "SHA256": re.compile(r"[0-9a-f]{64}"),
}
"""What fields look like (Policy 5.6): they become paths, numbers and file names here."""


def _relations(text: str) -> tuple[Group, ...]:
    matches = ([_RELATION.match(one) for one in group.split("|")] for group in text.split(","))
    groups = (tuple((m[1], m[2] or "", m[3] or "") for m in group if m) for group in matches)
    return tuple(group for group in groups if group)


class Archive:
    """The package index of the suite of a codename, from the text of a ``Packages`` file."""

    def __init__(self, suite: str, index: str) -> None:
        self.suite = suite
        self._stanza: dict[str, str] = {}
        self._providers: dict[str, list[str]] = {}
        for stanza in index.split("\n\n"):
            if not stanza.startswith("Package: "):
                continue
            name = stanza[9 : stanza.index("\n")]
            self._stanza[name] = stanza
            provided = stanza.partition("\nProvides: ")[2].partition("\n")[0]
            for group in _relations(provided):
                self._providers.setdefault(group[0][0], []).append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._stanza

    def package(self, name: str) -> Package | None:
        """The package of this name, or ``None``.

        Raises:
            BadIndex: a field is missing, or what it says cannot be.
        """
        stanza = self._stanza.get(name)
        if stanza is None:
            return None
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.M))
        for key, form in _FORMS.items():
            if not form.fullmatch(fields.get(key, "")):
                raise BadIndex(f"{key} of {name[:80]!r} is {fields.get(key, '')[:80]!r}")
        size = int(fields["Size"])
        if size > PACKAGE_LIMIT:
            raise BadIndex(f"{name} has {size >> 20} MiB; at most {PACKAGE_LIMIT >> 20} are allowed")
        needs = _relations(", ".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields))
        return Package(name, fields["Version"], self.suite, fields["Filename"], size, fields["SHA256"], needs)

    def providers(self, name: str) -> Sequence[str]:
        """Packages that provide the virtual package ``name``."""
        return self._providers.get(name, ())


def _order(char: str) -> int:
    # A tilde sorts before everything, even the end; letters before other characters.
    return -1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256


def _key(version: str) -> tuple[Any, ...]:
    """What sorts as the version does: its epoch, and the runs of other characters and of digits of its two parts."""
    epoch, colon, rest = version.partition(":")
    upstream, dash, revision = (rest if colon else version).rpartition("-")
    parts = (upstream, revision) if dash else (revision, "")
    runs = (re.findall(r"(\D*)(\d*)", part or "0") for part in parts)
    keys = ([([*map(_order, text), 0], int(number or 0)) for text, number in row] for row in runs)
    return int(epoch) if colon else 0, *keys


def compare_versions(one: str, two: str) -> int:
    """-1, 0 or 1, as Debian orders versions (Policy 5.6.12)."""
    a, b = _key(one), _key(two)
    return (a > b) - (a < b)


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "<<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">>": operator.gt,
}


def _meets(package: Package | None, relation: str, version: str) -> bool:
    return package is not None and (not relation or _HOLDS[relation](compare_versions(package.version, version), 0))


class Unmet(Exception):
    """No suite meets a relation."""


def resolve(
    archives: Sequence[Archive],
    roots: Iterable[str],
    *,
    prefer: Mapping[str, str] | None = None,
    without: frozenset[str] = frozenset(),
) -> list[Package]:
    """The packages that ``roots`` need, in the order they were found.

    The first archive that meets a relation serves it. When a relation asks for a newer version than the one chosen
    before, the package is chosen again from a later archive (a library of a newer suite serves older programs).

    ``prefer`` has the suite of packages that are wanted from one. Packages of ``without`` are left out with all they
    alone would need: never loaded by what runs here.

    Raises:
        Unmet: a relation that no archive meets.
    """
    chosen: dict[str, Package] = {}
    queue: list[Group] = [((name, "", ""),) for name in roots]
    while queue:
        group = queue.pop(0)
        if any(name in without or _meets(chosen.get(name), *relation) for name, *relation in group):
            continue
        if any(not op and set(archives[0].providers(name)) & chosen.keys() for name, op, _ in group):
            continue
        package = _choose(archives, group, prefer or {})
        if package is None:
            raise Unmet(" | ".join(" ".join(part).strip() for part in group))
        if package.name in chosen and compare_versions(chosen[package.name].version, package.version) > 0:
            continue  # "= 2.41" of a header package: the newer library that another one needs serves it as well
        chosen[package.name] = package
        queue.extend(package.needs)
    return list(chosen.values())


def _choose(archives: Sequence[Archive], group: Group, prefer: Mapping[str, str]) -> Package | None:
    for name, *relation in group:
        for archive in archives:
            if prefer.get(name, archive.suite) == archive.suite:
                package = archive.package(name)
                if _meets(package, *relation):
                    return package
    providers = (
        (archive, provider)
        for name, relation, _version in group
        for archive in archives
        for provider in (archive.providers(name) if not relation else ())
    )
    return next((archive.package(provider) for archive, provider in providers), None)
