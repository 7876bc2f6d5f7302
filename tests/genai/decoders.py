"""Small decoders as onnxruntime-genai's builder writes them, in a folder of genai's: made without torch or genai."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CONTEXT", "GROUPS", "HEADS", "SIZE", "VOCABULARY", "WIDTH", "decoder", "folder"]

VOCABULARY, WIDTH, HEADS, GROUPS, SIZE, CONTEXT = 48, 128, 4, 2, 32, 32


def decoder(
    *,
    layers: int = 2,
    packed: bool = True,
    rotary: bool = True,
    rotated: int = SIZE,
    short: int = 0,
    norms: bool = False,
    opset: int = 22,
    kind: type[np.floating[Any]] = np.float32,
    **attributes: Any,
) -> onnx.ModelProto:
    """A decoder with GroupQueryAttention and a cache, every size free.

    Args:
        packed: queries, keys and values in one input of the attention.
        rotary: the attention rotates; otherwise nothing does.
        rotated: elements of each head that are rotated.
        short: positions up to which an If chooses tables of their own, as of a Phi with long context; 0 for one table.
        norms: the attention norms queries and keys, as of a Qwen 3.
        attributes: more of each GroupQueryAttention.
    """
    rng = np.random.default_rng(5)
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    weights: dict[str, np.ndarray[Any, Any]] = {
        "embed": rng.standard_normal((VOCABULARY, WIDTH)),
        "head": rng.standard_normal((WIDTH, VOCABULARY)) * 0.3,
        "norm": np.ones(WIDTH),
    }
    if rotary:
        angles = np.outer(np.arange(CONTEXT), 100.0 ** -(np.arange(rotated // 2) / (rotated // 2)))
        if not short:
            weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    if norms:
        weights |= {"q_norm": np.linspace(0.5, 2, SIZE), "k_norm": np.linspace(2, 0.5, SIZE)}
    nodes = [
        _node("ReduceSum", ["attention_mask", "axis"], "summed", keepdims=0),
        _node("Sub", ["summed", "axis"], "less"),
        _node("Cast", ["less"], "lengths", to=TensorProto.INT32),
        _node("Shape", ["attention_mask"], "mask_shape"),
        _node("Gather", ["mask_shape", "one"], "whole", axis=0),
        _node("Cast", ["whole"], "total", to=TensorProto.INT32),
        _node("Gather", ["embed", "input_ids"], "hidden_0"),
    ]
    if short:
        constants_of_if = [_branch("long", angles.astype(kind)), _branch("short", 2 * angles[:short].astype(kind))]
        nodes += [
            _node("Greater", ["whole", "most"], "is_long"),
            helper.make_node("If", ["is_long"], ["cos", "sin"], "/model/rotemb_caches_subgraph/If",
                             then_branch=constants_of_if[0], else_branch=constants_of_if[1]),
        ]  # fmt: skip
    inputs = [
        _value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        _value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
    ]
    outputs = [_value("logits", elem, ["batch_size", "sequence_length", VOCABULARY])]
    for layer in range(layers):
        name = f"/model/layers.{layer}"
        hidden = f"hidden_{layer}"
        normed = f"{name}/normed"
        nodes.append(
            _node("SimplifiedLayerNormalization", [hidden, "norm"], normed, axis=-1, epsilon=1e-5, stash_type=1)
        )
        parts = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
        if packed:
            parts = {"qkv": sum(parts.values())}
        for part, width in parts.items():
            weights[f"{part}_{layer}"] = rng.standard_normal((WIDTH, width)) * 0.2
            nodes.append(_node("MatMul", [normed, f"{part}_{layer}"], f"{name}/{part}"))
        given = [f"{name}/{part}" for part in parts] + ([""] * 2 if packed else [])
        caches = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        slots = [*given, *caches, "lengths", "total", *(["cos", "sin"] if rotary else [])]
        slots += [*[""] * (14 - len(slots)), "q_norm", "k_norm"] if norms else []
        own = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": int(rotary), **attributes}
        attention = helper.make_node(
            "GroupQueryAttention", slots, [f"{name}/mixed", *present], f"{name}/attn", domain="com.microsoft", **own
        )
        weights[f"o_{layer}"] = rng.standard_normal((WIDTH, WIDTH)) * 0.2
        nodes += [
            attention,
            _node("MatMul", [f"{name}/mixed", f"o_{layer}"], f"{name}/out"),
            _node("Add", [hidden, f"{name}/out"], f"hidden_{layer + 1}"),
        ]
        sizes = ["batch_size", GROUPS, "past_sequence_length", SIZE]
        inputs += [_value(cache, elem, sizes) for cache in caches]
        outputs += [_value(cache, elem, [*sizes[:2], "total_sequence_length", SIZE]) for cache in present]
    nodes.append(_node("MatMul", [f"hidden_{layers}", "head"], "logits"))
    constants = [numpy_helper.from_array(array.astype(kind), name) for name, array in weights.items()]
    constants += [
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
        numpy_helper.from_array(np.array(1, np.int64), "one"),
        *([numpy_helper.from_array(np.array(short, np.int64), "most")] if short else []),
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _branch(name: str, angles: np.ndarray[Any, Any]) -> onnx.GraphProto:
    """A branch whose two outputs are tables of constants; their sizes have names, as the builder writes them."""
    tables = {f"{name}_cos": np.cos(angles), f"{name}_sin": np.sin(angles)}
    nodes = [_node("Constant", [], key, value=numpy_helper.from_array(table)) for key, table in tables.items()]
    elem = helper.np_dtype_to_tensor_dtype(angles.dtype)
    outputs = [_value(key, elem, ["max_sequence_length", "head_dim / 2"]) for key in tables]
    return helper.make_graph(nodes, name, [], outputs)


def _node(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], output, **attributes)


def _value(name: str, elem: int, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def folder(path: Path, model: onnx.ModelProto | None = None, *, data: bool = True, **search: Any) -> Path:
    """A folder of genai's for the CPU with a decoder, a tokenizer, a template and a licence.

    Args:
        data: the weights in a data file.
        search: more of the table ``search``.
    """
    path.mkdir(parents=True)
    model = decoder() if model is None else model
    onnx.save(
        model, path / "model.onnx", save_as_external_data=data, location="model.onnx.data" if data else None,
        size_threshold=64,
    )  # fmt: skip
    layers = sum(node.op_type == "GroupQueryAttention" for node in model.graph.node)
    config = {
        "model": {
            "bos_token_id": 0,
            "context_length": CONTEXT,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": SIZE,
                "hidden_size": WIDTH,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": HEADS,
                "num_hidden_layers": layers,
                "num_key_value_heads": GROUPS,
            },
            "eos_token_id": 1,
            "pad_token_id": 1,
            "type": "llama",
            "vocab_size": VOCABULARY,
        },
        "search": {"max_length": CONTEXT, "past_present_share_buffer": True, **search},
    }
    (path / "genai_config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    (path / "tokenizer.json").write_text('{"version": "1.0",\r\n "model": {}}', encoding="utf-8", newline="")
    (path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    (path / "LICENSE").write_bytes(b"a licence \xff")
    (path / "original").mkdir()
    (path / "original" / "params.json").write_text("{}", encoding="utf-8")
    return path
