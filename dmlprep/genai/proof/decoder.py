"""Run a decoder in a session: on a prompt, then token by token with its cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.genai.config import GenaiConfig
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.embedding import Context
from dmlprep.parity import adapt_feed
from dmlprep.portable.arrays import Array
from dmlprep.process.failure import failure
from dmlprep.record.aliases import Progress
from dmlprep.runtime import CarriedValue, Session, ValueInfo

MOST_BYTES = 256 << 20
"""Limit in bytes for the logits of one run. The cache, and the logits of all prompts, may each need four times as much.

A proof with some hundred tokens needs far less.
"""


@dataclass(frozen=True)
class Names:
    """Names of a decoder's inputs and outputs, and sizes of its cache.

    Attributes:
        tokens, mask, positions, count: names of inputs, which are fed if the model has them. ``count`` is the number of
            earlier tokens.
        logits: name of the output of logits.
        pasts, presents: names of the inputs and outputs for keys and values of each layer, in the same order; or for
            the states of a recurrent decoder.
        heads, head_size: sizes of the keys and values, for dimensions that the model leaves free.
        vocabulary: number of tokens that the model knows.
        shared: True if past and present are one buffer for the longest text.
        recurrent: True if the decoder has states that do not grow with the text, instead of a cache.
    """

    tokens: str
    mask: str
    positions: str
    count: str
    logits: str
    pasts: tuple[str, ...]
    presents: tuple[str, ...]
    heads: int
    head_size: int
    vocabulary: int
    shared: bool
    recurrent: bool = False


@dataclass(frozen=True)
class Played:
    """One prompt, and the logits and tokens that the original's decoder computes for it.

    Attributes:
        prompt: token ids of the prompt.
        rows: logits of the prompt, [tokens, vocabulary], or [1, vocabulary] of its last token.
        steps: logits after each generated token that was fed again, [steps, vocabulary].
        tokens: the likeliest token after the prompt and after each step: one more than there are steps.
    """

    prompt: list[int]
    rows: Array
    steps: Array
    tokens: list[int]


def fitting_tokens(vocabulary: int) -> int:
    """Return the number of tokens whose FP32 logits fit into ``MOST_BYTES``, at least 1.

    ``vocabulary`` is the number of logits of each token.
    """
    return max(1, MOST_BYTES // (vocabulary * 4))


class Decoder:
    """A decoder in a session, with its cache.

    Args:
        session: a session on the decoder.
        names: names of its inputs and outputs.
        length: largest number of tokens of a prompt and its steps together.
        context: its inputs from other models.

    Raises:
        CheckNotRun: the proof does not know an input or output of the model, or its cache would be too large.
        SessionFailure: the worker has no memory for the cache.
    """

    def __init__(self, session: Session, names: Names, length: int, context: Context) -> None:
        self.session = session
        self.names = names
        self.context = context
        self._inputs = {value.name: value for value in session.inputs}
        self._known()
        self._cache_values = self._values(length)
        size = sum(_nbytes(one) for one in (self._cache_values if names.shared else self._values(length, empty=False)))
        if size > MOST_BYTES * 4:
            raise CheckNotRun(f"the cache of {length} tokens would have {size >> 20} MiB", fix="use fewer tokens")
        self._length = length
        self._past = 0
        self._filled = not names.shared
        if names.shared:
            session.hold(self._cache_values, shared=True)

    def _known(self) -> None:
        names = self.names
        embedded = self.context.embedded & set(self._inputs)
        first = () if embedded else (names.tokens,)
        missing = [name for name in (*first, *names.pasts) if name not in self._inputs]
        missing += sorted({names.logits, *names.presents} - {value.name for value in self.session.outputs})
        if missing:
            what, where = f"the model has no input or output {missing[0]!r}", str(self.session.path)
            raise CheckNotRun(what, where=where, fix="check the folder")
        fed = {names.tokens, names.mask, names.positions, names.count, *names.pasts, *embedded, *self.context.fixed}
        if unknown := [name for name in self._inputs if name not in fed]:
            raise CheckNotRun(f"the decoder has an input {unknown[0]!r}, which the proof cannot feed")

    def _values(self, length: int, *, empty: bool = True) -> list[CarriedValue]:
        """Return descriptions of the cache's tensors: of ``length`` tokens if it is shared, or if ``empty`` is False.

        Otherwise they have no tokens.
        """
        tokens = length if self.names.shared or not empty else 0
        return [
            CarriedValue(past, present, self._inputs[past].dtype, self._shape(self._inputs[past], tokens))
            for past, present in zip(self.names.pasts, self.names.presents, strict=True)
        ]

    def _shape(self, value: ValueInfo, tokens: int) -> tuple[int, ...]:
        if self.names.recurrent:
            return tuple(size if isinstance(size, int) else 1 for size in value.shape)
        if len(value.shape) != 4:
            raise CheckNotRun(f"{value.name} has {len(value.shape)} dimensions; a cache needs 4")
        wanted = (1, self.names.heads, tokens, self.names.head_size)
        sizes = [size if isinstance(size, int) else want for size, want in zip(value.shape, wanted, strict=True)]
        return sizes[0], sizes[1], tokens, sizes[3]

    def prompt(self, tokens: Sequence[int]) -> Array:
        """Clear the cache and run a prompt; return its logits, [tokens, vocabulary].

        Some decoders return only the logits of the last token, [1, vocabulary].

        Raises:
            SessionFailure: the decoder does not run.
            CheckNotRun: the original's embedding model does not run on the tokens.
        """
        if not self.names.shared:
            self.session.hold(self._cache_values, shared=False)
        self._past = 0
        if not self._filled:
            # The shared memory is uninitialized at first. NaN in it would spoil masked positions of the attention.
            self._run([int(token) for token in np.resize(np.asarray(tokens), self._length)])
            self._past, self._filled = 0, True
        return self._run(tokens)

    def step(self, token: int) -> Array:
        """Run one more token with the cache; return the logits [vocabulary] that predict the next token.

        Raises:
            SessionFailure, CheckNotRun: as ``prompt``.
        """
        row: Array = self._run([token])[-1]
        return row

    def _run(self, tokens: Sequence[int]) -> Array:
        """Run more tokens with the cache; return their logits, [tokens, vocabulary].

        Recurrent decoders that accept only one token in each run get one after the other.
        """
        value = self._inputs.get(self.names.tokens)
        if value is not None and len(value.shape) == 1:
            return np.concatenate([self._once([token]) for token in tokens])
        return self._once(tokens)

    def _once(self, tokens: Sequence[int]) -> Array:
        total = self._past + len(tokens)
        if total > self._length:
            raise ValueError(f"{total} tokens in a cache of {self._length}")
        names, fed = self.names, self._inputs
        whole: dict[str, Array] = {
            names.tokens: np.asarray([tokens]),
            names.mask: np.ones((1, total), np.int64),
            names.positions: np.arange(self._past, total)[None],
            names.count: np.asarray([self._past]),
            **self.context.fixed,
        }
        if any(name in fed for name in self.context.embedded):
            whole |= self.context.embed(tokens)
        whole = {name: self._ranked(array, fed[name]) for name, array in whole.items() if name in fed}
        feeds = adapt_feed(whole, [fed[name] for name in whole], str(self.session.path))
        logits = self.session.step(feeds, [names.logits])[names.logits]
        self._past = total
        if logits.ndim == 2:
            logits = logits[:, None]
        if logits.ndim != 3 or logits.shape[0] != 1 or logits.shape[1] not in (1, len(tokens)) or not logits.shape[2]:
            text = f"the logits of {len(tokens)} tokens have the shape {list(logits.shape)}"
            raise failure("run", text, str(self.session.path))
        rows: Array = logits[0]
        return rows

    def _ranked(self, array: Array, value: ValueInfo) -> Array:
        """Return the array for an input, with its rank adapted to the model.

        Qwen's M-RoPE needs three kinds of positions, [3, 1, tokens], which are equal for text. Some models have no
        batch axis for tokens.
        """
        if value.name == self.names.positions and len(value.shape) == 3:
            kinds = value.shape[0] if isinstance(value.shape[0], int) else 3
            return np.broadcast_to(array, (kinds, *array.shape)).copy()
        return array[0] if value.name == self.names.tokens and len(value.shape) == 1 else array


def _nbytes(value: CarriedValue) -> int:
    return int(np.prod(value.shape, dtype=object)) * {"float16": 2, "bfloat16": 2, "float32": 4}.get(value.dtype, 8)


def play_all(decoder: Decoder, prompts: Sequence[list[int]], steps: int, progress: Progress) -> list[Played]:
    """Run each prompt, then generate ``steps`` tokens greedily; return the logits and tokens of each prompt.

    Raises:
        UsageError: the logits would need more than 1 GiB.
        SessionFailure, CheckNotRun: as ``Decoder.prompt``.
    """
    size = sum(len(prompt) + steps for prompt in prompts) * decoder.names.vocabulary * 4
    if size > 4 * MOST_BYTES:
        what = f"the logits of these prompts would need {size >> 20} MiB"
        raise UsageError(what, where="--prompt", fix="use fewer or shorter prompts")
    played: list[Played] = []
    for number, prompt in enumerate(prompts):
        progress(0.3 * number / len(prompts), "the original")
        rows = decoder.prompt(prompt)
        tokens, logits = [int(rows[-1].argmax())], []
        for _ in range(steps):
            logits.append(decoder.step(tokens[-1]))
            tokens.append(int(logits[-1].argmax()))
        played.append(Played(prompt, rows, np.stack(logits), tokens))
    return played


_MOST_LAYERS = 1024


def decoder_file(folder: GenaiFolder) -> Path:
    """Return the file of a folder's decoder: the model that computes logits, token after token.

    Raises:
        CheckNotRun: there is none, or it is a pipeline of stages.
    """
    file = next((model.file for model in folder.models if model.section == "decoder"), None)
    if file is not None:
        return file
    if any(model.section.startswith("decoder.pipeline.") for model in folder.models):
        raise CheckNotRun(
            "the decoder is a pipeline of stages: each stage is "
            "compared alone, without the logits of the whole pipeline",
            where=str(folder.path),
        )
    raise CheckNotRun("the folder has no decoder", where=str(folder.path))


def decoder_names(folder: GenaiFolder, session: Session) -> Names:
    """Return the names and sizes of a decoder from the config, or onnxruntime-genai's default names.

    Raises:
        CheckNotRun: the session has no keys and values by these names, or the sizes are not known.
    """
    config = folder.config
    pairs, recurrent = _states(config, {value.name for value in session.inputs})
    if not pairs:
        past = _name(config, "inputs.past_key_names", "past_key_values.%d.key")
        raise CheckNotRun(f"the decoder has no input {past}, so no known cache", where=str(session.path))
    heads = config.number("model.decoder.num_key_value_heads") or config.number("model.decoder.num_attention_heads")
    sizes = {"model.vocab_size": config.number("model.vocab_size")}
    if not recurrent:
        sizes |= {
            "model.decoder.num_key_value_heads": heads,
            "model.decoder.head_size": config.number("model.decoder.head_size"),
        }
    for place, size in sizes.items():
        if size is None or size < 1:
            raise CheckNotRun(f"{place} is missing or not a positive number", where=str(config.path), fix="set it")
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
    """Return pairs of names, input and output, for the cache of each layer or for the states of a recurrent decoder.

    The second result is True for a recurrent decoder. ``fed`` has the names of the model's inputs.
    """
    patterns = [
        (
            _name(config, f"inputs.past_{part}_names", f"past_key_values.%d.{part}"),
            _name(config, f"outputs.present_{part}_names", f"present.%d.{part}"),
        )
        for part in ("key", "value")
    ]
    pairs = [  # names that are not inputs are skipped early: a pattern may be as long as a config
        (past, present.replace("%d", str(layer)))
        for layer in range(min(config.number("model.decoder.num_hidden_layers") or _MOST_LAYERS, _MOST_LAYERS))
        for pattern, present in patterns
        if (past := pattern.replace("%d", str(layer))) in fed
    ]
    past = _name(config, "inputs.rnn_states_prev", "rnn_states_prev")
    if pairs or past not in fed:
        return pairs, False
    return [(past, _name(config, "outputs.rnn_states", "rnn_states"))], True
