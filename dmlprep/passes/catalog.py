"""Every pass by its name. A module is imported only when its pass is used, because most of them load slowly."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from dmlprep.core.errors import RecipeError
from dmlprep.passes.base import AnyPass

CATALOG: dict[str, str] = {
    "opset": "dmlprep.passes.opset:OpsetPass",
    "pin": "dmlprep.passes.pin:PinPass",
    "denote": "dmlprep.passes.denote:DenotePass",
    "simplify": "dmlprep.passes.simplify:SimplifyPass",
    "fix-quirks": "dmlprep.passes.fix_quirks:FixQuirksPass",
    "fp16": "dmlprep.passes.fp16:Fp16Pass",
    "fuse": "dmlprep.passes.fuse:FusePass",
    "frame": "dmlprep.passes.frame:FramePass",
    "weights": "dmlprep.passes.weights:WeightsPass",
}
"""Name -> ``module:class``. A test compares it with the modules in this room and with ``docs/passes``."""


def suggest(word: str, words: list[str]) -> str:
    """``did you mean X`` for a close match; the list of words otherwise."""
    from difflib import get_close_matches

    close = get_close_matches(word, words, 1, 0.7)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(words))}"


def find_pass(name: str, where: str = "") -> type[AnyPass]:
    """Return the class of a pass; ``RecipeError`` where there is no such pass."""
    if name not in CATALOG:
        raise RecipeError(f"unknown step {name!r}", where=where, fix=suggest(name, list(CATALOG)), code="DP901")
    module, _, cls = CATALOG[name].partition(":")
    pass_class: type[AnyPass] = getattr(import_module(module), cls)
    return pass_class


def make_pass(name: str, options: dict[str, object], where: str = "") -> AnyPass:
    """Return a pass with its options.

    Raises:
        RecipeError: unknown pass or field, or a value of the wrong type; ``where`` names the field.
    """
    cls = find_pass(name, where)
    known = {f.name for f in msgspec.structs.fields(cls.options_type)}
    for key in options:
        if key not in known:
            fix = suggest(key, sorted(known)) if known else "this step has no fields"
            raise RecipeError(f"unknown field {key!r}", where=where or f"step {name}", fix=fix, code="DP901")
    try:
        return cls(msgspec.convert(options, cls.options_type))
    except msgspec.ValidationError as error:
        text, fix = wrong_value(error, cls.options_type)
        raise RecipeError(text, where=where or f"step {name}", fix=fix, code="DP901") from error


def wrong_value(
    error: msgspec.ValidationError,
    table: type[msgspec.Struct],
    prefix: str = "",
    *,
    within: str = "",
    page: str = "docs/recipes.md",
) -> tuple[str, str]:
    """Return msgspec's error for a field, and a fix.

    Example of an error: ``field 'keep_io': Expected `bool | array`, got `str```. msgspec puts the field last. If the
    field accepts only a few words, the fix lists them.

    Args:
        table: the struct that has the field. ``prefix`` (``parity.``) comes before the field in msgspec's message.
        within: text before the field in the user's file, where ``table`` is a part of it.
        page: the page that describes the fields.
    """
    text, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    kind = get_type_hints(table).get(field.removeprefix(prefix))
    words = [str(word) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)]
    if not words and kind is not None and bool in (kind, *get_args(kind)) and "got `str`" in text:
        words = ["true", "false"]
    fix = f"one of: {', '.join(words)}" if words else f"see {page}"
    return (f"field {within + field!r}: {text}" if field else text), fix
