"""What each piece of the runtime is made of, written down when it was made: what was cut short or lost shows by name.

Sizes are looked at before every session (7,000 files, 40 ms); contents when the self-test fails, when something has
changed since it passed, and when asked (``status --again``: 1.4 GB, 2 s).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dmlprep.runtime.linux.layout import Layout, read_json, write_json

__all__ = ["damage", "forget", "known", "pieces", "record", "stamp"]

_Entry = list[int | str]
"""Size in bytes (-1 of a link) and SHA-256 (the target of a link)."""


def pieces(layout: Layout, release: str = "") -> dict[str, Path]:
    """Folder by name of the pieces that sessions on ``release`` need; of all releases where none is named."""
    found = {"root": layout.root, "native": layout.built, "prefix": layout.prefix}
    for version in [release] if release else layout.installed():
        found[f"release {version}"] = layout.release(version)
    return found


def _files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Path below ``folder``, and entry, of each file and link."""
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
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: str | os.DirEntry[str]) -> int:
    found = path.stat(follow_symlinks=False) if isinstance(path, os.DirEntry) else Path(path).lstat()
    return found.st_size


def record(layout: Layout, piece: str, folder: Path) -> None:
    """Write down what ``piece``, which lies in ``folder`` as it was just made, is made of."""
    found: dict[str, _Entry] = {}
    for path, entry in _files(folder):
        link = entry.is_symlink()
        found[path] = [-1, str(Path(entry.path).readlink())] if link else [_size(entry), _digest(entry.path)]
    write_json(_list(layout, piece), found)


def known(layout: Layout, piece: str) -> bool:
    """Whether ``piece`` was written down."""
    return _list(layout, piece).is_file()


def forget(layout: Layout, piece: str) -> None:
    """Take the list of a piece that was removed away."""
    _list(layout, piece).unlink(missing_ok=True)


def _list(layout: Layout, piece: str) -> Path:
    return layout.inventories / f"{piece.replace(' ', '-')}.json"


def _read(layout: Layout, piece: str) -> dict[str, _Entry]:
    return read_json(_list(layout, piece))  # empty for one made before lists were: nothing is claimed of it


def damage(layout: Layout, names: Iterable[tuple[str, Path]], *, contents: bool = False) -> dict[str, str]:
    """What is wrong, by piece: one file and how many more. Pieces that are as they were made are left out.

    Args:
        contents: read every file; else sizes only.
    """
    found: dict[str, str] = {}
    for piece, folder in names:
        wrong = [
            f"{folder.name}/{path} {what}"
            for path, entry in sorted(_read(layout, piece).items())
            if (what := _fault(str(folder / path), entry, contents))
        ]
        if wrong:
            found[piece] = wrong[0] + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else "")
    return found


def _fault(path: str, entry: _Entry, contents: bool) -> str:
    size, digest = entry
    try:
        if size == -1:
            return "" if str(Path(path).readlink()) == digest else "leads elsewhere"
        now = _size(path)
        if now != size:
            return f"has {now} bytes in place of {size}"
        if contents and _digest(path) != digest:
            return "has other contents"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def stamp(names: Iterable[tuple[str, Path]]) -> str:
    """SHA-256 over names, sizes and times of the files of pieces: another one where any file was written since."""
    digest = hashlib.sha256()
    for piece, folder in names:
        try:
            rows = [(path, entry.stat(follow_symlinks=False)) for path, entry in _files(folder)]
        except OSError:
            rows = []
        for path, stat in sorted(rows, key=lambda row: row[0]):
            line = f"{piece}\0{path}\0{stat.st_size}\0{int(stat.st_mtime)}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
