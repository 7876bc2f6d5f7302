"""A fleet's record as JUnit XML, which CI systems read: a test case a job.

The form is that of Jenkins' xunit plugin (its schema ``junit-10.xsd``), which GitLab, Azure Pipelines and GitHub's
actions for test reports read. A check that did not run is an error there, not skipped: skipped cases count as well.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.record.printable import printable

__all__ = ["render_junit"]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have (section 2.2)."""


def render_junit(record: FleetRecord) -> bytes:
    """The record as XML, UTF-8."""
    failed = [job for job in record.jobs if job.outcome == "failed"]
    errors = [job for job in record.jobs if job.exit_code and job.outcome != "failed"]
    counts = {
        "name": _text(record.file),
        "tests": str(len(record.jobs)),
        "failures": str(len(failed)),
        "errors": str(len(errors)),
        "time": f"{record.seconds:.3f}",
    }
    top = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(top, "testsuite", {**counts, "skipped": "0"})
    for job in record.jobs:
        _case(suite, job)
    ElementTree.indent(top)
    text: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ElementTree.Element, job: JobRecord) -> None:
    seconds = 0.0 if job.kept else job.seconds
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": _text(job.model), "name": _text(job.name), "time": f"{seconds:.3f}"}
    )
    if not job.exit_code:
        return
    kind = "failure" if job.outcome == "failed" else "error"
    wrong = ElementTree.SubElement(case, kind, {"type": job.outcome, "message": _text(job.error)})
    wrong.text = _text(job.summary or job.error)


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(text))
