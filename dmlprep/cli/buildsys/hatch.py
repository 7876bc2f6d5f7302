"""A hatch build hook: prepare models while a wheel is built, and ship the results in it.

In the project's ``pyproject.toml``::

    [build-system]
    requires = ["hatchling", "dmlprep"]
    build-backend = "hatchling.build"

    [[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]
    source = "models/detector.onnx"
    into = "mypackage/detector"          # model.onnx and run.json go here, inside the wheel
    recipe = "@vision-fp16"
    pins = { batch = 1 }
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

_FIELDS = {"source", "into", "recipe", "pins", "target", "settings", "feeds", "external_data"}


class DmlprepBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Prepares the models listed under ``models`` and adds them to the wheel."""

    PLUGIN_NAME = "dmlprep"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare every model, each time a wheel is built, but not for an editable install.

        An error stops the build with one line.
        """
        from dmlprep.core.errors import DmlprepError
        from dmlprep.core.files.run_folder import temporary_folder

        if version == "editable":
            return  # the sources are used in place; models are prepared for real wheels
        self._folder = temporary_folder("hatch")
        places: dict[str, int] = {}
        for number, entry in enumerate(self.config.get("models", [])):
            self._check(number, entry, places)
            out = Path(self._folder.name) / str(number)
            try:
                error = self._prepare(entry, out)
            except DmlprepError as raised:
                error = str(raised)
            if error:
                self.app.abort(f"dmlprep could not prepare {entry['source']}: {error}")
            for file in out.iterdir():
                build_data["force_include"][str(file)] = f"{entry['into'].rstrip('/')}/{file.name}"

    def _check(self, number: int, entry: dict[str, Any], places: dict[str, int]) -> None:
        unknown = sorted(set(entry) - _FIELDS)
        if unknown or "source" not in entry or "into" not in entry:
            self.app.abort(f"dmlprep.models[{number}]: needs source and into; unknown: {unknown}")
        place = entry["into"].rstrip("/")
        if places.setdefault(place, number) != number:
            self.app.abort(f"dmlprep.models[{number}]: models[{places[place]}] goes into {place} as well")

    def _prepare(self, entry: dict[str, Any], out: Path) -> str:
        """Prepare one model; return why it failed, or an empty text. A ``DmlprepError`` of ``prepare`` is raised."""
        from dmlprep.api import prepare
        from dmlprep.api.recipes import read_settings

        root = Path(self.root)
        recipe = entry.get("recipe", "@static-fp32")
        record = prepare(
            root / entry["source"],
            out=out,
            recipe=recipe if recipe.startswith("@") else root / recipe,
            pins=entry.get("pins", {}),
            target=entry.get("target"),
            settings=read_settings(entry.get("settings", [])),
            feeds=[root / feed for feed in entry.get("feeds", [])],
            external_data=entry.get("external_data", False),
        )
        return str(record.error or "it failed") if record.exit_code else ""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the prepared models: the wheel contains them now."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


@hookimpl
def hatch_register_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Return the hook for hatch."""
    return DmlprepBuildHook
