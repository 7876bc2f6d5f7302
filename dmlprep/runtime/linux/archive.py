"""A Debian archive: its signed release file, its package index, and which packages a set of roots needs.

Own code in place of apt and debootstrap, so that neither root nor Debian is needed. Formats: the Debian Policy Manual,
chapters 5 (control files, 5.6.12 versions) and 7 (relationships), and the repository format of the Debian wiki.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PACKAGE_LIMIT = 1 << 30
"""Bytes of one package, at most; the largest that is installed here has 111 MB."""


class BadIndex(Exception):
    """An index that says something no archive says."""


@dataclass(frozen=True)
class Package:
    """One binary package of an index.

    Attributes:
        suite: the suite whose index named it.
        filename: path below the mirror.
        size: bytes of the ``.deb``.
        needs: alternatives, each of (name, operator or "", version), of Depends and Pre-Depends.
    """

    name: str
    version: str
    suite: str
    filename: str
    size: int
    sha256: str
    needs: tuple[tuple[tuple[str, str, str], ...], ...] = field(repr=False, default=())


def parse_release(text: str) -> dict[str, tuple[str, int]]:
    """SHA-256 and size in bytes of every file that a release file names, by its path below the suite.

    Raises:
        ValueError: a line of them is none.
    """
    section = text.partition("\nSHA256:\n")[2]
    found: dict[str, tuple[str, int]] = {}
    for line in section.splitlines():
        if not line.startswith(" "):
            break
        digest, size, path = line.split()
        found[path] = (digest, int(size))
    return found


_RELATION = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^)\s]{1,256})\s*\))?")


_FORMS = {
    "Package": re.compile(r"[a-z0-9][a-z0-9+.-]*"),
    "Version": re.compile(r"([0-9]{1,9}:)?[A-Za-z0-9][A-Za-z0-9.+~-]{0,255}"),
    "Filename": re.compile(r"(?!.*/\.\.?/)[A-Za-z0-9][A-Za-z0-9_./+~:%-]*\.deb"),
    "Size": re.compile(r"[0-9]{1,15}"),
    "SHA256": re.compile(r"[0-9a-f]{64}"),
}
"""What fields look like (Policy 5.6): they become paths, numbers and file names here."""


def _relations(text: str) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    groups = []
    for group in text.split(","):
        matches = [_RELATION.match(one) for one in group.split("|")]
        found = tuple((m.group(1), m.group(2) or "", m.group(3) or "") for m in matches if m)
        if found:
            groups.append(found)
    return tuple(groups)


class Archive:
    """The package index of one suite.

    Args:
        suite: its codename.
        index: the text of a ``Packages`` file.
    """

    def __init__(self, suite: str, index: str) -> None:
        self.suite = suite
        self._stanza: dict[str, str] = {}
        self._providers: dict[str, list[str]] = {}
        for stanza in index.split("\n\n"):
            if not stanza.startswith("Package: "):
                continue
            name = stanza[9 : stanza.index("\n")]
            self._stanza[name] = stanza
            at = stanza.find("\nProvides: ")
            if at >= 0:
                line = stanza[at + 11 : stanza.find("\n", at + 1)]
                for group in _relations(line):
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
            raise BadIndex(f"{name} has {size >> 20} MiB; more than {PACKAGE_LIMIT >> 20} are not fetched")
        needs = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields)
        return Package(
            name, fields["Version"], self.suite, fields["Filename"], size, fields["SHA256"], _relations(needs)
        )

    def providers(self, name: str) -> Sequence[str]:
        """Packages that provide the virtual package ``name``."""
        return self._providers.get(name, ())


def _order(char: str) -> int:
    # A tilde sorts before everything, even the end; letters before other characters.
    return -1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256


def _compare_part(one: str, two: str) -> int:
    while one or two:
        text = [re.match(r"\D*", part) for part in (one, two)]
        a, b = (m.group(0) if m else "" for m in text)
        one, two = one[len(a) :], two[len(b) :]
        for i in range(max(len(a), len(b))):
            x = _order(a[i]) if i < len(a) else 0
            y = _order(b[i]) if i < len(b) else 0
            if x != y:
                return -1 if x < y else 1
        numbers = [re.match(r"\d*", part) for part in (one, two)]
        a, b = (m.group(0) if m else "" for m in numbers)
        one, two = one[len(a) :], two[len(b) :]
        if int(a or 0) != int(b or 0):
            return -1 if int(a or 0) < int(b or 0) else 1
    return 0


def compare_versions(one: str, two: str) -> int:
    """-1, 0 or 1, as Debian orders versions (Policy 5.6.12)."""

    def split(version: str) -> tuple[int, str, str]:
        epoch, colon, rest = version.partition(":")
        if not colon:
            epoch, rest = "0", version
        upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
        return int(epoch), upstream, revision

    a, b = split(one), split(two)
    if a[0] != b[0]:
        return -1 if a[0] < b[0] else 1
    return _compare_part(a[1], b[1]) or _compare_part(a[2], b[2])


_HOLDS: dict[str, Callable[[int], bool]] = {
    "": lambda _order: True,
    "<<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    "=": lambda order: order == 0,
    ">=": lambda order: order >= 0,
    ">>": lambda order: order > 0,
}


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

    Args:
        prefer: suite by package name, for packages that are wanted from one suite.
        without: packages left out with all they alone would need: never loaded by what runs here.

    Raises:
        Unmet: a relation that no archive meets.
    """
    prefer = prefer or {}
    chosen: dict[str, Package] = {}
    queue: list[tuple[tuple[str, str, str], ...]] = [((name, "", ""),) for name in roots]
    while queue:
        group = queue.pop(0)
        if any(name in without for name, _, _ in group):
            continue
        if any(
            name in chosen and _HOLDS[operator](compare_versions(chosen[name].version, version) if version else 0)
            for name, operator, version in group
        ):
            continue
        if any(not op and set(archives[0].providers(name)) & chosen.keys() for name, op, _ in group):
            continue
        package = _choose(archives, group, prefer)
        if package is None:
            raise Unmet(" | ".join(" ".join(part).strip() for part in group))
        if package.name in chosen and compare_versions(chosen[package.name].version, package.version) > 0:
            continue  # "= 2.41" of a header package: the newer library that another one needs serves it as well
        chosen[package.name] = package
        queue.extend(package.needs)
    return list(chosen.values())


def _choose(
    archives: Sequence[Archive], group: tuple[tuple[str, str, str], ...], prefer: Mapping[str, str]
) -> Package | None:
    for name, operator, version in group:
        for archive in archives:
            if prefer.get(name, archive.suite) != archive.suite:
                continue
            package = archive.package(name)
            if package and _HOLDS[operator](compare_versions(package.version, version) if version else 0):
                return package
    for name, operator, _version in group:
        for archive in archives:
            for provider in archive.providers(name) if not operator else ():
                return archive.package(provider)
    return None
