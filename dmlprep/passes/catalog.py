"""Find passes by their name. A pass's module is imported only when it is used, because most of them load slowly."""

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
"""Map from a pass's name to ``module:class``. A test compares it with this package's modules and ``docs/passes``."""


def suggest(word: str, words: list[str]) -> str:
    """Return the text of a fix for an unknown word: ``did you mean X?`` for a close match, otherwise all ``words``."""
    from difflib import get_close_matches

    close = get_close_matches(word, words, 1, 0.7)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(words))}"


def find_pass(name: str, where: str = "") -> type[AnyPass]:
    """Return the class of the pass ``name``.

    Raises:
        RecipeError: there is no such pass; ``where`` says where its name is in the recipe.
    """
    if name not in CATALOG:
        raise RecipeError(f"unknown step {name!r}", where=where, fix=suggest(name, list(CATALOG)), code="DP901")
    module, _, cls = CATALOG[name].partition(":")
    pass_class: type[AnyPass] = getattr(import_module(module), cls)
    return pass_class


def make_pass(name: str, options: dict[str, object], where: str = "") -> AnyPass:
    """Return a pass with its options.

    Raises:
        RecipeError: there is no such pass or field, or a value has the wrong type or is out of range. ``where`` says
            where the table is in the recipe.
    """
    cls = find_pass(name, where)
    known = set(cls.options_type.__struct_fields__)
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
    """Return msgspec's error for a wrong value as a message that begins with the field, and the text of a fix.

    Example of a message: ``field 'keep_io': Expected `bool | array`, got `str```. If the field accepts only a few
    words, the fix lists them.

    Args:
        table: the struct that has the field.
        prefix: text before the field's name in msgspec's error (``parity.``).
        within: text to put before the field's name in the message, if ``table`` is only a part of the user's file.
        page: the page of the documentation that describes the fields.
    """
    text, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    kind = get_type_hints(table).get(field.removeprefix(prefix))
    words = [str(word) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)]
    if not words and kind is not None and bool in (kind, *get_args(kind)) and "got `str`" in text:
        words = ["true", "false"]
    fix = f"one of: {', '.join(words)}" if words else f"see {page}"
    return (f"field {within + field!r}: {text}" if field else text), fix
