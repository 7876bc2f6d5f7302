"""Check a path before the work starts: its name and length, an output's folder, and whether a program has it open."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path, PurePath, PureWindowsPath

from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.core.files.links import check_no_links
from dmlprep.core.files.reasons import unwritable
from dmlprep.portable.replacing import check_free

_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?")
_CHARACTERS = re.compile(r'[<>:"|?*\x00-\x1f]')
"""``_DEVICE`` and ``_CHARACTERS`` match names and characters that Windows does not allow in file names
(learn.microsoft.com, "Naming Files, Paths, and Namespaces")."""

_LONGEST_FILE, _LONGEST_FOLDER, _LONGEST_NAME, _LONGEST_EXTENDED = 259, 247, 255, 32_766
"""Limits of Windows in UTF-16 units, without the final zero (learn.microsoft.com, "Maximum Path Length Limitation").
They are for the path of a file, the path of a folder, one name, and a path with long paths enabled or after
``\\\\?\\``. A folder has 12 units fewer than a file, which leaves room for a short name."""

_LINUX_NAME, _LINUX_PATH = 255, 4095
"""Limits of Linux in bytes, for a name and for a path: NAME_MAX, and PATH_MAX without the final zero."""

_TEMPORARY = "x" * 32
"""A name as long as those of the temporary files that ``writing`` makes next to the target."""


def file_name_problem(name: str, *, anywhere: bool = True) -> str:
    """Return why a text cannot be a file name, as the end of a sentence; empty if it can.

    Every name from a document is checked here before it becomes part of a path. With ``anywhere`` it must be valid on
    Windows and on Linux, otherwise on this system. Only Windows' limit of length is checked (see ``check_path``).
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "means this folder, or the one above it"
    windows = anywhere or sys.platform == "win32"
    if "/" in name or (windows and "\\" in name):
        return "contains a folder separator"
    if "\0" in name:
        return "contains a zero byte"
    return windows_name_problem(name) if windows else ""


def stem_of(path: Path) -> str:
    """Return a file's name without its suffix, as the name of a folder or file for its results.

    Raises:
        UsageError: the stem is not a file name: that of ``...onnx`` is ``..``.
    """
    if wrong := file_name_problem(path.stem, anywhere=False):
        what = f"its name without the suffix, {path.stem!r}, {wrong}, so a result cannot have this name"
        raise UsageError(what, where=str(path), fix="rename the file")
    return path.stem


def default_place(kind: str, name: str, folder: Path = Path()) -> Path:
    """Return the place of a result for which the user sets none: ``build/KIND/NAME`` below ``folder``.

    Raises:
        OutputError: a part of this path is a link.
    """
    place = folder / "build" / kind / name
    check_no_links(folder, place)
    return place


def windows_name_problem(name: str) -> str:
    """Return why Windows does not allow a file name, as the end of a sentence; empty if it does."""
    if _DEVICE.fullmatch(name):
        return "is the name of a device on Windows"
    if ":" in name:
        return "has a colon, which Windows does not allow in file names"
    if character := _CHARACTERS.search(name):
        return f"has {character[0]!r}, which Windows does not allow in file names"
    if name.endswith((" ", ".")) and name not in (".", ".."):
        return "ends with a dot or a space, which Windows drops"
    if _units(name) > _LONGEST_NAME:
        return f"has {_units(name)} characters, Windows allows at most {_LONGEST_NAME}"
    return ""


