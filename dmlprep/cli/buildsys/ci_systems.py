"""What differs between CI systems: how a step hands on outputs, shows a summary and marks an error.

Sources: GitHub Docs, "Workflow commands for GitHub Actions"; Microsoft, "Logging commands" of Azure Pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dmlprep.portable.printable import printable
from dmlprep.report.azure import command_line
from dmlprep.report.github import error_line


class System(Protocol):
    """A CI system: its name in ``dmlprep fleet --format``, and ``said``, lines for stdout."""

    name: str
    said: str

    def output(self, values: Mapping[str, str]) -> None:
        """Hand values on to later steps, by name."""

    def path(self, path: Path) -> str:
        """A path as later steps take it."""

    def summarize(self, path: Path | None, text: str) -> None:
        """Show Markdown with the run; ``path``: the file of it, where there is one."""

    def error(self, text: str) -> None:
        """Mark the run with an error."""


class _GitHub:
    """Outputs and summary are appended to two files of the runner."""

    name = "github"

    def __init__(self, outputs: str, summary: str) -> None:
        self._outputs, self._summary, self.said = outputs, summary, ""

    def output(self, values: Mapping[str, str]) -> None:
        # One line each: a line end in a value would begin another output.
        self._append(self._outputs, "".join(f"{name}={printable(value)}\n" for name, value in values.items()))

    def path(self, path: Path) -> str:
        return str(path)  # relative where it can be: caches are known by their paths

    def summarize(self, path: Path | None, text: str) -> None:
        self._append(self._summary, text)

    def error(self, text: str) -> None:
        self.said += f"{error_line('fleet', text)}\n"

    def _append(self, path: str, text: str) -> None:
        if not path:
            self.said += text
            return
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


class _Azure:
    """Lines on stdout that the agent reads. Names of outputs are in camel case there."""

    name = "azure"

    def __init__(self, outputs: str, summary: str) -> None:
        self.said = ""

    def output(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            first, *more = name.split("-")
            variable = first + "".join(word.capitalize() for word in more)
            self._say("task.setvariable", {"variable": variable, "isOutput": "true"}, value)

    def path(self, path: Path) -> str:
        return str(path.absolute())  # tasks run in a folder of their own

    def summarize(self, path: Path | None, text: str) -> None:
        if path is not None:
            self._say("task.uploadsummary", {}, str(path.resolve()))

    def error(self, text: str) -> None:
        self._say("task.logissue", {"type": "error"}, text)

    def _say(self, command: str, properties: dict[str, str], text: str) -> None:
        self.said += f"{command_line(command, properties, text)}\n"


SYSTEMS: dict[str, Callable[[str, str], System]] = {"github": _GitHub, "azure": _Azure}
