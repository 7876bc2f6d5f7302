"""Recipes and settings that are no recipes: too deep, too long, no plain file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dmlprep.core.errors import RecipeError
from dmlprep.pipeline.recipe import apply_settings, load_recipe, parse_recipe, read_settings
from dmlprep.pipeline.recipe.recipe import read_value


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000, "-" + "9" * 5000, "{a=" * 5000, "[" * 40 + "]" * 40])
def test_values_that_nothing_can_hold(value: str) -> None:
    for ask in (
        lambda: parse_recipe(f'doc = "d"\n[parity]\nseeds = {value}', "mine.toml"),
        lambda: apply_settings(load_recipe("@static-fp32"), read_settings([f"parity.seeds={value}"])),
        lambda: read_value(value),
    ):
        with pytest.raises(RecipeError) as caught:
            ask()
        assert caught.value.fix
        assert len(str(caught.value)) < 300


def test_a_setting_of_a_field_too_deep() -> None:
    with pytest.raises(RecipeError, match="more than 32 deep"):
        apply_settings(load_recipe("@static-fp32"), {"parity" + ".a" * 3000: 1})


def test_a_path_that_is_too_long() -> None:
    for name in ("a" * 5000, "x/" * 5000, "a\0b"):
        with pytest.raises(RecipeError):
            load_recipe(name)


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes and no /dev among files")
def test_a_recipe_that_has_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RecipeError, match="this is a"):
            load_recipe(str(path))


def test_a_recipe_of_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(RecipeError, match="at most 1 MiB"):
        load_recipe(str(path))
