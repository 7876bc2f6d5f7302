"""Folders of language models of which one file is hostile, and what a command must leave of them whatever it read."""

from __future__ import annotations

import codecs
import copy
import hashlib
import json
import random
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from tests.fuzz.models import mutated
from tests.fuzz.texts import mutated_json
from tests.fuzz.values import TEXTS, integer, spoiled, text
from tests.genai import folders as half
from tests.genai.decoders import folder as write_full

__all__ = ["good_folder", "hostile_folder", "left_of_folder"]

_CONFIG = "genai_config.json"

_PATTERNS = (
    "%d",
    "%d%d",
    "%d" * 24,
    "%d" * 4000,
    "past.%d.%d.key",
    "past_key_values.%d.value",
    "present.%d.key",
    "%999999999d",
    "past_key_values.%999999999d.key",
    "%05d",
    "%s",
    "%n%n",
    "%*d",
    "%%d",
    "%",
    "",
    "input_ids",
    "past_key_values.0.key",
    "(a+)+%d",
    "\ud800%d",
)
"""What somebody may take for the name of a layer's tensor."""

_FILES = (
    "../model.onnx",
    "../../../etc/passwd",
    "/dev/zero",
    "/etc/passwd",
    "C:\\model.onnx",
    "\\\\host\\share\\model.onnx",
    "sub\\..\\..\\model.onnx",
    "model.onnx/",
    "model.onnx/model.onnx",
    "./model.onnx",
    ".",
    "",
    "MODEL.ONNX",
    "model.onnx\0",
    "none.onnx",
    "mode1.onnx",
    "tokenizer.json",
    _CONFIG,
    "model.onnx.data",
    "a" * 300,
    "d/" * 3000 + "model.onnx",
    "NUL",
    "\x1b[31m.onnx",
    "a\nerror: forged",
    "\ud800.onnx",
    "~/model.onnx",
    "*.onnx",
)
"""What a config may name in place of its model."""

_PLACES = (
    "run.json",
    "model",
    "model.onnx.data",
    "tokenizer_config.json",
    "dml/model.onnx",
    "cpu/genai_config.json",
    "a b/\u00f6.onnx",
    ".hidden.onnx",
    "MODEL.onnx",
    "deep/" * 9 + "model.onnx",
)
"""Where a good model may lie, although other files have such names."""

_NUMBERS = (
    *("9" * 5000, "-" + "9" * 400, "1e999", "1e-999", "-0", "-1", "0", "2.0", "1.5", "2147483647", "2147483648"),
    *("NaN", "Infinity", "0x10", "01", "1.", "true", '"8"', "9" * 18, "9" * 19, "4294967296", "1" + "0" * 300),
)
"""Numbers as they may stand in the text, some of which JSON does not have."""

_LEADS = ("\ufeff", "\ufeff\ufeff", "\x0c", "\u00a0", "\u2028", "// a comment\n", "/* */", "\0", "\x1b[31m", "#!x\n")
_ENDS = ("}", "{}", " // end", "\0", "\n\n\n", "\x1b[31m", "]")

_MANY = (3, 300, 3000)
"""How many there may be of what comes once or twice."""


# Folders to begin with


