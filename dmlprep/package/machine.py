"""Find the names of this machine in texts: home folders, the working folder, the user's and the computer's name."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_GENERIC = frozenset({
    "admin", "administrator", "agent", "app", "azureuser", "build", "builder", "codespace", "container", "data",
    "default", "desktop", "dev", "developer", "docker", "guest", "home", "input", "jenkins", "keras", "laptop",
    "localhost", "main", "microsoft", "model", "node", "onnx", "onnxruntime", "output", "python", "pytorch", "root",
    "runner", "runneradmin", "server", "student", "system", "tensorflow", "test", "torch", "ubuntu", "user", "vagrant",
    "vscode", "windows", "work", "worker",
})  # fmt: skip
"""Names of users and computers that identify neither."""

_HOMES = r"(?i:[a-z]:[\\/]+users[\\/]+[^\\/\s'\"]+)", r"/(?:home|Users)/[^/\s'\"]+(?=/)"
"""Home folders of any user on Windows, Linux and macOS."""

_LENGTH = r"(?<=[\x00-\x1f\ufffd][\w.-])"
"""Matches after a letter that follows a control character: in binary texts, such a letter can be a length."""


@dataclass(frozen=True)
class Machine:
    """The names of one machine."""

    folders: re.Pattern[str]
    names: re.Pattern[str] | None

    @classmethod
    def here(cls) -> Machine:
        """Return the names of this machine: folders with the user's files, the user and the computer."""
        own = "|".join([*map(_any_separator, _folders()), *_HOMES])
        names = "|".join(map(re.escape, _names()))
        return cls(
            re.compile(rf"(?:(?<![\w.-])|{_LENGTH})(?:{own})(?![\w-])(?P<below>[^\s'\"<>|]*)"),
            re.compile(rf"(?:(?<!\w)|{_LENGTH})(?:{names})(?!\w)") if names else None,
        )

    def name_in(self, text: str, *, paths_only: bool = False, ordinary: Collection[str] = ()) -> str:
        """Return the first path or name of the machine in a text; empty if it has none.

        Args:
            paths_only: True for words of a vocabulary, where a name does not identify a machine.
            ordinary: words, in lower case, that are not the user's or computer's name in this text.
        """
        if path := self.folders.search(text):
            return path[0]
        if paths_only or self.names is None:
            return ""
        return next((m[0] for m in self.names.finditer(text) if m[0].lower() not in ordinary), "")

    def hidden(self, text: str) -> str:
        """Return a text with ``...`` for names of the machine, and with file names only for paths."""
        text = self.folders.sub(lambda m: re.split(r"[\\/]", m["below"])[-1] or "...", text)
        return self.names.sub("...", text) if self.names is not None else text


def _folders() -> Iterator[Path]:
    """Yield the user's home folder, and the working folder if its path is long enough to identify it."""
    with suppress(RuntimeError):
        if len(Path.home().parts) > 1:
            yield Path.home()
    with suppress(OSError):
        if len(Path.cwd().parts) > 2:
            yield Path.cwd()


def _any_separator(folder: Path) -> str:
    """Return a pattern for the path of a folder, with slashes, backslashes or doubled backslashes."""
    return r"[\\/]+".join(re.escape(part.rstrip("\\/")) for part in folder.parts)


def _names() -> Iterator[str]:
    """Yield the user's and the computer's name, if they have three letters and identify a person or a machine."""
    user = ""
    with suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    for name in dict.fromkeys((user, socket.gethostname().partition(".")[0])):
        if sum(map(str.isalpha, name)) >= 3 and name.lower() not in _GENERIC:
            yield name
