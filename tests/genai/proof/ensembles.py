"""Small folders of several models: an encoder with its decoder, a decoder that sees pictures, stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.genai.proof.decoders import HEADS, HIDDEN, LAYERS, SIZE, VOCABULARY, Weights, config, plain

MELS, FRAMES, IMAGE_TOKEN, PICTURE, PATCH = 20, 24, 90, 32, 8


def heard() -> Weights:
    """Those of an encoder of sound and of its decoder."""
    rng = np.random.default_rng(1)

    def some(*shape: int, scale: float = 1.0) -> Any:
        return (rng.standard_normal(shape) * scale / np.sqrt(shape[0])).astype(np.float32)

    values = {**Weights.made().values, "listen": some(MELS, HIDDEN), "mix": some(HIDDEN, HIDDEN)}
    for layer in range(LAYERS):
        values |= {f"cross_{part}{layer}": some(HIDDEN, HIDDEN, scale=2.0) for part in "qkvo"}
    return Weights(values)


def seen() -> Weights:
    """Those of a model of pictures, of embeddings, and of their decoder."""
    rng = np.random.default_rng(2)
    patches = (rng.standard_normal((HIDDEN, 3, PATCH, PATCH)) / np.sqrt(3 * PATCH * PATCH)).astype(np.float32)
    project = (rng.standard_normal((HIDDEN, HIDDEN)) / np.sqrt(HIDDEN)).astype(np.float32)
    return Weights({**Weights.made().values, "patches": patches, "project": project})


def _of(weights: Weights, names: list[str]) -> Weights:
    return Weights({name: weights.values[name] for name in names})


def _own(weights: Weights) -> Weights:
    """Those of the decoder."""
    others = (
        "listen",
        "mix",
        "patches",
        "project",
        *(f"cross_{part}{layer}" for part in "kv" for layer in range(LAYERS)),
    )
    return Weights({name: value for name, value in weights.values.items() if name not in others})


def _model(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], weights: Weights, dtype: str, **more: Any
) -> onnx.ModelProto:
    kept = [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.values.items()]
    kept += [numpy_helper.from_array(np.asarray(value), name) for name, value in more.items()]
    graph = helper.make_graph(nodes, "part", inputs, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=kind)


def encoder(weights: Weights, dtype: str = "float32") -> onnx.ModelProto:
    """audio_features [batch, MELS, FRAMES] -> hidden states, and keys and values for each layer of the decoder."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node
    nodes = [
        _cast("audio_features", "sound", kind),
        node("Transpose", ["sound"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["turned", "listen"], ["listened"]),
        node("Tanh", ["listened"], ["bent"]),
        node("MatMul", ["bent", "mix"], ["states"]),
        _cast("states", "hidden_states", TensorProto.FLOAT),
    ]
    outputs = [helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, ["batch_size", FRAMES, HIDDEN])]
    for layer in range(LAYERS):
        for part, what in (("k", "key"), ("v", "value")):
            name = f"present_{what}_cross_{layer}"
            nodes += [
                node("MatMul", ["states", f"cross_{part}{layer}"], [f"{name}_flat"]),
                node("Reshape", [f"{name}_flat", "apart"], [f"{name}_apart"]),
                node("Transpose", [f"{name}_apart"], [name], perm=[0, 2, 1, 3]),
            ]
            outputs.append(helper.make_tensor_value_info(name, kind, ["batch_size", HEADS, FRAMES, SIZE]))
    names = ["listen", "mix", *(f"cross_{part}{layer}" for part in "kv" for layer in range(LAYERS))]
    inputs = [helper.make_tensor_value_info("audio_features", TensorProto.FLOAT, ["batch_size", MELS, FRAMES])]
    return _model(nodes, inputs, outputs, _of(weights, names), dtype, apart=np.array([0, 0, HEADS, SIZE], np.int64))


