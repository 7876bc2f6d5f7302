"""Recipes with a frame, for inputs and outputs that a model really has; files of Hugging Face beside them."""

from __future__ import annotations

import json
import random
from typing import Any, get_args, get_type_hints

import msgspec
import onnx
from google.protobuf.message import DecodeError

from dmlprep.passes.framing import DetectOptions, PictureOptions, ResultOptions
from tests.fuzz.texts import mutated_json
from tests.fuzz.values import DOUBLES, integer, text

__all__ = ["framed_recipe", "preprocessor", "takes_pictures"]

_SIDES = (1, 2, 3, 7, 32, 32, 64, 97, 480, 4096, 16384)

_PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "do_center_crop": False,
    "crop_size": 32,
}
"""One of transformers' files."""


def framed_recipe(rng: random.Random, model: bytes) -> bytes:
    """A recipe for this model, whose last step is a frame."""
    inputs, outputs, sizes = _read(model)
    frame: dict[str, Any] = {}
    if rng.random() < 0.9:
        chosen = rng.sample(inputs, min(len(inputs), rng.choice((1, 1, 2))))
        frame["inputs"] = {name: _table(rng, PictureOptions) for name in chosen}
        if chosen and rng.random() < 0.15:
            frame["inputs"][chosen[0]]["config"] = rng.choice(("p.json", "p.json", "p.json", text(rng)[:99]))
    if rng.random() < 0.5:
        chosen = rng.sample(outputs, min(len(outputs), rng.choice((1, 1, 2))))
        frame["outputs"] = {name: _table(rng, ResultOptions) for name in chosen}
    if outputs and rng.random() < 0.3:
        detect = _table(rng, DetectOptions)
        keys = ("raw",) if rng.random() < 0.5 else ("boxes", "scores")
        detect.update({key: rng.choice(outputs) for key in keys})
        frame["detect"] = detect
    pins = {name: rng.choice((1, 1, 3, 32)) for name in sizes}
    lines = ['doc = "A frame."', "[step.pin]", f"sizes = {_value(pins)}"]
    lines += ["[step.simplify]"] if rng.random() < 0.3 else []
    return "\n".join([*lines, *_written("step.frame", frame)]).encode("utf-8", "replace")


def preprocessor(rng: random.Random) -> bytes:
    """A ``preprocessor_config.json`` with other values."""
    data = json.dumps(_PROCESSOR).encode()
    return mutated_json(rng, data) if rng.random() < 0.8 else data


def takes_pictures(model: bytes) -> bool:
    """Whether an input has four sizes."""
    graph = _graph(model)
    return any(len(i.type.tensor_type.shape.dim) == 4 for i in graph.input)


def _graph(model: bytes) -> onnx.GraphProto:
    try:
        return onnx.ModelProto.FromString(model).graph
    except DecodeError:
        return onnx.GraphProto()


def _read(model: bytes) -> tuple[list[str], list[str], list[str]]:
    """Names of inputs, of outputs and of free sizes."""
    graph = _graph(model)
    fed = {tensor.name for tensor in graph.initializer}
    inputs = [i for i in graph.input if i.name not in fed]
    free = {dim.dim_param for i in inputs for dim in i.type.tensor_type.shape.dim if dim.dim_param}
    return [_text(i.name) for i in inputs], [_text(o.name) for o in graph.output], sorted(map(_text, free))


def _text(name: str | bytes) -> str:
    """Protobuf gives the bytes of a name that is no UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _table(rng: random.Random, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Some fields of a table: mostly values that it takes."""
    names = [field.name for field in msgspec.structs.fields(kind)]
    hints = get_type_hints(kind)
    chosen = rng.sample(names, rng.randrange(min(6, len(names))))
    made = {name: _wrong(rng) if rng.random() < 0.05 else _right(rng, name, hints[name]) for name in chosen}
    if rng.random() < 0.02:
        made[text(rng)[:50]] = _wrong(rng)
    return made


def _right(rng: random.Random, name: str, hint: Any) -> Any:
    words = [word for word in get_args(hint) if isinstance(word, str)]
    if words:
        return rng.choice(words)
    if hint is bool:
        return rng.random() < 0.5
    if hint is str:
        return text(rng)[:50]
    if name in ("size", "resized", "model_size"):
        return [rng.choice(_SIDES), rng.choice(_SIDES)] if rng.random() < 0.8 else rng.choice(_SIDES)
    if name in ("scale", "white"):
        return rng.choice((0.5, 1.0, 255.0, 1e-9, 1e9))
    if name in ("mean", "deviation"):
        number = rng.choice((0.5, 1.0, 114.0, 1e-9, 1e9))
        return number if rng.random() < 0.5 else [number] * rng.choice((1, 3, 3, 3, 4))
    if name in ("score", "overlap", "fill"):
        return rng.choice((0.0, 0.25, 1.0))
    return rng.choice({"axis": (-1, 1, 1, 2, -8, 7), "rounds": (2, 16, 64)}.get(name, (1, 2, 3, 8, 100, 2048)))


def _wrong(rng: random.Random) -> Any:
    return rng.choice((integer(rng, 80), rng.choice(DOUBLES), text(rng)[:99], [], [integer(rng)] * 3, True))


def _written(path: str, table: dict[str, Any]) -> list[str]:
    """TOML: values first, then tables."""
    lines = [f"[{path}]"]
    lines += [f"{json.dumps(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _written(f"{path}.{json.dumps(key)}", value)
    return lines


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_value(held)}' for key, held in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value) if isinstance(value, int) else json.dumps(value)
