"""Small decoders and their folders: one function, written with GroupQueryAttention and with plain nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

LAYERS, HEADS, GROUPS, SIZE, VOCABULARY, LONGEST = 2, 4, 2, 16, 96, 64
HIDDEN = HEADS * SIZE


@dataclass(frozen=True)
class Weights:
    """Weights by name, float32."""

    values: dict[str, Array]

    @classmethod
    def made(cls, seed: int = 0, sharp: float = 6.0) -> Weights:
        """Random ones; ``sharp`` scales the logits, so that some tokens are clearly likelier than others."""
        rng = np.random.default_rng(seed)

        def some(*shape: int, scale: float = 1.0) -> Array:
            return (rng.standard_normal(shape) * scale / np.sqrt(shape[0])).astype(np.float32)

        values = {"embed": rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)}
        for layer in range(LAYERS):
            values |= {
                f"q{layer}": some(HIDDEN, HIDDEN, scale=2.0),
                f"k{layer}": some(HIDDEN, GROUPS * SIZE, scale=2.0),
                f"v{layer}": some(HIDDEN, GROUPS * SIZE),
                f"o{layer}": some(HIDDEN, HIDDEN),
                f"up{layer}": some(HIDDEN, HIDDEN),
                f"down{layer}": some(HIDDEN, HIDDEN),
            }
        values["head"] = some(HIDDEN, VOCABULARY, scale=sharp)
        return cls(values)

    def changed(self, name: str, seed: int = 9) -> Weights:
        """The same with other numbers in one of them."""
        old = self.values[name]
        new = np.random.default_rng(seed).standard_normal(old.shape).astype(np.float32) * old.std()
        return Weights({**self.values, name: new})


class _Graph:
    def __init__(self, weights: Weights, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants = [
            numpy_helper.from_array(value.astype(self.dtype), name) for name, value in weights.values.items()
        ]
        for layer in range(LAYERS):
            for what in ("key", "value"):
                past = ["batch_size", GROUPS, "past_sequence_length", SIZE]
                now = ["batch_size", GROUPS, "total_sequence_length", SIZE]
                self.inputs.append(helper.make_tensor_value_info(f"past_key_values.{layer}.{what}", self.kind, past))
                self.outputs.append(helper.make_tensor_value_info(f"present.{layer}.{what}", self.kind, now))
        for name, length in (("input_ids", "sequence_length"), ("attention_mask", "total_sequence_length")):
            self.inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch_size", length]))

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, named: tuple[str, ...] = (), **attributes: Any) -> Any:
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        names[len(names) - len(named) :] = named
        domain = "com.microsoft" if kind in ("GroupQueryAttention",) else ""
        self.nodes.append(helper.make_node(kind, inputs, names, f"n{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def layer(self, index: int, x: str, attend: Any, look: Any = None) -> str:
        q, k, v = (self.op("MatMul", x, f"{name}{index}") for name in "qkv")
        attended = self.op("MatMul", attend(index, q, k, v), f"o{index}")
        x = self.op("Add", x, attended)
        if look is not None:
            seen = look(index, self.op("MatMul", x, f"cross_q{index}"))
            x = self.op("Add", x, self.op("MatMul", seen, f"cross_o{index}"))
        up = self.op("MatMul", x, f"up{index}")
        gated = self.op("Mul", up, self.op("Sigmoid", up))
        return str(self.op("Tanh", self.op("Add", x, self.op("MatMul", gated, f"down{index}"))))

    def embeddings(self) -> str:
        """Take embeddings in place of tokens."""
        self.inputs = [value for value in self.inputs if value.name != "input_ids"]
        shape = ["batch_size", "sequence_length", HIDDEN]
        self.inputs.append(helper.make_tensor_value_info("inputs_embeds", onnx.TensorProto.FLOAT, shape))
        return str(self.op("Cast", "inputs_embeds", to=self.kind))

    def model(self, attend: Any, opset: int = 17, *, embeds: bool = False, look: Any = None) -> onnx.ModelProto:
        x = self.embeddings() if embeds else self.op("Gather", "embed", "input_ids")
        for index in range(LAYERS):
            x = self.layer(index, x, attend, look)
        self.op("MatMul", x, "head", named=("logits",))
        shape = ["batch_size", "sequence_length", VOCABULARY]
        self.outputs.append(helper.make_tensor_value_info("logits", self.kind, shape))
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def grouped(weights: Weights, dtype: str = "float32") -> onnx.ModelProto:
    """With GroupQueryAttention, whose cache may be one memory."""
    graph = _Graph(weights, dtype)
    one, minus = graph.constant([1], np.int64), graph.constant([1], np.int64)
    summed = graph.op("ReduceSum", "attention_mask", one, keepdims=0)
    lengths = graph.op("Cast", graph.op("Sub", summed, minus), to=onnx.TensorProto.INT32)
    sizes = graph.op("Shape", "attention_mask")
    total = graph.op("Cast", graph.op("Gather", sizes, graph.constant(1, np.int64)), to=onnx.TensorProto.INT32)

    def attend(index: int, q: str, k: str, v: str) -> str:
        past = [f"past_key_values.{index}.{what}" for what in ("key", "value")]
        present = (f"present.{index}.key", f"present.{index}.value")
        found: list[str] = graph.op(
            "GroupQueryAttention", q, k, v, *past, lengths, total,
            outputs=3, named=present, num_heads=HEADS, kv_num_heads=GROUPS,
        )  # fmt: skip
        return found[0]

    return graph.model(attend)


def plain(
    weights: Weights, dtype: str = "float32", *, embeds: bool = False, frames: int = 0, kinds: int = 0
) -> onnx.ModelProto:
    """With Concat, MatMul and Softmax: the cache grows.

    Args:
        embeds: it takes embeddings, not tokens.
        frames: states of an encoder, whose keys and values it takes for each layer; 0 for none.
        kinds: of positions, of which it takes the last; 0 for positions without kinds.
    """
    graph = _Graph(weights, dtype)
    length = [*([kinds] if kinds else []), "batch_size", "sequence_length"]
    graph.inputs.append(helper.make_tensor_value_info("position_ids", onnx.TensorProto.INT64, length))
    positions = graph.op("Gather", "position_ids", graph.constant(kinds - 1, np.int64)) if kinds else "position_ids"
    sizes = graph.op("Shape", "attention_mask")
    total = graph.op("Gather", sizes, graph.constant(1, np.int64))
    columns = graph.op("Range", graph.constant(0, np.int64), total, graph.constant(1, np.int64))
    rows = graph.op("Unsqueeze", positions, graph.constant([1, 3], np.int64))
    seen = graph.op("LessOrEqual", columns, rows)
    mask = graph.op("Where", seen, graph.constant(0.0), graph.constant(-10000.0))

    def heads(value: str, count: int) -> str:
        shaped = graph.op("Reshape", value, graph.constant([0, 0, count, SIZE], np.int64))
        return str(graph.op("Transpose", shaped, perm=[0, 2, 1, 3]))

    def every(value: str) -> str:
        """Each group once for each of its heads."""
        apart = graph.op("Unsqueeze", value, graph.constant([2], np.int64))
        wide = graph.op("Expand", apart, graph.constant([1, 1, HEADS // GROUPS, 1, 1], np.int64))
        return str(graph.op("Reshape", wide, graph.constant([0, HEADS, -1, SIZE], np.int64)))

    def attend(index: int, q: str, k: str, v: str) -> str:
        kept = []
        for what, value in (("key", k), ("value", v)):
            past = f"past_key_values.{index}.{what}"
            graph.op("Concat", past, heads(value, GROUPS), axis=2, named=(f"present.{index}.{what}",))
            kept.append(every(f"present.{index}.{what}"))
        keys = graph.op("Transpose", kept[0], perm=[0, 1, 3, 2])
        scores = graph.op("Mul", graph.op("MatMul", heads(q, HEADS), keys), graph.constant(SIZE**-0.5))
        shares = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
        mixed = graph.op("Transpose", graph.op("MatMul", shares, kept[1]), perm=[0, 2, 1, 3])
        return str(graph.op("Reshape", mixed, graph.constant([0, 0, HIDDEN], np.int64)))

    def look(index: int, q: str) -> str:
        """Attend to what an encoder gave."""
        given = [f"past_{what}_cross_{index}" for what in ("key", "value")]
        shape = ["batch_size", HEADS, frames, SIZE]
        graph.inputs.extend(helper.make_tensor_value_info(name, graph.kind, shape) for name in given)
        keys = graph.op("Transpose", given[0], perm=[0, 1, 3, 2])
        shares = graph.op(
            "Softmax", graph.op("Mul", graph.op("MatMul", heads(q, HEADS), keys), graph.constant(SIZE**-0.5))
        )
        mixed = graph.op("Transpose", graph.op("MatMul", shares, given[1]), perm=[0, 2, 1, 3])
        return str(graph.op("Reshape", mixed, graph.constant([0, 0, HIDDEN], np.int64)))

    return graph.model(attend, embeds=embeds, look=look if frames else None)


def logits_of(weights: Weights, tokens: list[int]) -> Array:
    """What both compute, in numpy: [tokens, vocabulary], float64."""
    w = {name: value.astype(np.float64) for name, value in weights.values.items()}
    x = w["embed"][tokens]
    count = len(tokens)
    for index in range(LAYERS):
        q = (x @ w[f"q{index}"]).reshape(count, HEADS, SIZE)
        k = (x @ w[f"k{index}"]).reshape(count, GROUPS, SIZE)
        v = (x @ w[f"v{index}"]).reshape(count, GROUPS, SIZE)
        mixed = np.zeros((count, HEADS, SIZE))
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            for row in range(count):
                scores = k[: row + 1, group] @ q[row, head] * SIZE**-0.5
                shares = np.exp(scores - scores.max())
                mixed[row, head] = shares / shares.sum() @ v[: row + 1, group]
        x = x + mixed.reshape(count, HIDDEN) @ w[f"o{index}"]
        up = x @ w[f"up{index}"]
        x = np.tanh(x + up / (1 + np.exp(-up)) @ w[f"down{index}"])
    found: Array = x @ w["head"]
    return found


def config(*, shared: bool, **decoder: Any) -> dict[str, Any]:
    """A genai_config.json for these decoders."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "position_ids": "position_ids",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
    presents = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    sizes = {"head_size": SIZE, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS}
    return {
        "model": {
            "type": "llama",
            "vocab_size": VOCABULARY,
            "context_length": LONGEST,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 1,
            "decoder": {
                "session_options": {"provider_options": [{"dml": {}}]},
                "filename": "model.onnx",
                "inputs": names,
                "outputs": {"logits": "logits", **presents},
                "num_hidden_layers": LAYERS,
                **sizes,
                **decoder,
            },
        },
        "search": {"max_length": LONGEST, "past_present_share_buffer": shared, "do_sample": False},
    }


def folder(path: Path, model: onnx.ModelProto, *, shared: bool) -> Path:
    """Write a folder with a decoder."""
    path.mkdir()
    (path / "model.onnx").write_bytes(model.SerializeToString())
    (path / "genai_config.json").write_text(json.dumps(config(shared=shared)), encoding="utf-8")
    return path