def vision(weights: Weights, dtype: str = "float32") -> onnx.ModelProto:
    """pixel_values [pictures, 3, height, width] -> image_features [patches, HIDDEN]."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        _cast("pixel_values", "pixels", kind),
        helper.make_node("Conv", ["pixels", "patches"], ["parts"], kernel_shape=[PATCH] * 2, strides=[PATCH] * 2),
        helper.make_node("Transpose", ["parts"], ["turned"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["turned", "flat"], ["rows"]),
        helper.make_node("Tanh", ["rows"], ["bent"]),
        helper.make_node("MatMul", ["bent", "project"], ["features"]),
        _cast("features", "image_features", TensorProto.FLOAT),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("pixel_values", TensorProto.FLOAT, ["num_images", 3, "height", "width"])]
    outputs = [info("image_features", TensorProto.FLOAT, ["num_image_tokens", HIDDEN])]
    own = _of(weights, ["patches", "project"])
    return _model(nodes, inputs, outputs, own, dtype, flat=np.array([-1, HIDDEN], np.int64))


def embedding(weights: Weights, dtype: str = "float32", *, heeds: bool = True) -> onnx.ModelProto:
    """Tokens -> embeddings, with a row of image_features in the place of each IMAGE_TOKEN.

    Args:
        heeds: put them there; else they change nothing.
    """
    node = helper.make_node
    nodes = [
        node("Gather", ["embed", "input_ids"], ["rows"]),
        _cast("rows", "words", TensorProto.FLOAT),
        node("Equal", ["input_ids", "mark"], ["marked"]),
        node("NonZero", ["marked"], ["found"]),
        node("Transpose", ["found"], ["places"]),
        node("ScatterND", ["words", "places", "image_features"], ["inputs_embeds"]),
    ]
    if not heeds:
        nodes[-1] = node("Add", ["words", "nothing"], ["inputs_embeds"])
        nodes.insert(-1, node("Mul", ["image_features", "zero"], ["none"]))
        nodes.insert(-1, node("ReduceSum", ["none"], ["nothing"], keepdims=0))
    info = helper.make_tensor_value_info
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        info("image_features", TensorProto.FLOAT, ["num_image_tokens", HIDDEN]),
    ]
    outputs = [info("inputs_embeds", TensorProto.FLOAT, ["batch_size", "sequence_length", HIDDEN])]
    more = {"mark": np.array(IMAGE_TOKEN, np.int64), "zero": np.array(0, np.float32)}
    return _model(nodes, inputs, outputs, _of(weights, ["embed"]), dtype, **more)


def listener(path: Path, weights: Weights, dtype: str = "float32", **models: onnx.ModelProto) -> Path:
    """A folder as onnxruntime-genai's builder writes one for whisper.

    Args:
        models: in place of its own (``encoder``, ``decoder``).
    """
    document = config(shared=False)
    own = document["model"]["decoder"]
    own["filename"] = "decoder.onnx"
    own["inputs"] |= {"cross_past_key_names": "past_key_cross_%d", "cross_past_value_names": "past_value_cross_%d"}
    document["model"] |= {
        "type": "whisper",
        "encoder": {
            "session_options": {"provider_options": []},
            "filename": "encoder.onnx",
            "inputs": {"audio_features": "audio_features"},
            "outputs": {
                "encoder_hidden_states": "hidden_states",
                "cross_present_key_names": "present_key_cross_%d",
                "cross_present_value_names": "present_value_cross_%d",
            },
        },
    }
    made = {
        "encoder": encoder(weights, dtype),
        "decoder": plain(_own(weights), dtype, frames=FRAMES),
    }
    return _written(path, document, made | models)


def viewer(path: Path, weights: Weights, dtype: str = "float32", **models: onnx.ModelProto) -> Path:
    """A folder as those of Phi-3-vision or Gemma 3: pictures, embeddings, and a decoder that takes them."""
    document = config(shared=False)
    own = document["model"]["decoder"]
    own["filename"] = "decoder.onnx"
    own["inputs"] = {"inputs_embeds": "inputs_embeds", **{k: v for k, v in own["inputs"].items() if k != "input_ids"}}
    document["model"] |= {
        "type": "gemma3",
        "image_token_id": IMAGE_TOKEN,
        "vision": {
            "filename": "vision.onnx",
            "config_filename": "processor_config.json",
            "inputs": {"pixel_values": "pixel_values"},
            "outputs": {"image_features": "image_features"},
        },
        "embedding": {
            "session_options": {"provider_options": [{"cuda": {}}]},
            "filename": "embedding.onnx",
            "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        },
    }
    made = {
        "vision": vision(weights, dtype),
        "embedding": embedding(weights, dtype),
        "decoder": plain(_own(weights), dtype, embeds=True),
    }
    folder = _written(path, document, made | models)
    steps = [{"operation": {"name": "resize", "type": "Resize", "attrs": {"height": PICTURE, "width": 2 * PICTURE}}}]
    (folder / "processor_config.json").write_text(json.dumps({"processor": {"transforms": steps}}), encoding="utf-8")
    return folder


def translator(path: Path, weights: Weights, dtype: str = "float32") -> Path:
    """A folder as onnxruntime-genai takes one for Marian: an encoder of tokens, a recurrent decoder of one token."""
    document = config(shared=False)
    names = (
        "input_ids",
        "encoder_hidden_states",
        "encoder_attention_mask",
        "rnn_states_prev",
        "past_key_values_length",
    )
    document["model"] |= {
        "type": "marian-ssru",
        "decoder": {
            "session_options": {"provider_options": []},
            "filename": "decoder.onnx",
            "hidden_size": HIDDEN,
            "inputs": {name: name for name in names},
            "outputs": {"logits": "logits", "rnn_states": "rnn_states"},
        },
        "encoder": {
            "filename": "encoder.onnx",
            "hidden_size": HIDDEN,
            "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"},
            "outputs": {"encoder_outputs": "states"},
        },
    }
    return _written(path, document, {"encoder": _reader(weights, dtype), "decoder": _recurrent(weights, dtype)})


def _reader(weights: Weights, dtype: str) -> onnx.ModelProto:
    """input_ids, attention_mask [batch, tokens] -> states [batch, tokens, HIDDEN]."""
    info, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Gather", ["embed", "input_ids"], ["rows"]),
        node("MatMul", ["rows", "mix"], ["mixed"]),
        node("Tanh", ["mixed"], ["bent"]),
        node("Unsqueeze", ["attention_mask", "last"], ["column"]),
        _cast("column", "mask", helper.np_dtype_to_tensor_dtype(np.dtype(dtype))),
        node("Mul", ["bent", "mask"], ["masked"]),
        _cast("masked", "states", TensorProto.FLOAT),
    ]
    inputs = [info(name, TensorProto.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")]
    outputs = [info("states", TensorProto.FLOAT, ["batch", "tokens", HIDDEN])]
    return _model(nodes, inputs, outputs, _of(weights, ["embed", "mix"]), dtype, last=np.array([2], np.int64))


def _recurrent(weights: Weights, dtype: str) -> onnx.ModelProto:
    """One token [batch] and the state [1, batch, HIDDEN] -> logits [batch, VOCABULARY] and the next state."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Gather", ["embed", "input_ids"], ["row"]),
        _cast("encoder_attention_mask", "mask", TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "last"], ["column"]),
        node("Mul", ["encoder_hidden_states", "column"], ["heard"]),
        node("ReduceMean", ["heard"], ["mean"], axes=[1], keepdims=0),
        _cast("mean", "seen", kind),
        node("MatMul", ["seen", "cross_q0"], ["source"]),
        node("MatMul", ["rnn_states_prev", "cross_o0"], ["before"]),
        _cast("past_key_values_length", "count", kind),
        node("Sin", ["count"], ["place"]),
        node("Sum", ["row", "source", "before", "place"], ["all"]),
        node("Tanh", ["all"], ["rnn_states"]),
        node("MatMul", ["rnn_states", "head"], ["apart"]),
        node("Squeeze", ["apart", "first"], ["logits"]),
    ]
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch"]),
        info("encoder_hidden_states", TensorProto.FLOAT, ["batch", "source", HIDDEN]),
        info("encoder_attention_mask", TensorProto.INT64, ["batch", "source"]),
        info("rnn_states_prev", kind, [1, "batch", HIDDEN]),
        info("past_key_values_length", TensorProto.INT64, [1]),
    ]
    outputs = [info("logits", kind, ["batch", VOCABULARY]), info("rnn_states", kind, [1, "batch", HIDDEN])]
    own = _of(weights, ["embed", "cross_q0", "cross_o0", "head"])
    places = {"last": np.array([2], np.int64), "first": np.array([0], np.int64)}
    return _model(nodes, inputs, outputs, own, dtype, **places)


def _written(path: Path, document: dict[str, Any], models: dict[str, onnx.ModelProto]) -> Path:
    path.mkdir()
    for name, model in models.items():
        (path / f"{name}.onnx").write_bytes(model.SerializeToString())
    (path / "genai_config.json").write_text(json.dumps(document), encoding="utf-8")
    return path


assert IMAGE_TOKEN < VOCABULARY
