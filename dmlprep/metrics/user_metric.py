"""Users' metrics: a function in the user's Python file judges outputs instead of the default measures."""

from __future__ import annotations

import importlib.util
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dmlprep.core.errors import InputError, UsageError
from dmlprep.portable.arrays import Array

_SHAPE = "def NAME(reference, candidate): two dicts of arrays by output name; return a float, or (float, bool)"


@dataclass(frozen=True)
class NamedMetric:
    """A metric that a file (such as a project file) names, not the command line. Its code will run.

    Attributes:
        name: the metric as ``file.py:function``.
        by: the file that names the metric.
        folder: the folder to which the path in ``name`` is relative; by default the working folder.
    """

    name: str
    by: str
    folder: Path | None = None

    @property
    def code(self) -> str:
        """The code that will run, for messages: the path of its file and the function, as ``path/file.py:function``."""
        return str((self.folder or Path()) / self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class UserMetric:
    """A loaded metric.

    Attributes:
        name: the metric as ``file.py:function``.
        call: the user's function. It gets the outputs of the original and of the candidate on one feed, by name.
        bound: the largest number that passes, if the function returns only a number; ``None`` for none.
        file: the path of the Python file; ``None`` for a Python function.
        named_by: the file that names the metric; empty if the command line or the caller does.
    """

    name: str
    call: Callable[[dict[str, Array], dict[str, Array]], object]
    bound: float | None = None
    file: Path | None = None
    named_by: str = ""

    def judge(self, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> tuple[float, bool]:
        """Call the function for one feed, and return its number, and whether the candidate passes.

        Raises:
            InputError: the function fails, returns neither a number nor a number with a boolean, or returns only a
                number although there is no bound.
        """
        try:
            answer = self.call(dict(reference), dict(candidate))
        except (Exception, SystemExit) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"the metric raised {type(error).__name__}: {error} (line {last.lineno} of {last.filename})"
            raise self._wrong(text) from error
        number, passed = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
        try:
            value = float(number)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise self._wrong(f"the metric returned {answer!r}, which is not a number") from error
        if passed is None and self.bound is None:
            raise self._wrong("the metric returned only a number, which needs a bound", "pass --metric-bound")
        if math.isnan(value):
            return value, False
        return value, bool(passed) if passed is not None else value <= (self.bound or 0.0)

    def _wrong(self, what: str, fix: str = _SHAPE) -> InputError:
        return InputError(what, where=self.name, fix=fix)


def load_metric(metric: str, bound: float | None = None, folder: Path | None = None) -> UserMetric | None:
    """Load a metric: run its Python file as a module, and get the function. ``None`` if ``metric`` is empty.

    Args:
        metric: the metric as ``file.py:function``.
        bound: the largest number that passes.
        folder: the folder to which the path is relative; by default the working folder.

    Raises:
        UsageError: a bound without a metric, or a name of another form.
        InputError: the file is missing, cannot be run, or has no such function.
    """
    if not metric:
        if bound is not None:
            raise UsageError("a bound is set without a metric", where="--metric-bound", fix="pass --metric too")
        return None
    file, colon, name = metric.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(f"{metric!r} is not a metric", where="--metric", fix="write file.py:function")
    path = (folder or Path()) / file
    if not path.is_file():
        raise InputError("no such file", where=str(path), fix="check the path of --metric")
    spec = importlib.util.spec_from_file_location(f"dmlprep_metric_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        what = f"the file of the metric does not run: {type(error).__name__}: {error}"
        raise InputError(what, where=str(path), fix=f"python {path} shows where") from error
    call = getattr(module, name, None)
    if not callable(call):
        raise InputError(f"it has no function {name!r}", where=str(path), fix=_SHAPE.replace("NAME", name))
    return UserMetric(metric, call, bound, path)
