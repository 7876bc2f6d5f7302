"""Tables of a frame that name a ``preprocessor_config.json``: its fields are read when the plan is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dmlprep.core.errors import RecipeError
from dmlprep.core.files import Unfit, explain, parse_json, read_text
from dmlprep.passes.framing.preprocessor import NoTable, as_table

_BYTES = 1 << 20
"""Of a configuration: those in use have a thousand."""


def with_configs(options: dict[str, object], recipe: str, where: str) -> dict[str, object]:
    """The options of a step ``frame`` with the fields of each ``config``; those that the table has itself win.

    Args:
        recipe: its name; a path in it is relative to its folder.

    Raises:
        RecipeError: a configuration cannot be read, or asks for what a frame has no field for.
    """
    inputs = options.get("inputs")
    if not isinstance(inputs, dict):
        return options
    folder = Path() if recipe.startswith("@") else Path(recipe).parent
    found: dict[str, object] = {}
    for name, table in inputs.items():
        found[name] = table
        if isinstance(table, dict) and "config" in table:
            own = {key: value for key, value in table.items() if key != "config"}
            found[name] = {**_read(folder, table["config"], f"{where}.inputs.{name}.config"), **own}
    return {**options, "inputs": found}


def _read(folder: Path, config: object, where: str) -> dict[str, object]:
    if not isinstance(config, str):
        raise RecipeError("'config' is a path", where=where, fix="write it as a string", code="DP901")
    path = folder / config
    try:
        held = parse_json(read_text(path, _BYTES), Any, lenient=True)
        if not isinstance(held, dict):
            raise Unfit("it holds no table", "give the preprocessor_config.json of the model")
        return as_table(held)
    except OSError as error:
        what, fix = explain(error, path)
        what, fix = what or f"{path} cannot be read: {error.strerror or error}", fix or "check the path"
        raise RecipeError(what, where=where, fix=fix, code="DP902") from error
    except (Unfit, NoTable) as error:
        raise RecipeError(f"{path}: {error}", where=where, fix=error.fix, code="DP901") from error
