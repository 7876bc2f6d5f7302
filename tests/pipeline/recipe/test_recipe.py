"""Recipes: read whole or refused with the field's name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dmlprep.core.errors import RecipeError, UsageError
from dmlprep.pipeline.recipe import (
    apply_settings,
    builtin_names,
    load_recipe,
    make_plan,
    parse_recipe,
    read_settings,
    recipe_toml,
)


@pytest.mark.parametrize("name", builtin_names())
def test_every_builtin_recipe_loads_and_plans(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.doc
    plan = make_plan(recipe)
    assert [s.name for s in plan.steps] == list(recipe.step)


def test_the_recipes_that_are_promised_are_there() -> None:
    assert set(builtin_names()) >= {
        "@vision-fp16",
        "@transformer-fp16",
        "@diffusion-fp16",
        "@speech-fp16",
        "@super-resolution-fp16",
        "@static-fp32",
        "@denote-only",
        "@check-only",
    }


def test_order_written_is_order_run() -> None:
    recipe = parse_recipe('doc = "d"\n[step.pin]\n[step.opset]\n[step.again]\nuse = "pin"\n', "r")
    assert [(s.name, s.pass_.name) for s in make_plan(recipe).steps] == [
        ("pin", "pin"),
        ("opset", "opset"),
        ("again", "pin"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("doc = 3", "doc"),
        ('dco = "x"', "'dco'"),
        ("", "doc"),
        ('doc = ""', "doc"),
        ('doc = "d"\nformat = 2', "format"),
        ('doc = "d"\n[step.pni]', "'pni'"),
        ('doc = "d"\n[step.opset]\nversoin = 17', "'versoin'"),
        ('doc = "d"\n[step.opset]\nversion = "x y"', "version"),
        ('doc = "d"\n[step.pin]\nsizes = 3', "sizes"),
        ('doc = "d"\n[parity]\nseed = 1', "parity.seed"),
        ('doc = "d"\n[parity]\ndml = "maybe"', "field 'parity.dml': Invalid enum value 'maybe'"),
        ('doc = "d"\n[parity]\ndml = "maybe"', "one of: auto, require, off"),
        ('doc = "d"\n[step.fp16]\npolicy = "brave"', "one of: fast, balanced, safe"),
        ('doc = "d"\n[parity.sizes]\nbatch = 0', "field 'parity.sizes"),
        ('doc = "d"\n[step]\nfp16 = 3', "field 'step"),
        ('doc = "d"\n[step.a]\nuse = 3', "use"),
        ('doc = "d"\n[parity]\nseeds = 0', "seeds"),
        ('doc = "d"\n[parity]\ntime_limit = -1', "time_limit"),
        ('doc = "d"\n[step.fp16]\nkeep_io = "maybe"', "field 'keep_io'"),
        ("doc = ", "TOML"),
    ],
)
def test_mistakes_name_the_field(text: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        make_plan(parse_recipe(text, "mine.toml"))
    assert "mine.toml" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_typo_is_answered_with_the_word_meant() -> None:
    with pytest.raises(RecipeError) as caught:
        make_plan(parse_recipe('doc = "d"\n[step.simplfy]', "r"))
    assert "did you mean 'simplify'" in caught.value.fix


@pytest.mark.parametrize("name", ["@vision", "no/such.toml", "."])
def test_recipes_that_are_not_there(name: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe(name)


def test_a_bare_name_is_a_path_but_the_builtin_is_suggested() -> None:
    with pytest.raises(RecipeError, match="@vision-fp16"):
        load_recipe("vision-fp16")


def test_a_file_cannot_shadow_a_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "@vision-fp16").write_text('doc = "mine"')
    assert load_recipe("@vision-fp16").doc != "mine"
    (tmp_path / "mine.toml").write_text('doc = "mine"')
    assert load_recipe("mine.toml").doc == "mine"


def test_settings_override_fields() -> None:
    recipe = load_recipe("@vision-fp16")
    changed = apply_settings(
        recipe,
        read_settings(["step.fp16.keep_io=false", "parity.seeds=5", "target=ort-1.20", "parity.sizes.h=4"]),
    )
    assert changed.step["fp16"]["keep_io"] is False
    assert (changed.parity.seeds, changed.target, changed.parity.sizes) == (5, "ort-1.20", {"h": 4})
    assert recipe.step["fp16"]["keep_io"] is True


@pytest.mark.parametrize(
    "setting",
    ["step.fp16.keep_io", "=3", "step.fp61.keep_io=true", "step.fp16=3", "nonsense=1", "parity.seeds=many", "doc.x=1"],
)
def test_settings_that_mean_nothing(setting: str) -> None:
    with pytest.raises(RecipeError):
        make_plan(apply_settings(load_recipe("@vision-fp16"), read_settings([setting])))


def test_pins_go_to_the_pin_step() -> None:
    recipe = parse_recipe('doc = "d"\n[step.pin]\nsizes = { batch = 2, seq = 8 }', "r")
    (step,) = make_plan(recipe, {"batch": 1}).steps
    assert step.options["sizes"] == {"batch": 1, "seq": 8}


def test_values_go_to_the_pin_step() -> None:
    recipe = parse_recipe('doc = "d"\n[step.pin]\nvalues = { sr = 8000, flag = true }', "r")
    plan = make_plan(recipe, {"batch": 1, "sr:": 16000})
    assert plan.values == {"sr": 16000, "flag": True}
    assert plan.steps[0].pass_.options.sizes == {"batch": 1}


def test_pins_without_a_pin_step() -> None:
    with pytest.raises(RecipeError, match="pin"):
        make_plan(load_recipe("@denote-only"), {"batch": 1})


def test_unknown_target() -> None:
    with pytest.raises(UsageError, match="ort-9"):
        make_plan(apply_settings(load_recipe("@check-only"), {"target": "ort-9"}))


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_recipes_as_powershell_writes_them(mark: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes((mark + 'doc = "für mich"\r\n[step.opset]\r\n').encode(encoding))
    if mark or encoding == "utf-8":
        assert load_recipe(str(path)).doc == "für mich"
        return
    with pytest.raises(RecipeError, match="UTF-16 without a byte-order mark") as refused:
        load_recipe(str(path))
    assert refused.value.where == str(path)
    assert "save it as UTF-8" in refused.value.fix


def test_a_recipe_in_a_code_page_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes('doc = "für mich"'.encode("cp1252"))
    with pytest.raises(RecipeError, match="not UTF-8") as refused:
        load_recipe(str(path))
    assert "Out-File -Encoding utf8" in refused.value.fix


@pytest.mark.parametrize("name", builtin_names())
def test_a_recipe_that_is_written_reads_back_as_the_same(name: str) -> None:
    recipe = load_recipe(name)
    assert parse_recipe(recipe_toml(recipe, "a note\nof two lines"), name) == recipe
    odd = apply_settings(recipe, {"parity.sizes": {"a b": 3}, "parity.time_limit": 1.5, "limits.made_nodes": 7})
    odd = msgspec.structs.replace(odd, step={'of "mine"': {"use": "pin", "sizes": {"x:0": 1}, "values": {"s": [1.5]}}})
    assert parse_recipe(recipe_toml(odd), name) == odd
