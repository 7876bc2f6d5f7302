"""Parse the values of options: numbers, NAME=VALUE, sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dmlprep.core.errors import UsageError
from dmlprep.portable.bounds import MOST_SIZE, MOST_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmlprep.api.types import Array, Value

_KINDS = ("elements", "map", "classes", "logits", "angle")

_SIZES = "write NAME=SIZE (batch=1), or INPUT:AXIS=SIZE (x:0=1)"

LIMITS = ("made_bytes", "made_nodes", "folded_elements", "run_bytes", "run_seconds", "onnx_bytes", "onnx_seconds")
"""Arguments of ``api.limits``."""

N = TypeVar("N", int, float)


def _number(text: str, kind: Callable[[str], N]) -> N | None:
    try:
        return kind(text)
    except ValueError:
        return None


def read_limits(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, object]:
    """Parse arguments of ``api.limits``, which checks the ranges, from ``NAME=N``."""
    limits: dict[str, object] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in LIMITS:
            raise click.BadParameter(f"{name!r} is not a limit. Limits: {', '.join(LIMITS)}.", ctx, param)
        limit = _number(number, float if name.endswith("_seconds") else int)
        if limit is None:
            raise click.BadParameter(f"{name}={number!r} is not a number.", ctx, param)
        limits[name] = limit
    return limits


def read_pins(pins: tuple[str, ...]) -> dict[str, Value]:
    """Parse pins: ``batch=1`` -> ``{"batch": 1}``, a size; ``sr:=16000`` -> ``{"sr:": 16000}``, a value."""
    from dmlprep.api.recipes import read_value

    values: dict[str, Value] = {}
    for pin in pins:
        name, separator, text = pin.partition(":=")
        if not separator:
            continue
        if not name.strip() or not text.strip():
            raise UsageError(f"{pin!r} is not a pin", where="--pin", fix="write INPUT:=VALUE (sr:=16000)")
        key, value = f"{name.strip()}:", read_value(text.strip())
        if repr(values.setdefault(key, value)) != repr(value):  # NaN is not equal to itself
            what = f"{key!r} has two values, {values[key]} and {value}"
            raise UsageError(what, where="--pin", fix="pass one value per input", code="DP204")
    sizes = tuple(pin for pin in pins if ":=" not in pin)
    return {**read_sizes(sizes, form=f"{_SIZES}, or INPUT:=VALUE (sr:=16000)"), **values}


def read_bucket(text: str) -> dict[str, int]:
    """Parse a bucket: ``batch=1,height=512`` -> ``{"batch": 1, "height": 512}``; no size may be 0."""
    form = "write NAME=SIZE,NAME=SIZE (batch=1,height=512)"
    sizes = read_sizes(tuple(part.strip() for part in text.split(",")), "--bucket", form)
    if empty := next((name for name, size in sizes.items() if not size), ""):
        raise UsageError(f"{empty!r} has size 0", where="--bucket", fix="pass sizes of at least 1")
    return sizes


def read_sizes(pins: tuple[str, ...], option: str = "--pin", form: str = _SIZES) -> dict[str, int]:
    """Parse sizes: ``batch=1`` -> ``{"batch": 1}``; ``option`` is their name in errors, ``form`` the fix."""
    sizes: dict[str, int] = {}
    for pin in pins:
        name, _, text = pin.rpartition("=")
        size = _number(text, int)
        if size is not None and size > MOST_SIZE:
            fix = f"pass a whole number from 0 to {MOST_SIZE}"
            raise UsageError(f"{size} is not a size of a dimension", where=f"{option} {name.strip()}", fix=fix)
        if not name.strip() or size is None or size < 0:
            raise UsageError(f"{pin!r} is not a valid {option.lstrip('-')}", where=option, fix=form)
        if sizes.setdefault(name.strip(), size) != size:
            what = f"{name!r} has two sizes, {sizes[name.strip()]} and {size}"
            raise UsageError(what, where=option, fix="pass one size per dimension", code="DP204")
    return sizes


def read_numbers(_context: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    """Parse the value of an option: ``0.5`` or ``0.485,0.456,0.406``."""
    numbers = [_number(part, float) for part in text.split(",")]
    if not all(number is not None and abs(number) <= MOST_VALUE for number in numbers):  # NaN is not
        fix = "write one number, or one for each channel: 0.485,0.456,0.406"
        raise UsageError(f"{text!r} is not a list of numbers", where=f"--{option.name}", fix=fix)
    return tuple(float(number) for number in numbers if number is not None)


def read_inputs(texts: tuple[str, ...]) -> dict[str, Array | Path]:
    """Parse values of inputs: ``sr=16000``, ``h=0,0``, ``mask=file.npy``."""
    import numpy as np

    values: dict[str, Array | Path] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals and value.endswith(".npy"):
            values[name] = Path(value)
            continue
        numbers = [_number(part, float if "." in part or "e" in part.lower() else int) for part in value.split(",")]
        if not name or any(n is None or (isinstance(n, int) and abs(n) >= 1 << 63) for n in numbers):
            fix = "write NAME=NUMBER, NAME=1,2,3 or NAME=file.npy"
            raise UsageError(f"{text!r} sets no value", where="--set", fix=fix)
        values[name] = np.array(numbers if len(numbers) > 1 else numbers[0])
    return values


def read_measures(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse kinds of outputs: ``output=map`` -> ``{"output": "map"}``."""
    kinds = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if not name or kind not in _KINDS:
            fix = f"write OUTPUT=KIND; kinds: {', '.join(_KINDS)}"
            raise UsageError(f"{text!r} is not OUTPUT=KIND", where="--measure", fix=fix)
        kinds[name] = kind
    return kinds


class Number(click.FloatRange):
    """A number within bounds. Click's own range takes NaN, which is neither below nor above a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; refuse infinity and NaN."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
