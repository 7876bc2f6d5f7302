"""Show findings and errors in the form that MSBuild and Visual Studio read: ``file : error DP001: text``.

Source of the form: Microsoft Learn, "MSBuild diagnostic format for tasks".
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

from dmlprep.core.errors import DmlprepError
from dmlprep.portable.printable import inert, printable
from dmlprep.record import SEVERITIES, RunRecord


def lines(record: RunRecord) -> Iterator[str]:
    """Yield a line for each code of warnings and errors, and then one with the result if the exit code is 0.

    For another exit code, the last line gives the reason, if no line before it is an error.
    """
    findings = record.all_findings()
    has_error = False
    for code, count in Counter(finding.code for finding in findings).items():
        first = min((one for one in findings if one.code == code), key=lambda one: SEVERITIES.index(one.severity))
        if first.severity != "note":
            has_error |= first.severity == "error"
            more = f" (and {count - 1} more)" if count > 1 else ""
            yield _line(record.input, first.severity, code, first.message + more, first.remedy)
    if record.exit_code and not has_error:
        yield _line(record.input, "error", "", str(record.error or f"{record.command} failed"), "")
    elif not record.exit_code:
        yield inert(printable(f"{_origin(record.input)} -> {record.output}"))


def error_line(error: DmlprepError, model: str) -> str:
    """Return the line for an error that ended the run: for the file that the error names, otherwise for the model."""
    named = bool(error.where) and os.path.isfile(error.where)
    what = error.what if named or not error.where else f"{error.where}: {error.what}"
    return _line(error.where if named else model, "error", error.code, what, error.fix)


def _origin(file: str) -> str:
    """Return a file name in a form that MSBuild does not read as a message, even if it begins with ``error``."""
    return f"./{file}" if re.match(r"\s*(error|warning)\b", file, re.IGNORECASE) else file


def _line(file: str, severity: str, code: str, text: str, fix: str) -> str:
    kind = f"{severity} {code}" if code else severity
    return inert(printable(f"{_origin(file)} : {kind}: {text}" + (f" (fix: {fix})" if fix else "")))
