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
    """The model of a folder that gives logits, token after token.

    Raises:
        CheckNotRun: there is none, or it is a pipeline of stages.
    """
    found = next((model.file for model in folder.models if model.section == "decoder"), None)
    if found is not None:
        return found
    if any(model.section.startswith("decoder.pipeline.") for model in folder.models):
        raise CheckNotRun(
            "the decoder is a pipeline of stages: each is compared by itself, and not the logits of all of them behind "
            "one another",
            where=str(folder.path),
        )
    raise CheckNotRun("the folder has no decoder", where=str(folder.path))


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
    states = (name("inputs.rnn_states_prev", "rnn_states_prev"), name("outputs.rnn_states", "rnn_states"))
    recurrent = not pairs and states[0] in fed
    if recurrent:
        pairs = [states]
    if not pairs:
        raise CheckNotRun(f"the decoder has no input {patterns[0][0]}: it has no cache", where=str(session.path))
    heads = config.number("model.decoder.num_key_value_heads") or config.number("model.decoder.num_attention_heads")
    sizes = {"model.vocab_size": config.number("model.vocab_size")}
    if not recurrent:
        sizes |= {
            "model.decoder.num_key_value_heads": heads,
            "model.decoder.head_size": config.number("model.decoder.head_size"),
        }
    for place, size in sizes.items():
        if size is None or size < 1:
            raise CheckNotRun(f"{place} is missing", where=str(config.path), fix="add it")
    return Names(
        tokens=name("inputs.input_ids", "input_ids"),
        mask=name("inputs.attention_mask", "attention_mask"),
        positions=name("inputs.position_ids", "position_ids"),
        count=name("inputs.past_key_values_length", "past_key_values_length"),
        logits=name("outputs.logits", "logits"),
        pasts=tuple(past for past, _ in pairs),
        presents=tuple(present for _, present in pairs),
        heads=sizes.get("model.decoder.num_key_value_heads") or 0,
        head_size=sizes.get("model.decoder.head_size") or 0,
        vocabulary=sizes["model.vocab_size"] or 0,
        shared=bool(config.flag("search.past_present_share_buffer")) and not recurrent,
        recurrent=recurrent,
    )
