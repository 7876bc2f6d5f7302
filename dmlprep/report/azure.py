"""Show the jobs of a fleet (many models prepared by one command) as issues of an Azure Pipelines run.

Source of the form: Microsoft, "Logging commands" of Azure Pipelines; the escapes are those of its agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlprep.portable.printable import printable
from dmlprep.record.fleet import FleetRecord


def job_issues(record: FleetRecord, inputs: Sequence[str]) -> Iterator[str]:
    """Yield a logging command for each job with an exit code other than 0.

    ``inputs``: the path of each job's model, relative to the working folder.
    """
    for job, path in zip(record.jobs, inputs, strict=True):
        if job.exit_code:
            text = f"dmlprep {job.name}: {job.outcome}: {job.error}"
            yield command_line("task.logissue", {"type": "error", "sourcepath": path}, text)


def command_line(command: str, properties: dict[str, str], text: str) -> str:
    """Return a logging command as the agent of Azure Pipelines reads it, on one line.

    Values and text are escaped, so that they cannot begin another command.
    """
    values = {name: _data(value).replace("]", "%5D").replace(";", "%3B") for name, value in properties.items()}
    return f"##vso[{command} {';'.join(f'{name}={value}' for name, value in values.items())}]{_data(text)}"


def _data(text: str) -> str:
    shown = "\n".join(map(printable, text.split("\n")))
    return shown.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A").replace("##", "#\\x23")
