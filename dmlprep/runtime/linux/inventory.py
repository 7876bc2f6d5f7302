"""List the files of each piece of the runtime at its installation, to detect changed, missing and added files later.

A piece is one folder, such as the root file system or a release. Names and sizes are checked before every session
(8,500 files, 50 ms of CPU time). Contents are checked when the self-test fails, or a file changed since it passed. They
are also checked on request (``status --again``: 1.4 GB, 2 s). Sessions add no files: they see every piece read-only,
and a copy of Wine's prefix.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from dmlprep.runtime.linux.layout import Layout, read_json, write_json
from dmlprep.runtime.linux.safe_fs import LeadsOut

_Entry = list[int | str]
"""A file in a list: size in bytes (-1 for a link), and SHA-256 (for a link, its target)."""


def pieces(layout: Layout, release: str = "") -> dict[str, Path]:
    """Return the folders, by name, of the pieces that sessions on ``release`` need; empty: all releases."""
    base = {"root": layout.root, "native": layout.built, "prefix": layout.prefix}
    releases = [release] if release else layout.installed()
    return base | {f"release {version}": layout.release(version) for version in releases}


def _files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the path relative to ``folder``, and the entry, of each file and link below it."""
    stack = [(str(folder), "")]
    while stack:
        path, below = stack.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append((entry.path, f"{below}{entry.name}/"))
                else:
                    yield f"{below}{entry.name}", entry


def _digest(path: str) -> str:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def record(layout: Layout, piece: str, folder: Path) -> None:
    """Save the list of the files of ``piece``, which was just installed in ``folder``.

    Raises:
        LeadsOut: it contains something other than files, folders and links; to read a pipe would never end.
    """
    entries: dict[str, _Entry] = {}
    for path, entry in _files(folder):
        if entry.is_symlink():
            entries[path] = [-1, os.readlink(entry.path)]
        elif entry.is_file(follow_symlinks=False):
            entries[path] = [entry.stat(follow_symlinks=False).st_size, _digest(entry.path)]
        else:
            raise LeadsOut(f"{folder.name}/{path} is neither a file nor a folder nor a link")
    write_json(_list(layout, piece), entries)


def known(layout: Layout, piece: str) -> bool:
    """Return whether ``piece`` has a saved list of files."""
    return _list(layout, piece).is_file()


def forget(layout: Layout, piece: str) -> None:
    """Remove the saved list of a piece that was removed."""
    _list(layout, piece).unlink(missing_ok=True)


def _list(layout: Layout, piece: str) -> Path:
    return layout.inventories / f"{piece.replace(' ', '-')}.json"


def _read(layout: Layout, piece: str) -> dict[str, _Entry]:
    # Empty for a piece that was installed before lists existed. Such a piece is not checked.
    rows = read_json(_list(layout, piece)).items()
    return {path: entry for path, entry in rows if isinstance(entry, list) and len(entry) == 2}


_ADDED = "was added"


def damage(layout: Layout, folders: Mapping[str, Path], *, contents: bool = False) -> dict[str, str]:
    """Return the problem of each changed piece, by name: one file, and how many more. Unchanged pieces are omitted.

    Names and sizes are compared with the saved lists. With ``contents``, every file is read and compared. A piece
    without a saved list counts as unchanged.
    """
    broken: dict[str, str] = {}
    for piece, folder in folders.items():
        if wrong := sorted(_faults(_read(layout, piece), folder, contents)):
            path, what = wrong[0]
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            broken[piece] = f"{folder.name}/{path} {what}{more}"
    return broken


def added(layout: Layout, folders: Mapping[str, Path]) -> list[Path]:
    """Return the paths of files, links and pipes that were added to pieces.

    Wine would load an added library or setting.
    """
    rows = ((folder, _faults(_read(layout, piece), folder, contents=False)) for piece, folder in folders.items())
    return [folder / path for folder, faults in rows for path, what in faults if what == _ADDED]


def _faults(made_of: dict[str, _Entry], folder: Path, contents: bool) -> Iterator[tuple[str, str]]:
    """Yield path and problem of each file that is changed, missing or added; nothing without a saved list."""
    if not made_of:
        return
    missing = dict(made_of)
    try:
        for path, entry in _files(folder):
            known = missing.pop(path, None)
            what = _ADDED if known is None else _fault(entry, known, contents)
            if what:
                yield path, what
    except OSError as error:
        yield "", f"cannot be read ({error.strerror})"
    for path in missing:
        yield path, "is missing"


def _fault(entry: os.DirEntry[str], expected: _Entry, contents: bool) -> str:
    size, digest = expected
    try:
        if size == -1:
            return "" if entry.is_symlink() and os.readlink(entry.path) == digest else "points to another place"
        now = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(now.st_mode):
            return "is not a file"
        if now.st_size != size:
            return f"has {now.st_size} bytes instead of {size}"
        if contents and _digest(entry.path) != digest:
            return "has other contents"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def stamp(folders: Mapping[str, Path]) -> str:
    """Return the SHA-256 over names, sizes and times of the pieces' files, which changes when any file is written."""
    digest = hashlib.sha256()
    for piece, folder in folders.items():
        try:
            rows = [(path, entry.stat(follow_symlinks=False)) for path, entry in _files(folder)]
        except OSError:
            rows = []
        for path, now in sorted(rows, key=lambda row: row[0]):
            line = f"{piece}\0{path}\0{now.st_size}\0{int(now.st_mtime)}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
