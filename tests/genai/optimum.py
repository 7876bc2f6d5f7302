"""A small folder as Optimum and transformers.js lay one out: decoders, and two of them merged by an If."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS, WIDTH, HEADS, SIZE = 48, 32, 2, 16
_CACHE = [f"0.{kind}.{part}" for kind in ("decoder", "encoder") for part in ("key", "value")]


def _weights(kind: type[np.floating[Any]]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(3)
    names = ["q", "k", "v", "o", "cross_q", "cross_k", "cross_v", "cross_o"]
    arrays = {name: rng.standard_normal((WIDTH, WIDTH)) * 0.3 for name in names}
    arrays |= {"embed": rng.standard_normal((WORDS, WIDTH)), "head": rng.standard_normal((WIDTH, WORDS)) * 0.5}
    arrays |= {"scale": np.array(SIZE**-0.5), "lowest": np.array(np.finfo(kind).min)}
    arrays["nothing"] = np.zeros((0, HEADS, 1, SIZE))
    numbers = {"heads": [0, 0, HEADS, SIZE], "width": [0, 0, WIDTH], "none": [0], "one": [1], "middle": [1, 2]}
    return [
        *(numpy_helper.from_array(array.astype(kind), name) for name, array in arrays.items()),
        *(numpy_helper.from_array(np.array(sizes, np.int64), name) for name, sizes in numbers.items()),
    ]


def _nodes(past: bool) -> list[onnx.NodeProto]:
    """A decoder of one layer, without a cache or with one, for as many tokens as come."""
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], f"{'with' if past else 'no'}_past/{output}", **attributes))
        return output

    def heads(states: str, weight: str, output: str) -> str:
        flat = node("MatMul", [states, weight], f"{weight}_flat")
        apart = node("Reshape", [flat, "heads"], f"{weight}_apart")
        return node("Transpose", [apart], output, perm=[0, 2, 1, 3])

    def attend(states: str, kind: str, parts: list[str], *, causal: bool) -> str:
        query, key, value = parts
        turned = node("Transpose", [key], f"{kind}turned", perm=[0, 1, 3, 2])
        scores = node("Mul", [node("MatMul", [query, turned], f"{kind}products"), "scale"], f"{kind}scores")
        scores = node("Where", ["hidden_ones", "lowest", scores], f"{kind}masked") if causal else scores
        mixed = node("MatMul", [node("Softmax", [scores], f"{kind}shares", axis=-1), value], f"{kind}mixed")
        wide = node("Reshape", [node("Transpose", [mixed], f"{kind}back", perm=[0, 2, 1, 3]), "width"], f"{kind}wide")
        return node("Add", [states, node("MatMul", [wide, f"{kind}o"], f"{kind}added")], f"{kind}states")

    states = node("Gather", ["embed", "input_ids"], "embedded")
    own, encoders = [f"present.{name}" for name in _CACHE[:2]], [f"present.{name}" for name in _CACHE[2:]]
    before = "none"
    for present, weight in zip(own, ("k", "v"), strict=True):
        new = heads(states, weight, f"{weight}_new" if past else present)
        if past:
            node("Concat", [present.replace("present", "past_key_values"), new], present, axis=2)
    if past:
        before = node("Shape", ["past_key_values.0.decoder.key"], "before", start=2, end=3)
    ends = [
        node("Squeeze", [before], "start"),
        node("Squeeze", [node("Shape", own[:1], "all", start=2, end=3)], "stop"),
    ]
    zero, step = node("Constant", [], "zero", value_int=0), node("Constant", [], "step", value_int=1)
    columns = node("Range", [zero, ends[1], step], "columns")
    lines = node("Unsqueeze", [node("Range", [*ends, step], "lines"), "one"], "places")
    later = node("Greater", [columns, lines], "later")
    padding = node("Unsqueeze", [node("Equal", ["attention_mask", "none"], "padding"), "middle"], "padding_rows")
    node("Or", [later, padding], "hidden_ones")
    states = attend(states, "", [heads(states, "q", "query"), *own], causal=True)
    for present, weight in zip(encoders, ("cross_k", "cross_v"), strict=True):
        if past:  # Optimum gives the encoder's keys and values no rows here: the caller keeps those that it has
            node("Identity", ["nothing"], present)
        else:
            heads("encoder_hidden_states", weight, present)
    read = [name.replace("present", "past_key_values") for name in encoders] if past else encoders
    node(
        "MatMul",
        [attend(states, "cross_", [heads(states, "cross_q", "cross_query"), *read], causal=False), "head"],
        "logits",
    )
    return nodes


def _values(side: str, elem: int = TensorProto.FLOAT) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs of a decoder with a cache."""
    lengths = {"decoder": "past_decoder_sequence_length", "encoder": "encoder_sequence_length_out"}
    if side == "present":
        lengths["decoder"] += " + decoder_sequence_length"
    tokens = ["batch_size", "decoder_sequence_length"]
    shapes: dict[str, list[Any]] = {"encoder_hidden_states": ["batch_size", "encoder_sequence_length", WIDTH]}
    if side == "present":
        shapes = {"logits": [*tokens, WORDS]}
    shapes |= {f"{side}.{name}": ["batch_size", HEADS, lengths[name.split(".")[1]], SIZE] for name in _CACHE}
    values = [helper.make_tensor_value_info(name, elem, shape) for name, shape in shapes.items()]
    sizes = {"input_ids": tokens, "attention_mask": ["batch_size", "attention_mask_sequence_length"]}
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in sizes.items()]
    return values if side == "present" else [*ids, *values]


def _model(
    nodes: list[onnx.NodeProto], *more: onnx.ValueInfoProto, kind: type[np.floating[Any]] = np.float32
) -> onnx.ModelProto:
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    values = [*_values("past_key_values", elem), *more], _values("present", elem)
    graph = helper.make_graph(nodes, "decoder", *values, _weights(kind))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="optimum")


def merged() -> onnx.ModelProto:
    """Both decoders in one file: ``use_cache_branch`` says which one runs."""
    outputs = _values("present")
    then, other = (helper.make_graph(_nodes(past), f"past_{past}", [], outputs) for past in (True, False))
    names = [one.name for one in outputs]
    choice = helper.make_node("If", ["use_cache_branch"], names, "optimum::if", then_branch=then, else_branch=other)
    return _model([choice], helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))


def write_folder(path: Path) -> Path:
    """A folder with its configurations, a tokenizer, and the models in its folder ``onnx``."""
    (path / "onnx").mkdir(parents=True)
    for name in ("config", "generation_config", "tokenizer"):
        (path / f"{name}.json").write_text(json.dumps({"model_type": "whisper"}), encoding="utf-8")
    models = {"decoder_model_merged": merged(), "decoder_with_past_model": _model(_nodes(True))}
    models["decoder_with_past_model_fp16"] = _model(_nodes(True), kind=np.float16)
    for name, model in models.items():
        onnx.save(model, path / "onnx" / f"{name}.onnx")
    return path
