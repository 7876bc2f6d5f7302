"""What the decoder of a folder is called inside: from its genai_config.json, and what its session says."""

from __future__ import annotations

from pathlib import Path

from dmlprep.errors import CheckNotRun
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.decoder import Names
from dmlprep.runtime import Session

__all__ = ["decoder_file", "decoder_names"]

_MOST_LAYERS = 1024


def decoder_file(folder: GenaiFolder) -> Path:
    """The model of a folder that has a decoder and nothing else.

    Raises:
        CheckNotRun: it has other models, or none.
    """
    sections = [model.section for model in folder.models]
    if sections != ["decoder"]:
        others = ", ".join(section for section in sections if section != "decoder")
        told = (
            f"the folder has models for {others}, too" if "decoder" in sections else "the folder has no plain decoder"
        )
        raise CheckNotRun(f"{told}; logits are compared for folders of one decoder", where=str(folder.path))
    return folder.models[0].file


def decoder_names(folder: GenaiFolder, session: Session) -> Names:
    """Names and sizes of the decoder; what the config leaves out is as onnxruntime-genai has it by default.

    Raises:
        CheckNotRun: the session has no keys and values by these names, or the sizes are not known.
    """
    config = folder.config

    def name(place: str, usual: str) -> str:
        return config.text(f"model.decoder.{place}") or usual

    fed = {value.name for value in session.inputs}
    patterns = (
        (name("inputs.past_key_names", "past_key_values.%d.key"), name("outputs.present_key_names", "present.%d.key")),
        (
            name("inputs.past_value_names", "past_key_values.%d.value"),
            name("outputs.present_value_names", "present.%d.value"),
        ),
    )
    pairs = [  # those that are not fed are never held: a pattern may be as long as a config
        (name_of_layer, present.replace("%d", str(layer)))
        for layer in range(min(config.number("model.decoder.num_hidden_layers") or _MOST_LAYERS, _MOST_LAYERS))
        for past, present in patterns
        if (name_of_layer := past.replace("%d", str(layer))) in fed
    ]
    if not pairs:
        raise CheckNotRun(f"the decoder has no input {patterns[0][0]}: it has no cache", where=str(session.path))
    heads = config.number("model.decoder.num_key_value_heads") or config.number("model.decoder.num_attention_heads")
    sizes = {
        "model.decoder.num_key_value_heads": heads,
        "model.decoder.head_size": config.number("model.decoder.head_size"),
        "model.vocab_size": config.number("model.vocab_size"),
    }
    for place, size in sizes.items():
        if size is None or size < 1:
            raise CheckNotRun(f"{place} is missing", where=str(config.path), fix="add it")
    return Names(
        tokens=name("inputs.input_ids", "input_ids"),
        mask=name("inputs.attention_mask", "attention_mask"),
        positions=name("inputs.position_ids", "position_ids"),
        logits=name("outputs.logits", "logits"),
        pasts=tuple(past for past, _ in pairs),
        presents=tuple(present for _, present in pairs),
        heads=sizes["model.decoder.num_key_value_heads"] or 0,
        head_size=sizes["model.decoder.head_size"] or 0,
        vocabulary=sizes["model.vocab_size"] or 0,
        shared=bool(config.flag("search.past_present_share_buffer")),
    )
