"""A fleet as a step of GitHub Actions or Azure Pipelines: ``action.yml`` and ``azure/dmlprep.yml`` call this.

Inputs of a workflow are arguments, so that no shell reads them. ``run`` never fails for a model: its exit code is an
output, and the workflow's last step ends with it.

Sources: GitHub Docs, "Workflow commands for GitHub Actions"; Microsoft, "Logging commands" of Azure Pipelines.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dmlprep.api.devices import runtime_folder
from dmlprep.api.projects import fleet_folder
from dmlprep.cli.values import read_pins
from dmlprep.core._version import __version__
from dmlprep.core.errors import DmlprepError, InternalError, UsageError
from dmlprep.core.files import cached_json
from dmlprep.core.text.documents import toml_key, toml_value
from dmlprep.portable.printable import printable
from dmlprep.record.fleet import FleetRecord
from dmlprep.report.azure import command_line
from dmlprep.report.fleet_files import report_names
from dmlprep.report.github import error_line

_OUT = "build/models"
_PACKAGE = Path(__file__).resolve().parents[2]

_OF_MODEL = ("recipe", "target", "pins", "feeds")


class _GitHub:
    """GitHub Actions: outputs and the summary are appended to two files of the runner. ``stdout``: lines to print."""

    name = "github"

    def __init__(self, outputs: str, summary: str) -> None:
        self._outputs, self._summary, self.stdout = outputs, summary, ""

    def output(self, values: Mapping[str, str]) -> None:
        """Pass values to later steps, by name."""
        # One line each: a line end in a value would start another output.
        self._append(self._outputs, "".join(f"{name}={printable(value)}\n" for name, value in values.items()))

    def path(self, path: Path) -> str:
        """Return a path in the form that later steps need."""
        return str(path)  # relative if possible: caches are identified by their paths

    def summarize(self, path: Path | None, text: str) -> None:
        """Show Markdown with the run; ``path`` is its file, if there is one."""
        self._append(self._summary, text)

    def error(self, text: str) -> None:
        """Mark the run with an error."""
        self.stdout += f"{error_line('fleet', text)}\n"

    def _append(self, path: str, text: str) -> None:
        if not path:
            self.stdout += text
            return
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


class _Azure(_GitHub):
    """Azure Pipelines: lines on stdout that the agent reads. Names of outputs are in camel case there."""

    name = "azure"

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
        self.stdout += f"{command_line(command, properties, text)}\n"


_SYSTEMS = {"github": _GitHub, "azure": _Azure}


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a workflow; empty if not set. ``pins``, ``feeds``, ``options``: one a line."""

    file: str = ""
    model: str = ""
    recipe: str = ""
    target: str = ""
    pins: str = ""
    feeds: str = ""
    out: str = ""
    shard: str = ""
    options: str = ""
    sarif: str = ""
    releases: str = ""
    mirror: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder of all results: the input ``out``, that of the project file, or ``build/models``."""
        folder = Path(self.out or _OUT)
        if not self.out and not self.model:
            with contextlib.suppress(DmlprepError):  # the fleet reports what is wrong with its file
                folder = fleet_folder(self.file or None)
        here = Path.cwd()
        return folder.relative_to(here) if folder.is_relative_to(here) else folder

    def check(self) -> None:
        """Raise ``UsageError`` if inputs contradict each other."""
        if self.model and self.file:
            raise UsageError("both a project file and a model are set", where="model", fix="pass one of the two")
        for name in _OF_MODEL:
            if not self.model and getattr(self, name):
                fix = f"write {name} into the project file, or pass a model"
                raise UsageError("this input needs a model, and none is set", where=name, fix=fix)
        if self.sarif == "true" and self.shard:
            fix = "upload it from the run over all parts, without shard"
            raise UsageError("the parts of a fleet would replace each other's results", where="sarif", fix=fix)
        if not str(self.folder).isprintable():
            raise UsageError("the path has unprintable characters", where="out", fix="choose another folder")


def main(arguments: Sequence[str]) -> tuple[int, str]:
    """Do the step ``keys``, ``runtime`` or ``run``; return the exit code of this process and lines for stdout."""
    parser = argparse.ArgumentParser(prog="python -m dmlprep.cli.buildsys ci", allow_abbrev=False)
    parser.add_argument("step", choices=("keys", "runtime", "run"))
    parser.add_argument("--system", choices=tuple(_SYSTEMS), required=True)
    parser.add_argument("--outputs", default="", help="the file that GitHub reads outputs from")
    parser.add_argument("--summary", default="", help="the file that GitHub shows")
    parser.add_argument("--work", default=".", help="a folder for a file of this step's own")
    for name in _Inputs.__dataclass_fields__:
        parser.add_argument(f"--{name}", default="")
    options = vars(parser.parse_args(list(arguments)))
    step, system = options.pop("step"), _SYSTEMS[options.pop("system")](options.pop("outputs"), options.pop("summary"))
    work = Path(options.pop("work"))
    inputs = _Inputs(**{name: value.strip() for name, value in options.items()})
    if step == "keys":
        system.output(_keys(inputs, system))
    elif step == "runtime":
        return _install(inputs), ""
    else:
        _run(inputs, system, work)
    return 0, system.stdout


def _keys(inputs: _Inputs, system: _GitHub) -> dict[str, str]:
    """Return path and key of two caches: the runtime with these releases, and the folder of the jobs."""
    digest = hashlib.sha256(f"{__version__} {sorted(inputs.releases.split())}".encode())
    for path in sorted((_PACKAGE / "runtime" / "linux").rglob("*")) + sorted((_PACKAGE / "runtime/native").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    parts = (inputs.file, inputs.model, inputs.folder.as_posix(), inputs.shard)
    jobs = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    inputs.check()
    return {
        "runtime-path": str(runtime_folder()),
        "runtime-key": f"dmlprep-runtime-{digest.hexdigest()[:32]}",
        "jobs-path": system.path(inputs.folder),
        "jobs-key": f"dmlprep-jobs-{sys.platform}-{jobs[:32]}",
    }


def _install(inputs: _Inputs) -> int:
    """Install the runtime with each release; return the exit code of the first that fails, otherwise 0."""
    mirror = [f"--mirror={inputs.mirror}"] if inputs.mirror else []
    for release in inputs.releases.split() or [""]:
        wanted = [f"--release={release}"] if release else []
        if code := _dmlprep("runtime", "install", *wanted, *mirror):
            return code
    return 0


def _run(inputs: _Inputs, system: _GitHub, work: Path) -> None:
    """Run the fleet, and pass its exit code, counts and files to the CI system as outputs."""
    folder = inputs.folder
    record, index, sarif, junit, table = (folder / name for name in report_names(inputs.shard))
    before = _stamp(record)
    try:
        inputs.check()
        file = str(_written(inputs, work)) if inputs.model else inputs.file
        shard = [f"--shard={inputs.shard}"] if inputs.shard else []
        options = [line.strip() for line in inputs.options.splitlines() if line.strip()]
        # These options come last, and override earlier ones.
        code = _dmlprep(
            "fleet", *options, *shard, f"--format={system.name}", f"--out={folder}", *(("--", file) if file else ())
        )
    except DmlprepError as error:
        system.error(str(error))
        code = error.exit_code
    if _stamp(record) == before:  # of an earlier run
        system.summarize(
            None, f"### dmlprep\n\ndmlprep ended with exit code {code} and wrote no table. The log shows why.\n"
        )
        system.output({"exit-code": str(code)})
        return
    read = cached_json(record, FleetRecord)
    if read is None:
        raise InternalError(f"cannot read {record}, which dmlprep wrote")
    system.summarize(table, table.read_text(encoding="utf-8"))
    files = {"fleet-json": record, "index": index, "sarif": sarif, "junit": junit}
    outputs = {"exit-code": str(code), "counts": json.dumps(read.counts(), separators=(",", ":"))}
    system.output({**outputs, **{name: system.path(path) for name, path in files.items()}})


def _written(inputs: _Inputs, work: Path) -> Path:
    """Write a project file for the input ``model``, a path or a pattern, and return its path."""
    here = Path.cwd()
    fields: dict[str, object] = {}
    if inputs.recipe:
        fields["recipe"] = inputs.recipe if inputs.recipe.startswith("@") else str(here / inputs.recipe)
    if inputs.target:
        fields["target"] = inputs.target
    if pins := read_pins(tuple(line.strip() for line in inputs.pins.splitlines() if line.strip())):
        fields["pins"] = pins
    if feeds := [str(here / line.strip()) for line in inputs.feeds.splitlines() if line.strip()]:
        fields["feeds"] = feeds
    lines = [
        f"[models.{toml_key(str(Path(glob.escape(str(here))) / inputs.model))}]",
        *(f"{k} = {toml_value(v)}" for k, v in fields.items()),
    ]
    path = work / "dmlprep-fleet.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _dmlprep(*arguments: str) -> int:
    """Run a dmlprep command and return its exit code. ``-P``: no module of the working folder can replace dmlprep."""
    return subprocess.run([sys.executable, "-P", "-m", "dmlprep", *arguments], check=False).returncode
