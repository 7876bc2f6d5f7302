"""Compute the key of a job: a digest of everything that the job depends on. Equal keys mean equal results.

A key covers the content of the model file, the recipe with all settings, the feeds, the metric, the device with its
libraries, and dmlprep's own code. It does not cover external data files, which only the run finds: ``places`` compares
these with the earlier run.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import UsageError
from dmlprep.core.files.links import check_inside
from dmlprep.core.text.documents import canonical
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.matrix import Job
from dmlprep.pipeline.options import Session
from dmlprep.pipeline.recipe import Plan, apply_settings, load_recipe, make_plan
from dmlprep.record.origin import code_digest, origin

_MOST_FEED_FILES = 20_000
"""Most files in one folder of feeds."""

_LOOKED_INTO = {"feeds", "metric", "metric_bound", "device", "require_dml"}
"""Options whose values are not in the key, because the key has the facts that they stand for (digests, the device)."""


class Keys:
    """Collects everything that jobs depend on; files that several jobs share are read once."""

    def __init__(self, digests: Digests) -> None:
        self._digests = digests
        self._plans: dict[bytes, Plan] = {}
        self._devices: dict[str, str] = {}

    @cached_property
    def here(self) -> list[Any]:
        """Facts about this machine: digest of dmlprep's code, system, processor, and name -> version of packages."""
        return [code_digest(), platform.system(), platform.machine(), origin().versions]

    def plan(self, job: Job) -> Plan:
        """Return the plan of a job: its recipe with all settings resolved for its target.

        Raises:
            UsageError: the recipe or a setting is wrong.
        """
        proof = _proof(job)
        wanted = canonical([job.recipe, job.target, list(job.settings.items()), job.pins, proof])
        if wanted not in self._plans:
            recipe = apply_settings(load_recipe(job.recipe), {**job.settings, **proof})
            if job.target:
                recipe = msgspec.structs.replace(recipe, target=job.target)
            self._plans[wanted] = make_plan(recipe, job.pins)
        return self._plans[wanted]

    def facts(self, job: Job) -> dict[str, object]:
        """Return kind -> plain value of everything that the job depends on (``model``: a digest, ``steps`` ...).

        Raises:
            OSError: a file cannot be read.
            UsageError: the recipe, a setting or a folder of feeds is wrong.
        """
        plan = self.plan(job)
        recipe = plan.recipe
        file, function = metric_of(job, plan)
        bound = job.options.get("metric_bound", recipe.parity.metric_bound)
        facts = {
            "here": self.here,
            "model": self._digests.of(job.model),
            "target": plan.target.name,
            "steps": [[step.name, step.pass_.name, step.options] for step in plan.steps],
            "parity": recipe.parity,
            "limits": recipe.limits,
            "options": {name: value for name, value in job.options.items() if name not in _LOOKED_INTO},
            # The user's metric: its function, the bytes of its file, its bound.
            "metric": [function, self._digests.of(file) if file is not None else "", bound],
            "feeds": [[name, self._digests.of(path)] for name, path in feed_files(job.options.get("feeds", ()))],
            "device": self._device(plan),
        }
        plain: dict[str, object] = msgspec.to_builtins(facts, order="sorted")
        return plain

    def _device(self, plan: Plan) -> str:
        """Return the identity of the DirectML device that the job is proved on.

        Otherwise ``off``, ``none`` for no device, or ``available: NAME`` for a device without an identity.
        """
        if plan.recipe.parity.dml == "off":
            return "off"
        release = plan.target.ort_version
        if release not in self._devices:
            from dmlprep.runtime import SessionOptions, dml_status
            from dmlprep.runtime.identity import dml_identity

            session = SessionOptions(release=release)
            identity = dml_identity(session)
            if not identity:  # no device, or one that cannot be distinguished from others of its kind
                status = dml_status(session=session)
                identity = f"available: {status.device}" if status.available else "none"
            self._devices[release] = identity
        return self._devices[release]


def key_of(facts: Mapping[str, object]) -> str:
    """Return the key of a job from its ``facts``: SHA-256 in hexadecimal."""
    return hashlib.sha256(canonical(facts)).hexdigest()


def metric_of(job: Job, plan: Plan) -> tuple[Path | None, str]:
    """Return the file of the job's metric and the name of its function.

    The file is ``None`` for a metric of dmlprep; the name is empty for a job without a metric.
    """
    named, folder = job.options.get("metric", ""), Path()
    if not named:
        named = plan.recipe.parity.metric
        folder = Path() if plan.recipe.name.startswith("@") else Path(plan.recipe.name).parent
    file, _, function = named.rpartition(":")
    return folder / file if file else None, function


def _proof(job: Job) -> dict[str, object]:
    """Return the settings of the proof that follow from the job's options ``device`` and ``require_dml``."""
    try:
        return Session(**{name: job.options[name] for name in ("device", "require_dml") if name in job.options}).proof
    except UsageError as error:
        error.where = f"{job.name}: {error.where}"
        raise


def feed_files(feeds: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of every file in the option ``feeds``.

    The name is ``INPUT=`` for ``INPUT=FILE``, the path below the folder for a folder, and the suffix for another file.

    Raises:
        UsageError: a folder has more than 20,000 files, or a file in it is a link that leads out of it.
    """
    for feed in feeds:
        path = Path(feed)
        if path.is_dir():
            yield from _folder(path)
        elif path.exists() or "=" not in feed:
            yield path.suffix, path
        else:
            name, _, file = feed.rpartition("=")
            yield f"{name}=", Path(file)


def _folder(top: Path) -> Iterator[tuple[str, Path]]:
    count = 0
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(files):
            count += 1
            if count > _MOST_FEED_FILES:
                what = f"a folder of feeds has more than {_MOST_FEED_FILES} files"
                raise UsageError(what, where=str(top), fix="use a folder that contains only feeds")
            path = Path(folder, name)
            check_inside([path], top)
            yield path.relative_to(top).as_posix(), path
