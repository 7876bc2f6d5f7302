"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dmlprep.bounds import MOST_ADAPTERS, MOST_SECONDS, MOST_SIZE, MOST_VALUE
from dmlprep.cli.completing import recipes, targets
from dmlprep.cli.numbers import Number
from dmlprep.errors import UsageError
from dmlprep.files import Unfit, is_pattern, matching

if TYPE_CHECKING:
    from dmlprep.model.pinned import Value

__all__ = [
    "adapter_options",
    "device_options",
    "feeds_option",
    "format_option",
    "given_models",
    "gpu_option",
    "metric_options",
    "models_argument",
    "optimization_option",
    "quiet_option",
    "read_bucket",
    "read_pins",
    "read_sizes",
    "recipe_options",
    "seconds_option",
    "settings_options",
    "sizes_option",
    "time_limit_option",
    "vram_option",
]

F = TypeVar("F", bound=Callable[..., Any])


def models_argument(function: F) -> F:
    """``MODEL...``; see ``given_models``."""
    kind = click.Path(path_type=Path)
    return click.argument("models", type=kind, nargs=-1, required=True, metavar="MODEL...")(function)


def given_models(paths: tuple[Path, ...]) -> list[Path]:
    """The files that are meant: patterns (``models/*.onnx``), which the shells of Windows leave as they are, expanded.

    Raises:
        UsageError: no file matches a pattern, or too many do.
    """
    found: list[Path] = []
    for path in paths:
        text = str(path)
        if not is_pattern(text) or path.exists():
            found.append(path)
            continue
        try:
            matches = matching(Path(), text)
        except Unfit as error:
            raise UsageError(str(error), where=text, fix=error.fix) from error
        if not matches:
            raise UsageError("nothing matches this pattern", where=text, fix="check the path; ** is any folders")
        found += matches
    return found


def settings_options(function: F) -> F:
    """``--pin``, ``--set``, ``--target``."""
    for option in (
        click.option(
            "--target",
            metavar="NAME",
            shell_complete=targets,
            help="DirectML release to prepare for (dmlprep target list).",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="FIELD=VALUE",
            help="Override a recipe field: step.fp16.keep_io=false.",
        ),
        click.option(
            "-p",
            "--pin",
            "pins",
            multiple=True,
            metavar="DIM=SIZE",
            help="Fix a dimension, by name (batch=1) or by input and axis (pixel_values:0=1), or the value of an input "
            "(sr:=16000).",
        ),
    ):
        function = option(function)
    return function


def recipe_options(function: F) -> F:
    """``--recipe``, ``--pin``, ``--set``, ``--target``."""
    return click.option(
        "-r",
        "--recipe",
        default="@static-fp32",
        show_default=True,
        metavar="NAME",
        shell_complete=recipes,
        help="Built-in recipe (@vision-fp16; dmlprep recipe list) or a .toml file.",
    )(settings_options(function))


def feeds_option(function: F) -> F:
    """``--feeds``."""
    return click.option(
        "--feeds",
        multiple=True,
        metavar="WHAT",
        help="Inputs to prove with: an .npz, NAME=file.npy, a folder of .npz or .npy, or an ONNX test_data_set folder; "
        "dmlprep feeds makes them.",
    )(function)


def adapter_options(function: F) -> F:
    """``--device-id`` and ``--adapter``."""
    number = click.option(
        "--device-id",
        type=click.IntRange(0, MOST_ADAPTERS),
        metavar="N",
        help="DirectML adapter by its number in DXGI's order (dmlprep doctor --adapters).",
    )
    name = click.option(
        "--adapter",
        metavar="NAME",
        help="DirectML adapter by its vendor (NVIDIA, AMD, Intel, Qualcomm) or by a part of its name.",
    )
    return number(name(function))


def gpu_option(function: F) -> F:
    """``--gpu``."""
    return click.option(
        "--gpu",
        is_flag=False,
        flag_value="auto",
        metavar="[NAME|auto]",
        help="On Linux: run DirectML on this GPU, by its vendor, a part of its name or its number (dmlprep runtime "
        "status), and exit 3 where there is none. Without it DirectML computes on the CPU.",
    )(function)


def device_options(function: F) -> F:
    """``--device``, ``--device-id``, ``--adapter``, ``--gpu``, ``--require-dml``."""
    for option in (
        click.option("--require-dml", is_flag=True, help="Exit 3 unless a DirectML session ran."),
        gpu_option,
        adapter_options,
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "dml"]),
            default="auto",
            show_default=True,
            help="Where to prove it: auto is the CPU, and DirectML where a session can run.",
        ),
    ):
        function = option(function)
    return function


