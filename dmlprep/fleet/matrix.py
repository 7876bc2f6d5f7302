"""Make the jobs of a fleet: every model with each of its recipes, targets and sizes, without the excluded ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from dmlprep.core.errors import UsageError
from dmlprep.core.files import is_pattern
from dmlprep.core.files.outputs import file_name_problem, stem_of
from dmlprep.core.text.documents import toml_key
from dmlprep.graph.model.pinned import Value
from dmlprep.passes.catalog import suggest
from dmlprep.pipeline.project import CODE, Entry, Project, Rule, axes_of, merged, pins_of, recipe_at

MOST_JOBS = 100_000
"""Safety limit for one fleet: a few lines of a file can name billions of jobs."""

_MOST_SHARDS = 10_000
_HIDDEN, _OWN = ".dmlprep-", "is a reserved name of dmlprep"


@dataclass(frozen=True)
class Job:
    """One model with one recipe, for one target, with one set of sizes.

    Attributes:
        name: ``vision/detector/ort-1.24/large``: the model, then the choice of each axis (recipes, targets, sizes). It
            is also the job's folder below the output folder.
        model: path of the model, relative to the working folder if it is below it.
        shown: path of the model relative to the folder of the project file, with ``/``.
        recipe: name of a built-in recipe, or path of a recipe; ``written``: the same as the file writes it.
        target: name of the target; empty for the recipe's own.
        size: name of the set of sizes; empty if the model has none.
        options: other options, by the names of ``prepare``'s arguments.
    """

    name: str
    model: Path
    shown: str
    recipe: str
    written: str
    target: str = ""
    size: str = ""
    pins: dict[str, Value] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count`` parts of a fleet's jobs, counted from 1.

    The part of a job depends only on its name, not on the other jobs.
    """

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}" if self.count > 1 else ""

    def holds(self, job: Job) -> bool:
        """Return True if the job belongs to this part, by the digest of its name."""
        digest = hashlib.sha256(job.name.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def read_shard(text: str) -> Shard:
    """Parse the option ``--shard``: ``3/8`` is part 3 of 8, an empty text is the one part with all jobs.

    Raises:
        UsageError: the text has another form, or its numbers are out of range.
    """
    if not text:
        return Shard()
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= _MOST_SHARDS:
        fix = f"write PART/PARTS, such as 3/8, with at most {_MOST_SHARDS} parts"
        raise UsageError(f"invalid --shard {text!r}", where="--shard", fix=fix)
    return Shard(int(match[1]), int(match[2]))


def jobs_of(fleet: Project) -> list[Job]:
    """Return all jobs that are not excluded, in the order of the file.

    Raises:
        UsageError: DP904, the file names no models, or an entry or exclusion matches nothing. Or an entry has its
            own ``out``, two jobs have one name, a name is not valid for a folder, or there are no or too many jobs.
    """
    models = _models(fleet)
    count = 0
    for _, entries in models.values():
        sizes = [len(axis.choices) for axis in axes_of(entries)]
        count += sizes[0] * sizes[1] * sizes[2]
        if count > MOST_JOBS:
            fix = "use fewer models, sizes, targets or recipes"
            raise _wrong(fleet, f"it has more than {MOST_JOBS:,} jobs", fix)
    every = [job for model, (part, entries) in models.items() for job in _jobs(fleet, model, part, entries)]
    _check_names(fleet, every)
    jobs = every
    for number, rule in enumerate(fleet.exclude, 1):
        matches = _rule(rule)
        if not any(map(matches, every)):
            raise _wrong(fleet, f"exclude {number} matches no job", _nearest(rule, every))
        jobs = [job for job in jobs if not matches(job)]
    if not jobs:
        raise _wrong(fleet, "no jobs remain", "exclude fewer")
    return jobs


def selected(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """Return the jobs that match one of the patterns of ``--only``; all jobs if there are no patterns.

    A text without wildcards matches the name of a job, the folders at the start of the name, or the path of the model.
    A pattern with wildcards matches a whole name or path.

    Raises:
        UsageError: a pattern matches no job.
    """
    if not only:
        return list(jobs)
    names: set[str] = set()
    for pattern in only:
        named = {job.name for job in jobs if _named(job, pattern)}
        if not named:
            raise UsageError(
                f"no job is named {pattern!r}", where="--only", fix=suggest(pattern, _few(job.name for job in jobs))
            )
        names |= named
    return [job for job in jobs if job.name in names]


def sharded(jobs: Sequence[Job], shard: Shard) -> list[Job]:
    """Return the jobs that belong to a part."""
    return [job for job in jobs if shard.holds(job)]


def _few(names: Iterator[str]) -> list[str]:
    """Return at most 12 names, sorted, for an error; a last text says how many more there are."""
    every = sorted(set(names))
    return every if len(every) <= 12 else [*every[:12], f"... {len(every) - 12} more"]


def _named(job: Job, pattern: str) -> bool:
    if is_pattern(pattern):
        return fnmatchcase(job.name, pattern) or fnmatchcase(job.shown, pattern)
    return job.name == pattern or job.name.startswith(f"{pattern}/") or job.shown == pattern


def _models(fleet: Project) -> dict[Path, tuple[str, list[Entry]]]:
    """Return model -> (first part of the names of its jobs, the entries that apply to it, the file's top first)."""
    if not fleet.models:
        raise _wrong(fleet, "it names no models", 'write [models."models/*.onnx"]; see docs/fleet.md')
    models: dict[Path, tuple[str, list[Entry]]] = {}
    for pattern, entry in fleet.models.items():
        name = f"models.{toml_key(pattern)}"
        if "out" in entry:
            what = f"'{name}.out' is not possible for a fleet, which has one folder for all results"
            raise _wrong(fleet, what, "write out at the top of the file")
        files = [path.absolute() for path in fleet.files(pattern)]
        if not files:
            raise _wrong(fleet, f"no file matches {name}", "check the path; ** matches any folders")
        fixed = _fixed(fleet.folder, pattern)
        for path in files:
            above = path.relative_to(fixed).parent if path.is_relative_to(fixed) else Path()
            part = (above / stem_of(path)).as_posix()
            models.setdefault(path, (part, [fleet.defaults]))[1].append(entry)
            if len(models) > MOST_JOBS:
                raise _wrong(fleet, f"it has more than {MOST_JOBS:,} models", "use fewer models")
    return models


def _fixed(folder: Path, pattern: str) -> Path:
    """Return the folder of a pattern before its first wildcard; ``folder`` is the folder of the project file."""
    fixed = Path()
    for part in Path(pattern).parts[:-1]:
        if is_pattern(part):
            break
        fixed /= part
    return folder / fixed


def _jobs(fleet: Project, model: Path, part: str, entries: Sequence[Entry]) -> Iterator[Job]:
    options = merged(fleet.folder, entries, model)
    by_size, axes = pins_of(entries), axes_of(entries)
    pins, settings = options.pop("pins", {}), options.pop("settings", {})
    arguments = {name: value for name, value in options.items() if name not in ("recipe", "target")}
    here = Path.cwd()
    named = model.relative_to(here) if model.is_relative_to(here) else model
    shown = model.relative_to(fleet.folder) if model.is_relative_to(fleet.folder) else model
    for recipe, target, size in product(*(axis.choices for axis in axes)):
        words = (PurePath(recipe).stem.removeprefix("@"), target, size)
        name = "/".join([part, *(word for word, axis in zip(words, axes, strict=True) if axis.is_axis)])
        yield Job(
            name=name,
            model=named,
            shown=shown.as_posix(),
            recipe=recipe_at(fleet.folder, recipe),
            written=recipe,
            target=target,
            size=size,
            pins={**pins, **by_size.get(size, {})},
            settings=settings,
            options=arguments,
        )


def _check_names(fleet: Project, jobs: Sequence[Job]) -> None:
    owners: dict[str, Job] = {}
    for job in jobs:
        for part in job.name.split("/"):
            wrong = file_name_problem(part, anywhere=False)
            if wrong or part.casefold().startswith(_HIDDEN):
                what = f"a job of {job.shown} would have the folder {part!r}, which {wrong or _OWN}"
                fix = "rename the model, its folder, the recipe or the sizes; without targets, the recipe's own applies"
                raise _wrong(fleet, what, fix)
        # Windows and macOS ignore case in names.
        other = owners.setdefault(job.name.casefold(), job)
        if other is not job:
            fix = "rename one model, or match both by one pattern (**/x.onnx), so that their names include the folders"
            if other.model == job.model:
                fix = "use different names for the recipes and the sizes"
            both = f"{other.shown} and {job.shown}" if other.model != job.model else f"two jobs of {job.shown}"
            raise _wrong(fleet, f"{both} would both be named {job.name!r}", fix)


def _rule(rule: Rule) -> Callable[[Job], bool]:
    def fits(patterns: str | list[str], *names: str) -> bool:
        every = [patterns] if isinstance(patterns, str) else patterns
        return not every or any(fnmatchcase(name, one) for one in every for name in names)

    def matches(job: Job) -> bool:
        part = PurePath(job.shown).stem
        return (
            fits(rule.model, job.shown, part)
            and fits(rule.recipe, job.written)
            and fits(rule.target, job.target)
            and fits(rule.size, job.size)
        )

    return matches


def _nearest(rule: Rule, jobs: Sequence[Job]) -> str:
    """Return, for a rule that excludes no job, a suggestion for its first field that matches no job."""
    for name in ("model", "recipe", "target", "size"):
        patterns = getattr(rule, name)
        there = {getattr(job, {"model": "shown", "recipe": "written"}.get(name, name)) for job in jobs}
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if not any(fnmatchcase(one, pattern) for one in there):
                return f"{name}: {suggest(pattern, _few(one for one in there if one))}"
    return "its fields together match no job; remove it"


def _wrong(fleet: Project, what: str, fix: str) -> UsageError:
    return UsageError(what, where=fleet.file, fix=fix, code=CODE)
