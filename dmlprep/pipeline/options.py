"""The options of ``prepare``, each declared once: type, default, help and range.

To add an option, add a field to ``PrepareOptions``, the same name to ``PrepareKeywords`` and to ``prepare_options`` of
the commands that accept it (``cli/prepare.py``), and the code that uses it.
"""

# ruff: noqa: RUF009 - _option returns a field of a dataclass
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from dmlprep.core.errors import UsageError
from dmlprep.portable.bounds import MOST_ADAPTERS, MOST_SECONDS, MOST_VALUE

if TYPE_CHECKING:
    from dmlprep.graph.model.pinned import Value
    from dmlprep.metrics import NamedMetric
    from dmlprep.portable.arrays import Array
    from dmlprep.runtime import SessionOptions

Device = Literal["auto", "cpu", "dml"]

Feeds: TypeAlias = "Sequence[str | Path | Mapping[str, Array]]"
"""Inputs for a model: ``.npz`` files, ``NAME=file.npy``, folders, or arrays by input name; empty: synthetic inputs."""

Metric = Callable[[dict[str, Any], dict[str, Any]], object]
"""A user's own metric: a function of the outputs, by name, of the original and of the candidate on one feed.

It returns a number, which ``metric_bound`` limits; or a number, and True if the outputs pass.
"""


@dataclass(frozen=True)
class Option:
    """The form of one option on the command line and in files.

    Attributes:
        help: text for ``--help``.
        kind: type of the value. ``bool`` is a flag without a value; ``list`` and ``dict`` can be repeated.
        flags: its words on the command line; empty: ``--`` and its name.
        choices: the valid values; empty for any.
        least, most: limits of a number, both included.
        bare: the value that the flag has if the user passes it without a value; ``None``: a value is required.
        shows_default: True if ``--help`` names the default.
        completes: kind of names for shell completion: ``recipes`` or ``targets``; empty for none.
        in_files: True if project files accept the option.
        group: heading in the help of commands; empty for the first list.
        rare: True if the help of a command with many options leaves the option out (``--help-all``).
    """

    help: str
    kind: type = str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    bare: str | None = None
    shows_default: bool = False
    completes: str = ""
    in_files: bool = False
    group: str = ""
    rare: bool = False

    def words(self, name: str, value: Any) -> list[str]:
        """Return the words of a command line that set option ``name`` to ``value``; empty for False or an empty list.

        Options of the kind ``dict`` are not supported.
        """
        flag = self.flags[-1] if self.flags else f"--{name.replace('_', '-')}"
        if self.kind is bool:
            return [flag] if value else []
        return [f"{flag}={one}" for one in (value if self.kind is list else [value])]


