"""Read feeds from files: ``.npz``, ``NAME=file.npy``, a folder of ``.npy``, ONNX ``test_data_set_N``. Never pickle."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import IO, BinaryIO
from urllib.parse import unquote

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, check_plain, explain, meant, read_given, user_path
from dmlprep.core.files.links import check_inside
from dmlprep.graph.model.budget import Budget
from dmlprep.portable.arrays import Array

FEED_BYTES = 8 << 30
"""Largest size in bytes of the unpacked arrays of one file: a file of some megabytes can unpack to gigabytes."""

_TENSOR_BYTES = 1 << 31
"""Largest size in bytes of a protobuf file."""

_OF_ARCHIVES = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, LZMAError)
_ENDINGS = ("*.npy", "*.npz", "input_*.pb")
_FORMS = "an .npz, NAME=file.npy, a folder of .npy files, or a test_data_set folder"


_BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, TokenError, RuntimeError, *_OF_ARCHIVES)
"""Errors that numpy raises for broken files. It parses their headers with Python's own tokenizer."""


def unfit_feed(what: str, where: Path | str, fix: str = "") -> InputError:
    """Return (do not raise) the error about a feed that cannot be used (DP705)."""
    return InputError(what, where=str(where), fix=fix, code="DP705")


class GivenFeed(dict[str, Array]):
    """A feed from the user: arrays by input name. ``source`` is its name in errors: a path, or ``feeds[0]``."""

    def __init__(self, arrays: Mapping[str, Array], source: str) -> None:
        super().__init__(arrays)
        self.source = source


def feed_name(feed: Mapping[str, Array], number: int) -> str:
    """Return a name of a feed for messages, from its number and the name of its file if any: ``feed 2 (page.npz)``."""
    path = Path(getattr(feed, "source", ""))
    return f"feed {number} ({path.name})" if path.suffix else f"feed {number}"


def load_feeds(sources: Sequence[str | Path | Mapping[str, Array]]) -> list[GivenFeed]:
    """Read the user's feeds (inputs of one run each) from files, or take them as arrays.

    Each source is one of these:

    - arrays by input name (one feed);
    - an ``.npz`` (one feed);
    - a folder of ``.npy`` files named by input (one feed); characters that file names cannot have are percent-encoded;
    - a folder of ``.npz`` files (one feed each);
    - a ``test_data_set_0`` folder with ``input_0.pb`` ... (one feed), or a folder of such folders (one feed each);
    - ``NAME=file.npy``; all of these together are one feed.

    Returns:
        the feeds. Arrays of ``input_0.pb`` without a name are called ``#0``; ``fit_feeds`` later replaces that by the
        name of the input.

    Raises:
        InputError: a file is missing, broken, too large, of another format, or contains Python objects.
    """
    feeds: list[GivenFeed] = []
    single: dict[str, Array] = {}
    for number, source in enumerate(sources):
        if isinstance(source, Mapping):
            arrays = {name: np.asarray(array) for name, array in source.items()}
            feeds.append(GivenFeed(arrays, getattr(source, "source", f"feeds[{number}]")))
            continue
        path = user_path(source)
        if path.is_dir():
            feeds += _folder(path)
        elif path.suffix == ".npz" and path.exists():
            feeds.append(GivenFeed(_npz(path), str(path)))
        elif "=" in str(source) and not path.exists():
            name, _, file = str(source).rpartition("=")
            if name in single:
                raise unfit_feed(f"input {name!r} is duplicated", str(source))
            single[name] = _npy(Path(file))
        elif not path.exists():
            raise unfit_feed("no such file", str(source), meant(path, f"pass {_FORMS}"))
        else:
            raise unfit_feed("not a format of feeds", str(source), f"pass {_FORMS}")
    if single:
        named = ", ".join(str(s) for s in sources if not isinstance(s, Mapping) and "=" in str(s))
        feeds.append(GivenFeed(single, named))
    return feeds


def feed_files(sources: Sequence[str | Path | Mapping[str, Array]]) -> list[Path]:
    """Return the paths of the files that ``load_feeds`` would read for these sources, and of the folders."""
    paths: list[Path] = []
    for source in sources:
        if isinstance(source, Mapping):
            continue
        path = Path(source)
        if path.is_dir():
            folders = [path, *sorted(p for p in path.glob("test_data_set_*") if p.is_dir())]
            paths += folders
            paths += sorted(file for folder in folders for ending in _ENDINGS for file in folder.glob(ending))
        else:
            paths.append(path if path.exists() else Path(str(source).rpartition("=")[2]))
    return paths


