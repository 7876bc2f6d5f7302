"""Small folders as onnxruntime-genai's model builder writes them: two layers, FP16, random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, GROUPS, SIZE, WORDS, POSITIONS = 32, 4, 2, 8, 64, 128


def config() -> dict[str, Any]:
    """The config of ``decoder``."""
    return {
        "model": {
            "bos_token_id": 0,
            "context_length": POSITIONS,
            "decoder": {
                "session_options": {
                    "log_id": "onnxruntime-genai",
                    "provider_options": [{"dml": {"enable_graph_capture": "1"}}],
                },
                "filename": "model.onnx",
                "head_size": SIZE,
                "hidden_size": HIDDEN,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": HEADS,
                "num_hidden_layers": 2,
                "num_key_value_heads": GROUPS,
            },
            "eos_token_id": 0,
            "pad_token_id": 0,
            "type": "llama",
            "vocab_size": WORDS,
        },
        "search": {"max_length": POSITIONS, "num_beams": 1, "past_present_share_buffer": True, "top_k": 50},
    }


def decoder(
    *, layers: int = 2, opset: int = 21, words: int = WORDS, control_flow: bool = False, split: bool = False
) -> onnx.ModelProto:
    """GroupQueryAttention with rotary tables, MatMulNBits as last layer, and the mask as the builder reads it."""
    rng = np.random.default_rng(1)
    kept: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int) -> str:
        kept.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float16), name))
        return name

    def number(name: str, *values: int) -> str:
        kept.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs, outputs, f"/{outputs[0]}/{op}", domain=domain, **attributes))

    node("ReduceSum", ["attention_mask", number("one", 1)], ["count"], keepdims=1)
    node("Sub", ["count", "one"], ["before"])
    node("Cast", ["before"], ["seqlens"], to=TensorProto.INT32)
    node("Shape", ["attention_mask"], ["sizes"])
    kept.append(numpy_helper.from_array(np.array(1, np.int64), "second"))
    node("Gather", ["sizes", "second"], ["whole"], axis=0)
    node("Cast", ["whole"], ["total"], to=TensorProto.INT32)
    node("Gather", [weight("embed", words, HIDDEN), "input_ids"], ["hidden"])
    tables = [weight("cos_cache", POSITIONS, SIZE // 2), weight("sin_cache", POSITIONS, SIZE // 2)]
    at = "hidden"
    for layer in range(layers):
        parts = {"q": HEADS, "k": GROUPS, "v": GROUPS}
        if split:
            widths = [count * SIZE for count in parts.values()]
            node("MatMul", [at, weight(f"qkv.{layer}", HIDDEN, sum(widths))], [f"qkv_out.{layer}"])
            outputs = [f"{part}_out.{layer}" for part in parts]
            node("Split", [f"qkv_out.{layer}", number(f"widths.{layer}", *widths)], outputs, axis=2)
        else:
            for part, count in parts.items():
                node("MatMul", [at, weight(f"{part}.{layer}", HIDDEN, count * SIZE)], [f"{part}_out.{layer}"])
        for part, count in (("q", HEADS), ("k", GROUPS)):
            slots = [f"{part}_out.{layer}", "position_ids", *tables]
            node("RotaryEmbedding", slots, [f"{part}_turned.{layer}"], "com.microsoft", num_heads=count)
        past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        node(
            "GroupQueryAttention",
            [f"q_turned.{layer}", f"k_turned.{layer}", f"v_out.{layer}", *past, "seqlens", "total"],
            [f"attn.{layer}", f"present.{layer}.key", f"present.{layer}.value"],
            "com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
        )
        node("MatMul", [f"attn.{layer}", weight(f"o.{layer}", HEADS * SIZE, HIDDEN)], [f"o_out.{layer}"])
        node("Add", [at, f"o_out.{layer}"], [f"hidden.{layer}"])
        at = f"hidden.{layer}"
    if control_flow:
        branch = [
            helper.make_graph(
                [helper.make_node("Identity", [at], [f"{name}_out"])],
                name,
                [],
                [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT16, ["b", "s", HIDDEN])],
            )
            for name in ("then", "else")
        ]
        kept.append(numpy_helper.from_array(np.array([8], np.int64), "eight"))
        node("Less", ["count", "eight"], ["few"])
        node("Squeeze", ["few"], ["decides"])
        node("If", ["decides"], ["chosen"], then_branch=branch[0], else_branch=branch[1])
        at = "chosen"
    kept.append(numpy_helper.from_array(rng.integers(0, 255, (words, HIDDEN // 32, 16), np.uint8), "head"))
    weight("head_scales", words * HIDDEN // 32)
    node(
        "MatMulNBits",
        [at, "head", "head_scales"],
        ["logits"],
        "com.microsoft",
        K=HIDDEN,
        N=words,
        bits=4,
        block_size=32,
    )
    info = helper.make_tensor_value_info
    cache = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            info("input_ids", TensorProto.INT64, ["b", "s"]),
            info("attention_mask", TensorProto.INT64, ["b", "t"]),
            info("position_ids", TensorProto.INT64, ["b", "s"]),
            *(info(f"past_key_values.{one}", TensorProto.FLOAT16, ["b", GROUPS, "p", SIZE]) for one in cache),
        ],
        [
            info("logits", TensorProto.FLOAT16, ["b", "s", words]),
            *(info(f"present.{one}", TensorProto.FLOAT16, ["b", GROUPS, "t", SIZE]) for one in cache),
        ],
        kept,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_folder(path: Path, settings: dict[str, Any] | None = None, **model: Any) -> Path:
    """A whole folder: config, decoder with its data in a file of its own, tokenizer."""
    path.mkdir(parents=True, exist_ok=True)
    onnx.save_model(
        decoder(**model), path / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=64
    )
    (path / "genai_config.json").write_text(json.dumps(settings or config(), indent=1), encoding="utf-8")
    vocabulary = {f"w{number}": number for number in range(WORDS - 1)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": [{"id": WORDS - 1}]}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    return path