def _option(help: str, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field with an ``Option`` as metadata; the default of the kind ``dict`` is an empty dict."""
    metadata = {"option": Option(help, **more)}
    is_dict = more.get("kind") is dict
    return field(default_factory=dict, metadata=metadata) if is_dict else field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The choice of the device that DirectML runs on: an adapter on Windows, a GPU on Linux."""

    device_id: int | None = _option(
        "DirectML adapter, by its DXGI number (dmlprep doctor --adapters).",
        kind=int,
        least=0,
        most=MOST_ADAPTERS,
        metavar="N",
        group="Device",
        rare=True,
    )
    adapter: str | None = _option(
        "DirectML adapter, by its vendor (NVIDIA, AMD, Intel, Qualcomm) or a part of its name.",
        metavar="NAME",
        group="Device",
        rare=True,
    )
    gpu: str | None = _option(
        "Linux: GPU for DirectML, by its vendor, a part of its name or its number (dmlprep runtime status). Exit "
        "3 if no such GPU exists. Default: DirectML computes on the CPU.",
        bare="auto",
        metavar="[NAME|auto]",
        group="Device",
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, one.metadata["option"], getattr(self, one.name), one.default)

    def resolve(self, on: str, **more: Any) -> SessionOptions:
        """Return the options of a session, in which the chosen adapter or GPU has its number instead of its name.

        Args:
            on: the device of the session: ``cpu``, ``dml`` or ``auto``.
            more: other fields of ``SessionOptions``.

        Raises:
            UsageError: ``adapter`` matches no adapter or several, or ``device_id`` is set too. ``gpu`` matches several.
                One of the two is empty, is set for a session on the CPU, or does not work on this system.
            CheckNotRun: no GPU matches ``gpu``.
        """
        from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu

        number = choose_adapter(self.adapter, self.device_id, on=on)
        return SessionOptions(device_id=number, gpu=choose_gpu(self.gpu, on=on), **more)


@dataclass(frozen=True, kw_only=True)
class Session(Adapter):
    """The device for the proof, and whether a DirectML session is required."""

    device: Device = _option(
        "Device for the proof. auto: the CPU, and also DirectML if it is available.",
        default="auto",
        choices=("auto", "cpu", "dml"),
        shows_default=True,
        in_files=True,
        group="Device",
    )
    require_dml: bool = _option(
        "Exit 3 if no DirectML session ran.", default=False, kind=bool, in_files=True, group="Inputs and proof"
    )

    @property
    def proof(self) -> dict[str, object]:
        """The recipe setting ``parity.dml`` that follows from these options; empty if the recipe decides.

        Raises:
            UsageError: DirectML is required, and the device is the CPU.
        """
        if self.require_dml and self.device == "cpu":
            what = "require_dml needs DirectML, but the device is the CPU"
            raise UsageError(what, where="device cpu, require_dml", fix="remove one of the two")
        if self.require_dml or self.device == "dml" or self.gpu is not None:
            return {"parity.dml": "require"}
        return {"parity.dml": "off"} if self.device == "cpu" else {}


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(Session):
    """All options of a run of ``prepare``, except the path of the model and that of the result.

    Raises:
        UsageError: a number is out of range, a value is not one of the choices, or a list or dict has the wrong type.
    """

    recipe: str | Path = _option(
        "Built-in recipe (@vision-fp16; dmlprep explain recipes) or a .toml file.",
        default="@static-fp32",
        flags=("-r", "--recipe"),
        metavar="NAME",
        completes="recipes",
        shows_default=True,
        in_files=True,
    )
    pins: Mapping[str, Value] = _option(
        "Fix a dimension by name (batch=1) or by input and axis (pixel_values:0=1), or fix the value of an "
        "input (sr:=16000).",
        kind=dict,
        flags=("-p", "--pin"),
        metavar="DIM=SIZE",
        in_files=True,
    )
    settings: Mapping[str, object] = _option(
        "Override a recipe field: step.fp16.keep_io=false.",
        kind=dict,
        flags=("--set",),
        metavar="FIELD=VALUE",
        in_files=True,
        rare=True,
    )
    target: str | None = _option(
        "DirectML release to prepare for (dmlprep explain targets). Default: the one of the recipe, otherwise the one "
        "that is installed here, otherwise the latest.",
        metavar="NAME",
        completes="targets",
        in_files=True,
    )
    feeds: Feeds = _option(
        "Your own inputs: an .npz file, NAME=file.npy, a folder of .npz or .npy files, or an ONNX "
        "test_data_set folder. dmlprep feeds makes such files.",
        default=(),
        kind=list,
        metavar="WHAT",
        in_files=True,
        group="Inputs and proof",
    )
    metric: str | Metric | NamedMetric | None = _option(
        "Your own measure, used instead of the tolerance (docs/parity.md). dmlprep runs this file.",
        metavar="FILE.py:FUNCTION",
        in_files=True,
        group="Inputs and proof",
        rare=True,
    )
    metric_bound: float | None = _option(
        "Largest value of --metric that passes.",
        kind=float,
        least=-MOST_VALUE,
        most=MOST_VALUE,
        metavar="NUMBER",
        in_files=True,
        group="Inputs and proof",
        rare=True,
    )
    vram: str | int | None = _option(
        "Memory of the device (4GB, 800MB, 4GiB). Exit 1 if a session needs more (docs/memory.md).",
        metavar="SIZE",
        in_files=True,
        group="Device",
        rare=True,
    )
    bench: bool = _option(
        "Time the result, MODEL, and MODEL with overridden sizes (docs/speed.md). For information only.",
        default=False,
        kind=bool,
        group="Speed",
        rare=True,
    )
    bench_seconds: float = _option(
        "Total time for the runs of --bench.",
        default=10.0,
        kind=float,
        least=0,
        most=MOST_SECONDS,
        metavar="SECONDS",
        shows_default=True,
        group="Speed",
        rare=True,
    )
    fresh: bool = _option(
        "Ignore cached verdicts: run on DirectML again (docs/parity.md).",
        default=False,
        kind=bool,
        group="Inputs and proof",
        rare=True,
    )
    external_data: bool = _option(
        "Write large weights to model.onnx.data, even if they are below 1 GiB together.",
        default=False,
        kind=bool,
        group="Output",
        rare=True,
    )
    force: bool = _option("Replace existing files.", default=False, kind=bool)

    def __post_init__(self) -> None:
        for name in ("pins", "settings"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, {})
        super().__post_init__()

    @property
    def chosen(self) -> dict[str, object]:
        """The options that differ from their defaults, by name, as values for JSON.

        Functions and arrays appear as a name only.
        """
        values = {name: _plain(getattr(self, name)) for name in OPTIONS}
        return {name: value for name, value in values.items() if value != _plain(getattr(_DEFAULTS, name))}


class AdapterKeywords(TypedDict, total=False):
    """The fields of ``Adapter`` as keyword arguments, for type checkers."""

    device_id: int | None
    adapter: str | None
    gpu: str | None


class SessionKeywords(AdapterKeywords, total=False):
    """The fields of ``Session`` as keyword arguments, for type checkers."""

    device: Device
    require_dml: bool


class PrepareKeywords(SessionKeywords, total=False):
    """The fields of ``PrepareOptions`` as keyword arguments, for type checkers."""

    recipe: str | Path
    pins: Mapping[str, Value]
    settings: Mapping[str, object]
    target: str | None
    feeds: Feeds
    metric: str | Metric | NamedMetric | None
    metric_bound: float | None
    vram: str | int | None
    bench: bool
    bench_seconds: float
    fresh: bool
    external_data: bool
    force: bool


OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(PrepareOptions)}
"""All options of ``prepare`` by name, in the order of their declaration."""

_EXAMPLES = {"pins": '{"batch": 1}', "settings": '{"parity.seeds": 4}'}


def _check(name: str, option: Option, value: Any, default: object) -> None:
    """Refuse a value from Python that the command line would not accept.

    Args:
        default: the default of the option, which is always accepted for numbers.

    Raises:
        UsageError: the value is not one of the choices, not in the range, or has the wrong type.
    """
    fix = ""
    if option.choices and value not in option.choices:
        fix = f"one of: {', '.join(option.choices)}"
    elif option.kind is dict and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        fix = f"pass values by name: {name}={_EXAMPLES[name]}"
    elif option.kind is list and isinstance(value, str | Mapping | Path):
        fix = f"pass a list: {name}=[...]"
    elif option.kind in (int, float) and value is not default:
        least, most = option.least, option.most
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or (least is not None and not least <= value) or (most is not None and not value <= most):
            fix = f"pass a number from {least:g} to {most:g}"
    if fix:
        raise UsageError(f"{_plain(value)!r} is not a value of {name}", where=name, fix=fix)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return getattr(value, "name", type(value).__name__)


_DEFAULTS = PrepareOptions()