def metric_options(function: F) -> F:
    """``--metric`` and ``--metric-bound``."""
    bound = click.option(
        "--metric-bound",
        type=Number(-MOST_VALUE, MOST_VALUE),
        metavar="NUMBER",
        help="Largest number of --metric that passes.",
    )
    name = click.option(
        "--metric",
        metavar="FILE.py:FUNCTION",
        help="Your own measure, which decides in place of the tolerance (docs/parity.md). The file is run.",
    )
    return name(bound(function))


def vram_option(function: F) -> F:
    """``--vram``."""
    says = "Memory that the device has (4GB, 800MB, 4GiB): exit 1 where a session needs more (docs/memory.md)."
    return click.option("--vram", metavar="SIZE", help=says)(function)


def sizes_option(function: F) -> F:
    """``--size``, for dimensions that stay free in feeds made from a seed."""
    return click.option("--size", "sizes", multiple=True, metavar="DIM=SIZE", help="Size of a free dimension.")(
        function
    )


def optimization_option(says: str) -> Callable[[F], F]:
    """``--optimization``."""
    levels = click.Choice(["disabled", "basic", "extended", "all"])
    return click.option("--optimization", type=levels, default="all", show_default=True, help=says)


def time_limit_option(seconds: float, says: str) -> Callable[[F], F]:
    """``--time-limit``; ``seconds`` by default."""
    return click.option(
        "--time-limit",
        type=Number(0, MOST_SECONDS, min_open=True),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help=says,
    )


def quiet_option(function: F) -> F:
    """``-q``: what a build or a script wants to read."""
    says = "No progress, and one line where all is well."
    return click.option("-q", "--quiet", is_flag=True, help=says)(function)


def seconds_option(name: str, says: str) -> Callable[[F], F]:
    """How long the timed runs of a measurement last."""
    return click.option(
        name, type=Number(0, MOST_SECONDS), default=10.0, show_default=True, metavar="SECONDS", help=says
    )


def format_option(*formats: str) -> Callable[[F], F]:
    """``--format``; the first is the default."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(list(formats)),
        default=formats[0],
        show_default=True,
        help="Form of the result on stdout.",
    )


def read_pins(pins: tuple[str, ...]) -> dict[str, Value]:
    """``batch=1`` -> ``{"batch": 1}``, a size; ``sr:=16000`` -> ``{"sr:": 16000}``, a value.

    Raises:
        UsageError: neither NAME=SIZE nor INPUT:=VALUE, or one name with two sizes or values.
    """
    from dmlprep.recipe.recipe import read_value

    values: dict[str, Value] = {}
    for pin in pins:
        name, given, text = pin.partition(":=")
        if not given:
            continue
        if not name.strip() or not text.strip():
            raise UsageError(f"{pin!r} is no pin", where="--pin", fix="write INPUT:=VALUE (sr:=16000, size:=[640,640])")
        key, value = f"{name.strip()}:", read_value(text.strip())
        if values.setdefault(key, value) != value:
            what = f"{key!r} is given two values, {values[key]} and {value}"
            raise UsageError(what, where="--pin", fix="give each input one value", code="DP204")
    return {**read_sizes(tuple(pin for pin in pins if ":=" not in pin)), **values}


def read_bucket(text: str) -> dict[str, int]:
    """``batch=1,height=512`` -> ``{"batch": 1, "height": 512}``.

    Raises:
        UsageError: a part is not NAME=SIZE, or a size is 0.
    """
    sizes = read_sizes(tuple(part.strip() for part in text.split(",")), "--bucket")
    if empty := next((name for name, size in sizes.items() if not size), ""):
        raise UsageError(f"{empty!r} has size 0, which holds nothing", where="--bucket", fix="give sizes from 1")
    return sizes


def read_sizes(pins: tuple[str, ...], option: str = "--pin") -> dict[str, int]:
    """``batch=1`` -> ``{"batch": 1}``.

    Args:
        option: by which they were given, for errors.

    Raises:
        UsageError: not NAME=SIZE, or one name with two sizes.
    """
    sizes: dict[str, int] = {}
    for pin in pins:
        name, equals, text = pin.rpartition("=")
        try:
            size = int(text)
        except ValueError:
            size = -1
        if size > MOST_SIZE:
            fix = f"give a whole number from 0 to {MOST_SIZE}"
            raise UsageError(f"{size} is no size of a dimension", where=f"{option} {name.strip()}", fix=fix)
        if not equals or not name.strip() or size < 0:
            raise UsageError(
                f"{pin!r} is no {option.lstrip('-')}",
                where=option,
                fix="write NAME=SIZE (batch=1), INPUT:AXIS=SIZE (x:0=1), or INPUT:=VALUE (sr:=16000)"
                if option == "--pin"
                else "write NAME=SIZE,NAME=SIZE (batch=1,height=512)",
            )
        if sizes.setdefault(name.strip(), size) != size:
            raise UsageError(
                f"{name!r} is given two sizes, {sizes[name.strip()]} and {size}",
                where=option,
                fix="give each dimension one size",
                code="DP204",
            )
    return sizes
