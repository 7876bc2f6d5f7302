"""Read, render and write records: the JSON files that describe a run (``run.json``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import check_output, user_path
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.parity.bisection.finding import Bisection
    from dmlprep.record.changes import Changes
    from dmlprep.record.speed import Bench


Form = Literal["text", "html", "json", "sarif", "github", "msbuild"]


def read_record(path: str | Path) -> RunRecord:
    """Read the record of a run.

    Args:
        path: a ``run.json``, or the folder in which ``prepare`` wrote it.

    Returns:
        the record as it was written; the JSON has the largest number for infinity.

    Raises:
        InputError: the path cannot be read, or is not a record.
    """
    return RunRecord.read(user_path(path))


def diff_records(before: RunRecord | str | Path, after: RunRecord | str | Path) -> Changes:
    """Compare an earlier run of ``prepare`` with a later one.

    >>> bool(dmlprep.diff_records("out", "out"))
    False

    Args:
        before, after: the records, or paths as in ``read_record``.

    Returns:
        the changes: ``settings``, ``numbers``, ``operators``, nodes that moved ``to_cpu`` and ``to_dml``, ``verdicts``,
        and ``new`` and ``gone`` findings. It is false if there are none.

    Raises:
        InputError: a path cannot be read, or is not a record of ``prepare``.
    """
    from dmlprep.record.changes import changes

    return changes(as_record(before), as_record(after))


def render_record(record: RunRecord | Bench | Bisection | str | Path, form: Form = "text") -> str:
    """Render a record in one of its forms.

    >>> "parity on cpu: passed" in dmlprep.render_record("out")
    True

    Args:
        record: the result of ``prepare``, ``check``, ``bench`` or ``bisect``, or a path as in ``read_record``.
        form: ``text``, as ``dmlprep report`` prints it; ``html``, one page that loads nothing from elsewhere (UTF-8);
            or ``json``, as in ``run.json``. ``sarif`` is for code scanning. ``github`` and ``msbuild`` are lines that
            these tools show as annotations.

    Returns:
        the rendered record as text.

    Raises:
        InputError: the path cannot be read, or is not a record.
        UsageError: the form is unknown.
    """
    run = as_record(record)
    match form:
        case "text":
            from dmlprep.report.text import render_text

            return render_text(run)
        case "html":
            from dmlprep.report.html import render_html

            return render_html(run)
        case "json":
            return run.to_json().decode()
        case "sarif":
            from dmlprep.report import sarif

            return sarif.render([run]).decode()
        case "github":
            from dmlprep.report.github import annotation_lines

            return "".join(f"{line}\n" for line in annotation_lines(run))
        case "msbuild":
            from dmlprep.report import msbuild

            return "".join(f"{line}\n" for line in msbuild.lines(run))
    raise UsageError(f"unknown form {form!r}", where="form", fix=", ".join(get_args(Form)))


def as_record(result: RunRecord | Bench | Bisection | str | Path, *, command_line: str = "") -> RunRecord:
    """Return a result as a record: a record itself, the result of ``bench`` or ``bisect``, or the path of a record.

    ``command_line`` is noted in the record of a ``bench`` or ``bisect`` result, and has no effect on others.
    """
    if isinstance(result, str | Path):
        return read_record(result)
    if isinstance(result, RunRecord):
        return result
    from dmlprep.record.speed import Bench

    if isinstance(result, Bench):
        from dmlprep.parity.bench import bench_record

        return bench_record(result, command_line=command_line)
    from dmlprep.parity.bisection.finding import bisect_record

    return bisect_record(result, command_line=command_line)


def write_record(record: RunRecord, path: str | Path, *, force: bool = True) -> None:
    """Write a record as JSON, atomically.

    Args:
        record: the result of ``prepare`` or ``check``.
        path: the file to write.
        force: True to replace an existing file.

    Raises:
        OutputError: the file exists and ``force`` is False, it is not a regular file, or it cannot be written.
    """
    from dmlprep.core.files.writing import write_file

    check_output(file := user_path(path, OutputError), force=force)
    write_file(file, record.to_json(), force=force)


def write_depfile(record: RunRecord, path: str | Path, form: Literal["make", "lines"] = "make") -> None:
    """Write the list of files that a result depends on, for build systems.

    One of the files belongs to dmlprep and changes with its version. An existing list is replaced.

    Args:
        record: the result of ``prepare``, with ``exit_code`` 0.
        path: the file to write.
        form: ``make``: a rule for make and ninja; ``lines``: one file in each line (UTF-8), for MSBuild.

    Raises:
        OutputError: the path cannot be written, or the form cannot hold the name of a file.
    """
    from dmlprep.core.files.writing import write_file
    from dmlprep.report import depfile

    check_output(file := user_path(path, OutputError), force=True)
    write_file(file, depfile.lines(record) if form == "lines" else depfile.make_rule(record))
