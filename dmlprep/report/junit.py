"""A fleet's record as JUnit XML, which CI systems read: a test case a job.

The form is that of Jenkins' xunit plugin (its schema ``junit-10.xsd``), which GitLab, Azure Pipelines and GitHub's
actions for test reports read. A check that did not run is an error there, not skipped: skipped cases count as well.
"""

from __future__ import annotations

from xml.etree import ElementTree

from dmlprep.portable.printable import printable
from dmlprep.record.fleet import FleetRecord, JobRecord


def render_junit(record: FleetRecord) -> bytes:
    """The record as XML, UTF-8."""
    failed = [job for job in record.jobs if job.outcome == "failed"]
    errors = [job for job in record.jobs if job.exit_code and job.outcome != "failed"]
    counts = {
        "name": printable(record.file),
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
    return text.replace(b"##", b"#&#35;") + b"\n"  # in the log of a CI machine ``##[`` is a command


def _case(suite: ElementTree.Element, job: JobRecord) -> None:
    seconds = 0.0 if job.kept else job.seconds
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": printable(job.model), "name": printable(job.name), "time": f"{seconds:.3f}"}
    )
    if not job.exit_code:
        return
    kind = "failure" if job.outcome == "failed" else "error"
    wrong = ElementTree.SubElement(case, kind, {"type": job.outcome, "message": printable(job.error)})
    wrong.text = printable(job.summary or job.error)