def _npy(path: Path) -> Array:
    try:
        size = check_plain(path, FEED_BYTES)
        # Open the file here: numpy leaves a broken file open.
        with path.open("rb") as file:
            _check_header(file, size)
            file.seek(0)
            array = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise unfit_feed("no such file", path, meant(path, "check the path")) from error
    except _BROKEN as error:
        raise _broken(path, error) from error
    if not isinstance(array, np.ndarray):
        raise unfit_feed("this is an .npz, not an .npy", path, "name it .npz")
    return array


def _npz(path: Path) -> dict[str, Array]:
    try:
        size = check_plain(path, FEED_BYTES)
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                _check_members(file, size)
            file.seek(0)
            data = np.load(file, allow_pickle=False)
            if not isinstance(data, np.lib.npyio.NpzFile):
                raise unfit_feed("this is an .npy, not an .npz", path, "pass NAME=file.npy")
            arrays = {name: data[name] for name in data.files}
    except _BROKEN as error:
        raise _broken(path, error) from error
    if not arrays:
        raise unfit_feed("contains no arrays", path)
    return arrays


def _check_members(file: BinaryIO, size: int) -> None:
    # Unpacked bytes count like constants that dmlprep creates: some kilobytes can unpack to gigabytes of zeros.
    most = min(FEED_BYTES, max(size, Budget(file_bytes=size).most_bytes))
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > most:
            what = f"its arrays have {total} bytes, at most {most} are read"
            fix = "pass smaller inputs"
            if total <= FEED_BYTES:
                fix += f", save it without compression, or raise the limit: dmlprep --limit made_bytes={total} COMMAND"
            raise Unfit(what, fix)
        for member in members:
            with archive.open(member) as inside:
                _check_header(inside, member.file_size)


def _check_header(file: IO[bytes], size: int) -> None:
    """Check that a ``.npy`` file of ``size`` bytes is as long as its header declares, before numpy allocates memory.

    Raises:
        Unfit: it is too short, or its header cannot be used. A file that is not an array raises nothing.
    """
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        return  # not an array: numpy reports what it is
    known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in known:
        raise Unfit("this version of .npy is for arrays with named fields", "save plain arrays")
    try:
        shape, _, dtype = known[version](file)
    except MemoryError:
        raise Unfit("its header is nested too deeply", "save it again") from None  # for Python's parser
    needed = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and file.tell() + needed > size:
        rest = max(size - file.tell(), 0)
        raise Unfit(f"truncated: its header announces {needed} bytes, the file has {rest}", "save it again")


def _broken(path: Path, error: Exception) -> InputError:
    what, fix = explain(error, path) if isinstance(error, OSError) else ("", "")
    if isinstance(error, Unfit):
        what, fix = str(error), error.fix
    elif "allow_pickle" in str(error) or "Object arrays" in str(error):
        what = "contains Python objects (pickle), which dmlprep never loads"
        fix = "save plain arrays (dtype not object)"
    elif not what:
        what, fix = f"cannot be read as numpy arrays: {error}", "save it again"
    return unfit_feed(what, path, fix)


def _number(path: Path) -> int:
    digits = re.findall(r"\d+", path.name)
    return int(digits[-1]) if digits else 0


def _folder(path: Path) -> list[GivenFeed]:
    forms = (*_ENDINGS, "test_data_set_*/input_*.pb")
    check_inside((file for form in forms for file in path.glob(form)), path)
    if sets := sorted((p for p in path.glob("test_data_set_*") if p.is_dir()), key=_number):
        return [GivenFeed(_protos(folder), str(folder)) for folder in sets]
    if any(path.glob("input_*.pb")):
        return [GivenFeed(_protos(path), str(path))]
    arrays = {unquote(file.stem): _npy(file) for file in sorted(path.glob("*.npy"))}
    if arrays:
        return [GivenFeed(arrays, str(path))]
    if bundles := sorted(path.glob("*.npz")):
        return [GivenFeed(_npz(file), str(file)) for file in bundles]
    raise unfit_feed("contains no feeds", path, "put .npy, .npz or input_0.pb files in it")


def _protos(folder: Path) -> dict[str, Array]:
    files = sorted(folder.glob("input_*.pb"), key=_number)
    if not files:
        raise unfit_feed("contains no input_0.pb", folder)
    feed: dict[str, Array] = {}
    for file in files:
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(read_given(file, _TENSOR_BYTES))
            if tensor.data_location == onnx.TensorProto.EXTERNAL or not tensor.data_type:
                raise ValueError("not a tensor with its values inside")
            array = onnx.numpy_helper.to_array(tensor)
        except (OSError, Unfit) as error:
            raise _broken(file, error) from error
        except (DecodeError, ValueError, TypeError, KeyError) as error:
            raise unfit_feed(f"cannot be read as an ONNX tensor: {error}", file) from error
        feed[tensor.name or f"#{_number(file)}"] = array
    return feed
