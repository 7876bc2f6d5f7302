"""Read a Debian archive: its release file, its package index, and the packages that a set of roots needs.

This code replaces apt and debootstrap, so that neither root rights nor Debian are needed. Formats: the Debian Policy
Manual, chapters 5 (control files, 5.6.12 versions) and 7 (relationships), and the repository format of the Debian wiki.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

PACKAGE_LIMIT = 1 << 30
"""Limit for the size of a package in bytes. The largest one in the runtime has 111 MB."""


class BadIndex(Exception):
    """A package index has a missing or impossible value."""


Group = tuple[tuple[str, str, str], ...]
"""The alternatives of a relation (Debian's term for a dependency), each as (name, operator or "", version)."""


@dataclass(frozen=True)
class Package:
    """One binary package in the index of ``suite`` (a Debian release, by codename).

    Attributes:
        filename: its path below the mirror.
        size: in bytes.
        needs: its Depends and Pre-Depends.
    """

    name: str
    version: str
    suite: str
    filename: str
    size: int
    sha256: str
    needs: tuple[Group, ...] = field(repr=False, default=())


def parse_release(text: str) -> dict[str, tuple[str, int]]:
    """Return SHA-256 and size in bytes of every file in a release file, by its path below the suite.

    Raises:
        ValueError: a line has another form.
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
"""The valid form of each field (Policy 5.6). The fields become paths, numbers and file names."""


def _relations(text: str) -> tuple[Group, ...]:
    matches = ([_RELATION.match(one) for one in group.split("|")] for group in text.split(","))
    groups = (tuple((m[1], m[2] or "", m[3] or "") for m in group if m) for group in matches)
    return tuple(group for group in groups if group)


class Archive:
    """The package index of a suite (a Debian release, by codename), from the text of a ``Packages`` file."""

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
        """Return the package of this name, or ``None`` if the index has none.

        Raises:
            BadIndex: a field is missing or has an impossible value.
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
        """Return the names of the packages that provide the virtual package ``name``; empty if there are none."""
        return self._providers.get(name, ())


def _order(char: str) -> int:
    # A tilde sorts before everything, even the end; letters before other characters.
    return -1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256


def _key(version: str) -> tuple[Any, ...]:
    """Return a sort key for a version: its epoch, and the runs of non-digits and digits in its two parts."""
    epoch, colon, rest = version.partition(":")
    upstream, dash, revision = (rest if colon else version).rpartition("-")
    parts = (upstream, revision) if dash else (revision, "")
    runs = (re.findall(r"(\D*)(\d*)", part or "0") for part in parts)
    keys = ([([*map(_order, text), 0], int(number or 0)) for text, number in row] for row in runs)
    return int(epoch) if colon else 0, *keys


def compare_versions(one: str, two: str) -> int:
    """Return -1, 0 or 1 if the first version is older than, equal to or newer than the second (Policy 5.6.12)."""
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
    """No suite has a package that satisfies a relation."""


def resolve(
    archives: Sequence[Archive],
    roots: Iterable[str],
    *,
    prefer: Mapping[str, str] | None = None,
    without: frozenset[str] = frozenset(),
) -> list[Package]:
    """Return the packages that ``roots`` need, with the roots, in the order in which they were reached.

    The first archive that satisfies a relation provides the package. If a later relation needs a newer version, the
    package is chosen again from a later archive. A library of a newer suite also serves older programs.

    Args:
        archives: the package indexes, the preferred one first.
        roots: names of packages.
        prefer: for packages, the suite that they must come from.
        without: packages that are never needed; they are omitted, with all packages that only they need.

    Raises:
        Unmet: no archive satisfies a relation.
        BadIndex: the entry of a package in an index is not valid.
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
            continue  # a header package requires "= 2.41"; the newer library that another package needs is fine too
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
