"""A hatch build hook: prepare models while a wheel is built, and ship the results in it.

In the project's ``pyproject.toml``::

    [build-system]
    requires = ["hatchling", "dmlprep"]
    build-backend = "hatchling.build"

    [tool.hatch.build.targets.wheel.hooks.dmlprep]
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

__all__ = ["DmlprepBuildHook", "hatch_register_build_hook"]


class DmlprepBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Prepares the models listed under ``models`` and adds them to the wheel."""

    PLUGIN_NAME = "dmlprep"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare every model.

        Raises:
            ValueError: an entry lacks ``source`` or ``into``, or has an unknown field.
            RuntimeError: a model was refused, or parity failed: the build stops.
        """
        from dmlprep import prepare
        from dmlprep.files.run_folder import temporary_folder

        if version == "editable":
            return  # the sources are used in place; models are prepared for real wheels
        self._folder = temporary_folder("hatch")
        for number, entry in enumerate(self.config.get("models", [])):
            unknown = set(entry) - {"source", "into", "recipe", "pins", "target", "settings"}
            if unknown or "source" not in entry or "into" not in entry:
                raise ValueError(f"dmlprep.models[{number}]: needs source and into; unknown: {sorted(unknown)}")
            out = Path(self._folder.name) / str(number)
            record = prepare(
                Path(self.root) / entry["source"],
                out=out,
                recipe=entry.get("recipe", "@static-fp32"),
                pins=entry.get("pins", {}),
                target=entry.get("target"),
                settings=entry.get("settings", []),
            )
            if record.exit_code:
                raise RuntimeError(f"dmlprep could not prepare {entry['source']}: {record.error}")
            for file in out.iterdir():
                build_data["force_include"][str(file)] = f"{entry['into'].rstrip('/')}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was prepared: it is inside the wheel now."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


@hookimpl
def hatch_register_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Tell hatch of the hook."""
    return DmlprepBuildHook
