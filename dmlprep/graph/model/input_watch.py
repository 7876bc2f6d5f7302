"""Watch the input files of a run: if one changes meanwhile, the run's results are not valid, or it runs again.

A model's weights stay in its files until they are needed, and ONNX Runtime opens the files again. If a program changed
the weights in place meanwhile, the result, the proof and the digest would be of three different models.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from dmlprep.core.errors import InputError
from dmlprep.core.files import unreadable
from dmlprep.graph.model.model import Model
from dmlprep.graph.model.opening import leaves_folder
from dmlprep.graph.model.tensors import as_mapped
from dmlprep.graph.model.walk import tensors
from dmlprep.graph.model.wire import data_locations


class _FileState(NamedTuple):
    """Identity (device, inode, size in bytes, time of the last change in ns) and SHA-256 of a file."""

    identity: _Identity
    sha256: str


def data_files(model: Model) -> list[Path]:
    """Return the external data files of a model's weights, sorted, without the model's own file."""
    return sorted({m.path for m in map(as_mapped, tensors(model.ir)) if m is not None and m.path != model.path})


def named_data_files(model: Model) -> dict[str, Path]:
    """Return name in the model -> path of each external data file; the name is relative: ``weights/a.data``.

    Only for a model that was opened from a file.
    """
    assert model.path is not None
    folder = model.path.parent.resolve()
    return {file.resolve().relative_to(folder).as_posix(): file for file in data_files(model)}


def changed_models(
    paths: Sequence[Path], wait: float = 0.5, pause: Callable[[float], object] = time.sleep
) -> Iterator[Path]:
    """Yield each model, and later each one whose file or data files changed, without end.

    A file changes if its size or time does, or if it appears or disappears. A changed model is yielded when all its
    files stayed the same for ``wait`` seconds, because the program that writes them has then probably finished.
    ``pause`` waits for these seconds.
    """
    before: dict[Path, _States] = {}
    yielded: dict[Path, _States] = {}
    while True:
        for path in paths:
            now = _states(path, before.get(path, {}))
            if path not in yielded or yielded[path] != now == before[path]:
                yielded[path] = now
                yield path
            before[path] = now
        pause(wait)


_Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes, and time of the last change in ns of a file."""

_States = dict[Path, _Identity | None]
"""The identity of a model's file and of its data files; ``None`` for a file that is missing or cannot be opened."""


def _states(path: Path, before: _States) -> _States:
    """Return the present states; ``before`` are earlier ones, or empty."""
    own, files = _identity_or_none(path), [one for one in before if one != path]
    if before.get(path) != own:
        try:
            # Opening a pipe waits for a writer, and a device may have no end.
            locations = data_locations(path) if path.is_file() else []
        except (InputError, DecodeError, ValueError):  # not a model, or half of one
            locations = []
        except OSError:  # another program may have it open
            own, locations = None, []
        files = [path.parent / one.replace("\\", "/") for one in locations if not leaves_folder(one)]
    return {path: own, **{file: _identity_or_none(file) for file in files}}


def _identity_or_none(path: Path) -> _Identity | None:
    try:
        return _identity(path)
    except (OSError, ValueError):
        return None


class Unchanged:
    """Detects changes of files since they were recorded, by their contents or by their file system data.

    Contents are more reliable: writes through a mapping need not change a file's time, and any program can set the time
    back. Reading whole files takes 0.6 s a GiB where they are in the page cache.

    Args:
        contents: True to compare SHA-256 digests of the files. With False, a file counts as changed if its device,
            inode, size or time differs.
    """

    def __init__(self, *, contents: bool = True) -> None:
        self._contents = contents
        self._states: dict[Path, _FileState] = {}
        self._again: set[Path] = set()

    @property
    def digests(self) -> dict[str, str]:
        """Path -> SHA-256 of each recorded file; with ``contents=False``, an empty string."""
        return {str(path): state.sha256 for path, state in self._states.items()}

    def take(self, paths: Iterable[Path]) -> None:
        """Record the state of files before they are used; a file that is recorded already keeps its first state.

        Raises:
            InputError: a file cannot be read.
        """
        self.take_digests(dict.fromkeys(paths, ""))

    def take_digests(self, digests: Mapping[Path, str]) -> None:
        """Record the state of files whose SHA-256 is known, without reading them.

        An empty digest is computed with ``contents``; without, all must be empty. A file that is recorded already keeps
        its first state.

        Raises:
            InputError: a file cannot be read, for example because it does not exist any more.
        """
        for path, sha256 in digests.items():
            if path not in self._states:
                self._states[path] = self._look(path, sha256)

    def take_model(self, path: Path) -> Model:
        """Open a model, record the state of its files, and return it. A file that is not a model is not read whole.

        Raises:
            InputError, ModelRefused, ToolFailed: as ``Model.open``; or the file changed between opening and recording.
        """
        try:
            before = _identity(path)
        except (OSError, ValueError):
            before = None  # opening it reports why
        model = Model.open(path)
        self.take([path, *data_files(model)])
        if self._states[path].identity != before:
            raise _changed(path)
        return model

    def check_read(self, path: Path, sha256: str) -> None:
        """Compare the SHA-256 of a file that the caller just read with the recorded one; ``check`` then skips the file.

        The file must be recorded, with ``contents``.

        Raises:
            InputError: the file has changed.
        """
        if sha256 != self._states[path].sha256:
            raise _changed(path)
        self._again.add(path)

    def check(self) -> None:
        """Compare all files with their recorded state, except those of ``check_read``.

        Raises:
            InputError: a file has changed, or cannot be read any more.
        """
        for path, before in ((p, state) for p, state in self._states.items() if p not in self._again):
            now = self._look(path)
            # A copy of the same contents is the same; without contents, only file system data is available.
            if now.sha256 != before.sha256 or (not self._contents and now.identity != before.identity):
                raise _changed(path)

    def _look(self, path: Path, sha: str = "") -> _FileState:
        try:
            identity = _identity(path)
            if self._contents and not sha:
                with path.open("rb") as file:
                    sha = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(error, path, code="DP015") from error
        return _FileState(identity, sha)


def _identity(path: Path) -> _Identity:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _changed(path: Path) -> InputError:
    fix = "run again when no program writes to it"
    return InputError("the file changed during the run", where=str(path), code="DP015", fix=fix)