def windows_problem(path: PureWindowsPath, *, long_paths: bool, folder: bool = False) -> tuple[str, str]:
    r"""Return why Windows does not allow this absolute path, and the fix; both empty if it does.

    Drives, shares (``\\server\share``) and extended paths (``\\?\C:\...``) are fine.

    Args:
        long_paths: Windows accepts paths of more than 260 characters.
        folder: the path is that of a folder, for which the limit is lower.
    """
    for part in path.parts[1:] if path.anchor else path.parts:
        if wrong := windows_name_problem(part):
            return f"{part!r} {wrong}", "choose another name"
    extended = path.drive.startswith(("\\\\?\\", "\\\\.\\"))
    most = _LONGEST_EXTENDED if extended or long_paths else _LONGEST_FOLDER if folder else _LONGEST_FILE
    if (length := _units(str(path))) > most:
        fix = "choose a shorter folder" + ("" if most == _LONGEST_EXTENDED else ", or enable long paths in Windows")
        return f"the path is too long for Windows: {length} characters, at most {most}", fix
    return "", ""


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def user_path(path: str | Path, error: type[UsageError] = InputError) -> Path:
    """Return a path that a user passed.

    Raises:
        UsageError: no file of this system can have it: it has a zero byte or half a character, or is too long. The
            error is an ``error``.
    """
    what, fix = _problem(Path(path))
    if what:
        raise error(f"cannot be written: {what}" if error is OutputError else what, where=str(path), fix=fix)
    return Path(path)


def _problem(path: PurePath) -> tuple[str, str]:
    if "\0" in str(path):
        return "the path contains a zero byte", "check the path"
    return ("", "") if sys.platform == "win32" else _linux_problem(path)


def _linux_problem(path: PurePath) -> tuple[str, str]:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return "the path contains half of a character", "check the path"
    for part in path.parts:
        if (length := len(os.fsencode(part))) > _LINUX_NAME:
            return f"the name {part[:20]}... is too long: {length} bytes, at most {_LINUX_NAME}", "choose a shorter one"
    if (length := len(os.fsencode(path))) > _LINUX_PATH:
        return f"the path is too long: {length} bytes, at most {_LINUX_PATH}", "choose a shorter folder"
    return "", ""


def _long_paths() -> bool:
    """Return whether an administrator enabled long paths in Windows; ``False`` on other systems.

    python.exe declares in its manifest that it can use them.
    """
    if sys.platform == "win32":
        import winreg

        place = r"SYSTEM\CurrentControlSet\Control\FileSystem"
        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
            return bool(winreg.QueryValueEx(key, "LongPathsEnabled")[0])
    return False


def check_path(path: Path, *, aside: PurePath | None = None) -> None:
    """Refuse a path that is not valid on this system, or becomes too long while the file is written.

    Args:
        aside: the longest temporary path, relative to the folder of ``path``; by default a temporary file next to it.

    Raises:
        OutputError: a name in it is reserved or has invalid characters, or it is too long.
    """
    longest = path.absolute().parent / (aside or _TEMPORARY)
    for one, folder in ((path.absolute(), False), (longest, False), (longest.parent, True)):
        if sys.platform == "win32":
            full = PureWindowsPath(os.path.normpath(one))
            what, fix = windows_problem(full, long_paths=_long_paths(), folder=folder)
        else:
            what, fix = _problem(one)
        if what:
            added = "" if one == path.absolute() else ", including the names that dmlprep adds during writing"
            raise OutputError(f"cannot be written: {what}{added}", where=str(path), fix=fix)


def check_replaceable(path: Path) -> None:
    """Raise an OutputError if an existing file is open in another program, so that Windows cannot replace it.

    On other systems, it does nothing.
    """
    try:
        check_free(path)
    except OSError as error:
        raise unwritable(error, path) from error


def check_output(path: Path, *, force: bool = False) -> None:
    """Check, before the work starts, that one file can be written; its folder must exist.

    Args:
        force: the file may exist, and will be replaced.

    Raises:
        OutputError: the path is not valid, it is not a regular file, its folder is missing or not writable, or the file
            is open or, without ``force``, exists.
    """
    where = str(path)
    check_path(path)
    if os.path.isdir(path):
        raise OutputError("this is a folder", where=where, fix="pass a file")
    if os.path.lexists(path):
        if not os.path.isfile(path):
            raise OutputError("not a regular file", where=where, fix="pass a file")
        if not force:
            raise OutputError("the file exists", where=where, fix="pass --force to replace it")
        check_replaceable(path)
    folder = path.absolute().parent
    if not os.path.isdir(folder):
        raise OutputError("its folder does not exist", where=where, fix="create the folder, or choose another one")
    try:
        with tempfile.TemporaryFile(prefix=".dmlprep-", dir=folder):
            pass
    except OSError as error:
        raise unwritable(error, path, "choose another folder, or change its permissions") from error
