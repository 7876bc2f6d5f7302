"""Forms of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmlprep.core.errors import UsageError
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.parity.bisection.finding import Bisection
    from dmlprep.record.speed import Bench


Form = Literal["text", "html", "json", "sarif", "github", "msbuild"]


def read_record(path: str | Path) -> RunRecord:
    """Read a record back.

    Args:
        path: a ``run.json``, or the folder that ``prepare`` wrote it in.

    Returns:
        the record, as the function that made it returned it.

    Raises:
        InputError: it cannot be read, or is no record.
    """
    return RunRecord.read(Path(path))


def render_record(record: RunRecord | Bench | Bisection | str | Path, form: Form = "text") -> str:
    """A record to read or to hand on.

    >>> "parity on cpu: passed" in dmlprep.render_record("out")
    True

    Args:
        record: what ``prepare``, ``check``, ``bench`` or ``bisect`` returned, or the path of a ``run.json`` or of
            its folder.
        form: plain text as ``dmlprep report`` writes it; one HTML page that loads nothing from elsewhere; the JSON of
            ``run.json``; the findings as SARIF 2.1.0, for code scanning; or lines that GitHub Actions or MSBuild shows
            as annotations.

    Returns:
        the text; HTML is UTF-8 and says so.

    Raises:
        InputError: the path cannot be read, or is no record.
        UsageError: unknown form.
    """
    if form not in _FORMS:
        raise UsageError(f"unknown form {form!r}", where="form", fix=", ".join(_FORMS))
    return _FORMS[form](as_record(record))


def as_record(found: RunRecord | Bench | Bisection | str | Path, *, command_line: str = "") -> RunRecord:
    """Return the record of a result of ``bench`` or ``bisect``, or read it from a file or folder.

    Args:
        found: a record, a result, or a path, as in ``render_record``.
        command_line: what the user typed, for the record of ``bisect``.

    Raises:
        InputError: the path cannot be read, or is no record.
    """
    if isinstance(found, str | Path):
        return read_record(found)
    if isinstance(found, RunRecord):
        return found
    from dmlprep.record.speed import Bench

    if isinstance(found, Bench):
        from dmlprep.parity.bench import bench_record

        return bench_record(found)
    from dmlprep.parity.bisection.finding import bisect_record

    return bisect_record(found, command_line=command_line)


def _text(record: RunRecord) -> str:
    from dmlprep.report.text import render_text

    return render_text(record)


def _html(record: RunRecord) -> str:
    from dmlprep.report.html import render_html

    return render_html(record)


def _json(record: RunRecord) -> str:
    return record.to_json().decode()


def _sarif(record: RunRecord) -> str:
    from dmlprep.report.sarif import render

    return render([record]).decode()


def _github(record: RunRecord) -> str:
    from dmlprep.report.github import annotation_lines

    return "".join(f"{line}\n" for line in annotation_lines(record))


def _msbuild(record: RunRecord) -> str:
    from dmlprep.report.msbuild import lines

    return "".join(f"{line}\n" for line in lines(record))


_FORMS: dict[str, Callable[[RunRecord], str]] = {
    "text": _text,
    "html": _html,
    "json": _json,
    "sarif": _sarif,
    "github": _github,
    "msbuild": _msbuild,
}


def write_record(record: RunRecord, path: str | Path, *, force: bool = True) -> None:
    """Write a record as JSON, whole or not at all.

    Args:
        record: what ``prepare`` or ``check`` returned.
        path: the file to write.
        force: replace a file that is there.

    Raises:
        OutputError: the path cannot be written.
    """
    from dmlprep.core.files.writing import write_file

    write_file(Path(path), record.to_json(), force=force)


def write_depfile(record: RunRecord, path: str | Path, form: Literal["make", "lines"] = "make") -> None:
    """Write the files that the result depends on, dmlprep's own version among them.

    Args:
        record: what ``prepare`` or ``check`` returned.
        path: the file to write.
        form: a rule as make and ninja read it, or a file a line, in UTF-8, as MSBuild does.

    Raises:
        OutputError: the path cannot be written, or a file has a name that the form cannot hold.
    """
    from dmlprep.core.files.writing import write_file
    from dmlprep.report import depfile

    write_file(Path(path), depfile.lines(record) if form == "lines" else depfile.make_rule(record))
