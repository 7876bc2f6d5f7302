"""What the decoder of a folder is called inside: from its genai_config.json, and what its session says."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from dmlprep.core.errors import CheckNotRun
from dmlprep.genai.config import GenaiConfig
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.decoder import Names
from dmlprep.runtime import Session

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
    fed = {value.name for value in session.inputs}
    pairs, recurrent = _states(config, fed)
    if not pairs:
        past = _name(config, "inputs.past_key_names", "past_key_values.%d.key")
        raise CheckNotRun(f"the decoder has no input {past}: it has no cache", where=str(session.path))
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
        tokens=_name(config, "inputs.input_ids", "input_ids"),
        mask=_name(config, "inputs.attention_mask", "attention_mask"),
        positions=_name(config, "inputs.position_ids", "position_ids"),
        count=_name(config, "inputs.past_key_values_length", "past_key_values_length"),
        logits=_name(config, "outputs.logits", "logits"),
        pasts=tuple(past for past, _ in pairs),
        presents=tuple(present for _, present in pairs),
        heads=sizes.get("model.decoder.num_key_value_heads") or 0,
        head_size=sizes.get("model.decoder.head_size") or 0,
        vocabulary=sizes["model.vocab_size"] or 0,
        shared=bool(config.flag("search.past_present_share_buffer")) and not recurrent,
        recurrent=recurrent,
    )


def _name(config: GenaiConfig, place: str, usual: str) -> str:
    return config.text(f"model.decoder.{place}") or usual


def _states(config: GenaiConfig, fed: Collection[str]) -> tuple[list[tuple[str, str]], bool]:
    """Inputs and outputs of the cache, layer by layer; or the one pair of a recurrent decoder, and that it is one."""
    patterns = [
        (
            _name(config, f"inputs.past_{part}_names", f"past_key_values.%d.{part}"),
            _name(config, f"outputs.present_{part}_names", f"present.%d.{part}"),
        )
        for part in ("key", "value")
    ]
    pairs = [  # those that are not fed are never held: a pattern may be as long as a config
        (past, present.replace("%d", str(layer)))
        for layer in range(min(config.number("model.decoder.num_hidden_layers") or _MOST_LAYERS, _MOST_LAYERS))
        for pattern, present in patterns
        if (past := pattern.replace("%d", str(layer))) in fed
    ]
    past = _name(config, "inputs.rnn_states_prev", "rnn_states_prev")
    if pairs or past not in fed:
        return pairs, False
    return [(past, _name(config, "outputs.rnn_states", "rnn_states"))], True