@cache
def _folders() -> tuple[dict[str, bytes], ...]:
    """Good folders: FP16 for DirectML, the same with a data file, FP32 for the CPU, and one of several models."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        found.append(_read(half.write_folder(Path(work) / "data", _settings(1), layers=1)))
        found.append(_read(write_full(Path(work) / "full", _small())))
    inline = {name: held for name, held in found[0].items() if name != "model.onnx.data"}
    inline |= {"model.onnx": half.decoder().SerializeToString(), _CONFIG: _text(_settings(2))}
    found[1] |= {_CONFIG: _text(_settings(1, providers=[])), "tokenizer.json": found[0]["tokenizer.json"]}
    return inline, found[0], found[1], _several(inline)


def _settings(layers: int, providers: list[Any] | None = None) -> dict[str, Any]:
    config = half.config()
    config["model"]["decoder"]["num_hidden_layers"] = layers
    if providers is not None:
        config["model"]["decoder"]["session_options"]["provider_options"] = providers
    return config


def _read(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def _small() -> onnx.ModelProto:
    """The decoder in FP32, of one layer; its weights are cast, as a folder of findings should be small."""
    model = half.decoder(layers=1)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


def _several(files: dict[str, bytes]) -> dict[str, bytes]:
    """A decoder of stages, and a model for pictures beside it."""
    config = json.loads(files[_CONFIG])
    decoder = config["model"]["decoder"]
    stage = {key: list(decoder[key].values()) for key in ("inputs", "outputs")}
    first = {"filename": "embeds.onnx", "inputs": ["input_ids"], "outputs": ["copied"], "run_on_prompt": True}
    decoder["pipeline"] = [{"embeds": first}, {"lm": {"filename": decoder.pop("filename"), **stage}}]
    config["model"]["vision"] = {
        "filename": "vision.onnx",
        "config_filename": "processor_config.json",
        "inputs": {"pixel_values": "pixel_values"},
        "outputs": {"image_features": "image_features"},
        "session_options": {"provider_options": [{"cuda": {}}]},
    }
    return {
        **files,
        _CONFIG: _text(config),
        "embeds.onnx": _copies("input_ids", "copied", TensorProto.INT64),
        "vision.onnx": _copies("pixel_values", "image_features", TensorProto.FLOAT),
        "processor_config.json": b"{}",
    }


def _copies(name: str, result: str, kind: int) -> bytes:
    shape = ["b", 4]
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], [result], "copy")],
        "copies",
        [helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info(result, kind, shape)],
    )
    opsets = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _text(config: Any) -> bytes:
    return json.dumps(config, indent=1).encode()


# What becomes of them


def good_folder(name: str) -> dict[str, bytes]:
    """The files of a folder that may be held against a hostile one.

    Args:
        name: of the folder.
    """
    return {f"{name}/{file}": content for file, content in _folders()[2].items()}


def hostile_folder(
    rng: random.Random, models: list[bytes], configs: list[bytes], name: str = "f", *, full: bool = False
) -> dict[str, bytes]:
    """The files of a folder of which one is hostile, that one first.

    Args:
        models: others, of which parts are taken.
        configs: others, which are edited now and then.
        name: of the folder.
        full: the one in FP32 of one decoder, which the CPU runs.
    """
    files = dict(_folders()[2] if full else rng.choice(_folders()))
    what = rng.choices(("config", "written", "model", "tokenizer", "moved", "data"), (40, 20, 24, 7, 5, 2))[0]
    changed = _CONFIG
    if what == "config":
        files[_CONFIG] = _config(rng, files[_CONFIG], configs)
    elif what == "written":
        files[_CONFIG] = _written(rng, files[_CONFIG])
    elif what == "model":
        changed = rng.choice(sorted(file for file in files if file.endswith(".onnx")))
        files[changed] = _model(rng, files[changed], models)
    elif what == "tokenizer":
        changed = rng.choice(("tokenizer.json", "tokenizer.json", "tokenizer_config.json"))
        files[changed] = _tokenizer(rng, files.get(changed, b"{}"))
    elif what == "moved":
        place = rng.choice(_PLACES)
        if old := files.pop("model.onnx", None):
            files = {file: held for file, held in files.items() if file != place} | {place: old}
        files[_CONFIG] = files[_CONFIG].replace(b'"model.onnx"', json.dumps(place).encode())
    else:
        changed = rng.choice(sorted(files))
        files[changed] = rng.choice((b"", spoiled(rng, files[changed]), files[changed] * 2))
    return {f"{name}/{changed}": files[changed], **{f"{name}/{file}": held for file, held in files.items()}}


def _config(rng: random.Random, data: bytes, configs: list[bytes]) -> bytes:
    """The config with other values, of which some mean something and most do not."""
    if configs and rng.random() < 0.15:
        data = rng.choice(configs)
    try:
        root = json.loads(data)
        if rng.random() < 0.4:
            return mutated_json(rng, data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            rng.choice(_EDITS)(rng, root)
        return _text(root)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return spoiled(rng, data)  # a parent that was hostile itself


def _decoder(root: Any) -> Any:
    return root["model"]["decoder"]


def _stages(root: Any) -> list[Any]:
    """Every object that names a model."""
    decoder = _decoder(root)
    stages = [stage for entry in decoder.get("pipeline", ()) for stage in entry.values()]
    return [*stages, *(one for one in root["model"].values() if isinstance(one, dict))]


def _other_pattern(rng: random.Random, root: Any) -> None:
    names = rng.choice((_decoder(root)["inputs"], _decoder(root)["outputs"]))
    key = rng.choice(sorted(names)) if rng.random() < 0.8 else "past_conv_names"
    names[key] = rng.choice(_PATTERNS) if rng.random() < 0.8 else text(rng)


def _other_file(rng: random.Random, root: Any) -> None:
    key = rng.choice(("filename", "filename", "config_filename", "adapter_filename"))
    name = rng.choice(_FILES) if rng.random() < 0.8 else text(rng)
    if rng.random() < 0.15:
        root["model"]["tokenizer_dir"] = name
    else:
        rng.choice(_stages(root))[key] = name


def _other_number(rng: random.Random, root: Any) -> None:
    keys = [(table, key) for table in (root["model"], _decoder(root), root["search"]) for key in table]
    table, key = rng.choice([(table, key) for table, key in keys if isinstance(table[key], int)])
    table[key] = rng.choice((0, 1, 2, 3, 1 << 20, (1 << 31) - 1, 1.0, [1, 1 << 30], integer(rng, 80)))


def _other_provider(rng: random.Random, root: Any) -> None:
    name = rng.choice(("dml", "DML", "DmlExecutionProvider", "cuda", "", "device_filtering_options", text(rng)))
    options = {
        "enable_graph_capture": rng.choice(("0", "1", "2", "true", 1)),
        "luid": "1:-1",
        "device_index": rng.choice(("0", "9" * 99, "-1")),
        text(rng): rng.choice(("\ud800", "1", text(rng))),
        "device_filtering_options": {"hardware_vendor_id": rng.choice((4318, 4319, 1e308, -0.5, integer(rng, 80)))},
    }
    given = {key: options[key] for key in rng.sample(sorted(options), rng.choice((0, 1, 2)))}
    session = rng.choice(_stages(root)).setdefault("session_options", {})
    listed = session.setdefault("provider_options", [])
    listed.insert(rng.choice((0, len(listed))), {name: given})
    if rng.random() < 0.3:
        session[rng.choice(("enable_mem_pattern", "execution_mode", "log_id"))] = rng.choice((True, "1", text(rng)))


def _other_search(rng: random.Random, root: Any) -> None:
    key = rng.choice(("num_beams", "chunk_size", "batch_size", "max_length", "past_present_share_buffer", "top_k"))
    root["search"][key] = rng.choice((True, False, 0, 1, 4, 16, (1 << 31) - 1, 1e300, None))


def _many(rng: random.Random, root: Any) -> None:
    """Thousands of what comes once or twice: what is looked up for each must not be looked up in all."""
    count, decoder = rng.choice(_MANY), _decoder(root)
    kind = rng.randrange(6)
    if kind == 0:
        stage = {"filename": rng.choice(("model.onnx", "none.onnx")), "inputs": ["input_ids"], "outputs": ["x"]}
        settings = {"session_options": {"provider_options": [{"cuda": {}}]}}
        decoder["pipeline"] = [{f"s{number}": {**stage, **settings}} for number in range(count)]
    elif kind == 1:
        session = decoder.setdefault("session_options", {})
        session["provider_options"] = [{"dml": {f"k{number}": "1"}} for number in range(count)]
    elif kind == 2:
        names = rng.choice((decoder["inputs"], decoder["outputs"]))
        names.update({f"{rng.choice(('x', 'present_key_'))}{number}_names": f"x{number}.%d" for number in range(count)})
    elif kind == 3:
        root["model"]["eos_token_id"] = list(range(count))
    elif kind == 4:
        root["model"]["draft"] = {"inputs": {f"k{n}": "past_key_values.%d.key" for n in range(count)}}
    else:
        root.update({f"k{number}": {} for number in range(count)})


_EDITS: tuple[Callable[[random.Random, Any], None], ...] = (
    *(_other_pattern, _other_pattern, _other_file, _other_file, _other_number),
    *(_other_provider, _other_provider, _other_search, _many),
)


def _written(rng: random.Random, data: bytes) -> bytes:
    """The same config as another text: what readers of JSON take, each in its own way."""
    said = data.decode()
    for _ in range(rng.choice((1, 1, 2))):
        said = rng.choice(_HANDS)(rng, said)
    kind = rng.randrange(12)
    if kind == 0:
        return codecs.BOM_UTF16_LE + said.encode("utf-16-le", "replace")
    if kind == 1:
        return said.encode("latin-1", "replace").replace(b"model", b"mod\xe9l", 1)
    if kind == 2:
        return spoiled(rng, said.encode("utf-8", "replace"))
    return said.encode("utf-8", "replace")


def _number_in_text(rng: random.Random, said: str) -> str:
    found = list(re.finditer(r": (-?\d+)", said))
    number = rng.choice(_NUMBERS)
    if not found or rng.random() < 0.2:  # a key that nobody knows is skipped, and its number is read
        return said.replace("{", f'{{"x": {number}, ', 1)
    at = rng.choice(found)
    return f"{said[: at.start(1)]}{number}{said[at.end(1) :]}"


def _twice(rng: random.Random, said: str) -> str:
    """A key that stands twice, the second time with another value perhaps."""
    found = re.findall(r'"(\w+)": ', said)
    key = rng.choice(found or ["model"])
    value = rng.choice(("{}", "1", '"x"', "null", "[]", '"%d"', "true"))
    return rng.choice(
        (said.replace(f'"{key}": ', f'"{key}": {value}, "{key}": ', 1), said[:-1] + f', "{key}": {value}}}')
    )


def _deep(rng: random.Random, said: str) -> str:
    count = rng.choice((31, 32, 33, 900, 5000, 100_000))
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    inner = opening * count + "1" + closing * count
    return rng.choice((said.replace("{", f'{{"x": {inner}, ', 1), opening * count, inner))


def _quotes(rng: random.Random, said: str) -> str:
    """Strings that do not end, or have every kind of escape."""
    return rng.choice(
        (
            '"' + '\\"' * rng.choice((100, 100_000)),
            '"' + "\\" * 100_001,
            '{"a": "\\u0000\\ud800\\udc00\\ud800"}',
            said.replace('"model.onnx"', '"\\u006dodel.onnx"'),
            said.replace('"input_ids"', '"input_\\u001b[31mids"'),
            said.replace('"log_id"', '"log_id\\ud800"').replace('"dml"', '"\\u0064ml"'),
            said.replace('"', "'"),
            said.replace('"cuda"', '"\\ud800"').replace('"llama"', '"ll\nama"'),
        )
    )


_HANDS: tuple[Callable[[random.Random, str], str], ...] = (
    _number_in_text,
    _number_in_text,
    _twice,
    _deep,
    _quotes,
    lambda rng, said: rng.choice(_LEADS) + said,
    lambda rng, said: said + rng.choice(_ENDS),
    lambda _, said: said.replace("\n", "\r\n"),
    lambda _, said: re.sub(r"\s*\n\s*", "", said),
    lambda _, said: said.replace("\n}", ",\n}"),
    lambda _, said: said.replace('"past_present_share_buffer": true', '"past_present_share_buffer": True'),
    lambda rng, said: said.replace("\n", f"\n{rng.choice(('//', '#', '/**/'))}", rng.choice((1, 3))),
    lambda rng, said: said.replace('"llama"', json.dumps(rng.choice(TEXTS)), 1),
)


def _model(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Another model, or one whose inputs and outputs are others."""
    if rng.random() < 0.1:
        return rng.choice(models)
    if rng.random() < 0.6:
        return mutated(rng, data, rng.choice(models) if rng.random() < 0.5 else data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        for _ in range(rng.choice((1, 1, 2))):
            _interface(rng, model)
        return model.SerializeToString()
    except (DecodeError, ValueError, TypeError, IndexError):
        return spoiled(rng, data)


def _interface(rng: random.Random, model: onnx.ModelProto) -> None:
    values = rng.choice((model.graph.input, model.graph.output))
    value = rng.choice(values)
    kind = rng.randrange(6)
    if kind == 0:
        value.name = rng.choice(("past_key_values.999999.key", "1" * 40 + "x", "past_key_values.-1.key", text(rng)))
    elif kind == 1:
        value.type.tensor_type.elem_type = rng.choice((0, 1, 7, 8, 10, 16, 17, 22, 99))
    elif kind == 2:
        dims = value.type.tensor_type.shape.dim
        size = rng.choice(dims)
        size.dim_value = rng.choice((0, -1, 1, 3, 1 << 31, (1 << 63) - 1))
    elif kind == 3:
        value.type.tensor_type.ClearField("shape")
    elif kind == 4:
        count = rng.choice(_MANY)
        for number in range(count):
            copied = copy.deepcopy(value)
            copied.name = rng.choice((f"past_key_values.{number}.key", f"{number}{'é' * 20}", f"present.{number}.x"))
            values.append(copied)
    else:
        values.remove(value)


def _tokenizer(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return _written(rng, data)
    root = json.loads(data)
    kind = rng.randrange(5)
    if kind == 0:
        root.setdefault("model", {})["vocab"] = rng.choice(([], {}, [["a", -1.0]] * 5000, {"a": 1 << 40}, "x", None))
    elif kind == 1:
        root.setdefault("model", {})["vocab"] = {text(rng): integer(rng, 80) for _ in range(5)}
    elif kind == 2:
        root["added_tokens"] = [{"id": integer(rng, 80)}, {"id": "1"}, {}, 1, None, {"id": 1e999}][: rng.randrange(7)]
    else:
        return mutated_json(rng, data) if root else spoiled(rng, data)
    return _text(root)


# What a command leaves


def left_of_folder(out: Path, code: int, given: dict[str, bytes]) -> str:
    """What is wrong with the folder that ``genai prepare`` left; empty where nothing is.

    Args:
        given: files of the folder that was given, by their places in it.
    """
    if code:
        return f"exit code {code} with files of a result" if any(path.is_file() for path in out.rglob("*")) else ""
    try:
        record = json.loads((out / "run.json").read_bytes())
        written = record["facts"]["genai"]["written"]
        for name, digest in written.items():
            if hashlib.sha256((out / name).read_bytes()).hexdigest() != digest:
                return "a file that is not what the record says"
        fallback = record["facts"]["genai"]["fallback"]
        places = [out / "dml", out / fallback] if fallback else [out]
        for place in places:
            # genai reads nothing behind the end, and neither does this; nor does it mind how many digits a number has
            json.JSONDecoder(parse_int=str).raw_decode((place / _CONFIG).read_text(encoding="utf-8").lstrip())
        for name in record["facts"]["genai"]["copied"]:
            if (places[0] / name).read_bytes() != given[name]:
                return "a copied file that is another"
        for name in record["facts"]["genai"]["models"]:
            if not (places[0] / name).is_file():
                return "a model that is not there"
        if fallback:
            kept = {name: held for name, held in given.items() if name not in (_CONFIG, "run.json")}
            changed = [name for name, held in kept.items() if _bytes(places[1] / name) not in (held, None)]
            return "a file of the fallback that is another" if changed else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"exit code 0, and a result that does not read: {type(error).__name__}"
    return ""


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
