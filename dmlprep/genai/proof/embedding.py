"""Compute inputs of a decoder by the original's other models: encoder states and embeddings, equal for both decoders.

This module also generates feeds for the embedding model, on which its outputs depend on pictures and sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.names import named
from dmlprep.genai.proof.made_inputs import made_feeds
from dmlprep.genai.proof.model_links import joints
from dmlprep.graph.model import Model
from dmlprep.parity import Feed, adapt_feed
from dmlprep.parity.feeds.constrained_inputs import compared_with
from dmlprep.parity.feeds.sizes import Input, graph_inputs
from dmlprep.portable.arrays import Array
from dmlprep.runtime import Session, SessionFailure, SessionOptions, ValueInfo, open_cpu

_SECTION = "embedding"
_ROWS = 3
"""Number of rows of features, if the model leaves it free."""

_MOST_ROWS = 4096
_TEXT = 5
"""Number of tokens of text, in addition to the tokens that represent features."""

_MARKS = {"image_features": "image_token_id", "audio_features": "audio_token_id"}
"""Config keys of the tokens that represent a row of features, by the key of the embedding model's input."""


def special_tokens(folder: GenaiFolder) -> set[int]:
    """Return the ids of tokens that represent pictures or sound instead of text, from the config."""
    keys = (*_MARKS.values(), "video_token_id", "vision_start_token_id")
    return {number for key in keys if (number := folder.config.number(f"model.{key}")) is not None}


class Embeddings:
    """The original's embedding model in a session, for tokens without pictures or sound.

    Args:
        session: a session on the model.
        handed: its outputs that feed the decoder: output names by the decoder's input names.

    Raises:
        CheckNotRun: it does not run on tokens alone.
    """

    def __init__(self, folder: GenaiFolder, session: Session, handed: Mapping[str, str]) -> None:
        self._session, self._handed = session, handed
        self._tokens = named(folder.config, _SECTION, "inputs", "input_ids")
        if self._tokens not in {value.name for value in session.inputs}:
            raise CheckNotRun(f"the embedding model has no input {self._tokens!r}", where=str(session.path))
        others = [value for value in session.inputs if value.name != self._tokens]
        width = folder.config.number("model.decoder.hidden_size") or 1
        message = ""
        for rows in (0, 1):
            self._others = {one.name: np.zeros(_shape(one, rows, width), np.float32) for one in others}
            try:
                self.of([0])
                return
            except SessionFailure as failed:
                message = message or failed.message
        raise CheckNotRun(f"the embedding model does not run on tokens alone: {message}", where=str(session.path))

    def of(self, tokens: Sequence[int]) -> dict[str, Array]:
        """Return embeddings [1, tokens, width] of token ids, by the decoder's input names.

        Raises:
            SessionFailure: the model does not run on them.
        """
        feed = {self._tokens: np.asarray([tokens]), **self._others}
        outputs = list(dict.fromkeys(self._handed.values()))
        values = self._session.run(adapt_feed(feed, self._session.inputs, str(self._session.path)), outputs)
        return {name: values[output] for name, output in self._handed.items()}

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def _shape(value: ValueInfo, rows: int, width: int) -> tuple[int, ...]:
    """Return a shape for an input of features: ``width`` for its last axis, ``rows`` for its first free axis.

    Other free axes are 1. Without features, onnxruntime-genai passes [0, width].
    """
    last = len(value.shape) - 1
    free = [axis for axis, size in enumerate(value.shape) if not isinstance(size, int) and axis != last]
    return tuple(
        size if isinstance(size, int) else width if axis == last else rows if axis == free[0] else 1
        for axis, size in enumerate(value.shape)
    )


def embedding_feeds(
    folder: GenaiFolder, file: Path, model: Model, like: Model | None, options: SessionOptions
) -> list[Feed]:
    """Return seeded feeds for the embedding model: tokens of text, and one special token for each row of features.

    The config may define that token (``image_token_id``). Otherwise a comparison in the graph shows it, or it is -1, as
    in Phi's processor. A run of the original confirms the guess: its outputs must change with the features.
    Without an input of features, the feeds are those of ``made_feeds``.

    Args:
        file, model: the original embedding model.
        like: the prepared model, whose fixed sizes and limits apply too.
        options: options of the session for the confirming run.

    Raises:
        CheckNotRun: with no token the outputs change with the features, or no values can be generated for an input.
        UsageError: the feeds would be too large.
    """
    tokens = named(folder.config, _SECTION, "inputs", "input_ids")
    inputs = graph_inputs(model)
    ids = next((one for one in inputs if one.name == tokens), None)
    features = [one for one in inputs if one.name != tokens and one.dtype is not None and not one.dtype.is_integer()]
    if ids is None or not features:
        return made_feeds(folder, _SECTION, model, like)
    rows = {one.name: _rows(one) for one in features}
    sizes = {f"{tokens}:1": _TEXT + sum(rows.values())}
    for one in features:
        sizes |= _sizes(one, folder.config.number("model.decoder.hidden_size"))
    feeds = made_feeds(folder, _SECTION, model, like, sizes=sizes)
    message = ""
    for marks in _marked(folder, ids, features, model):
        tried = [_placed(feed, tokens, [(marks[name], rows[name]) for name in rows]) for feed in feeds]
        try:
            if _counts(file, tried[0], list(rows), options):
                return tried
        except SessionFailure as failed:
            message = message or failed.message
    names = " and ".join(rows)
    unset = " and ".join(f"model.{key}" for key in _MARKS.values() if folder.config.number(f"model.{key}") is None)
    why = f" ({message})" if message else f"; the config does not set {unset}" if unset else ""
    what = f"no synthetic tokens make {names} change the original's output"
    raise CheckNotRun(f"{what}{why}", where=str(file))


def _rows(one: Input) -> int:
    dims = (one.dims or ())[:-1]
    fixed = math.prod(dim for dim in dims if isinstance(dim, int))
    count = fixed * (_ROWS if dims and not isinstance(dims[-1], int) else 1)
    if not 0 < count <= _MOST_ROWS:
        raise CheckNotRun(f"{one.name} has {count} rows, for which dmlprep cannot generate tokens")
    return count


def _sizes(one: Input, width: int | None) -> dict[str, int]:
    """Return sizes by ``input:axis`` for the free dimensions of an input of features [..., rows, width]."""
    dims = one.dims or ()
    sizes = {
        f"{one.name}:{axis}": _ROWS if axis == len(dims) - 2 else 1
        for axis, dim in enumerate(dims[:-1])
        if not isinstance(dim, int)
    }
    if dims and not isinstance(dims[-1], int) and width:
        sizes[f"{one.name}:{len(dims) - 1}"] = width
    return sizes


def _marked(
    folder: GenaiFolder, ids: Input, features: Sequence[Input], model: Model
) -> Iterator[dict[str, int | None]]:
    """Yield guesses: for each input of features, by name, the token that represents a row; ``None`` for no token."""
    config = folder.config
    keys = {named(config, _SECTION, "inputs", key): f"model.{place}" for key, place in _MARKS.items()}
    written = {one.name: config.number(keys[one.name]) if one.name in keys else None for one in features}
    compared = compared_with(ids.value, model.ir.functions)
    other = int(compared) if compared is not None else None
    compared_too = {name: mark if mark is not None else other for name, mark in written.items()}
    guesses: list[dict[str, int | None]] = [written, compared_too, dict.fromkeys(written, -1), dict.fromkeys(written)]
    yield from (guess for number, guess in enumerate(guesses) if guess not in guesses[:number])


def _placed(feed: Feed, tokens: str, marks: Sequence[tuple[int | None, int]]) -> Feed:
    """Return a feed in which tokens for the features replace tokens of the text, after the first two.

    ``marks`` are pairs: a token, ``None`` for none, and how often it occurs.
    """
    ids, at = feed[tokens].copy(), 2
    for mark, count in marks:
        if mark is not None:
            ids[:, at : at + count] = mark
            at += count
    return {**feed, tokens: ids}


def _counts(file: Path, feed: Feed, names: Sequence[str], options: SessionOptions) -> bool:
    """Run a model, and return True if its outputs change with each of the inputs ``names``.

    Raises:
        SessionFailure: the model does not run on the feed.
    """
    with open_cpu(file, options) as session:
        before = session.run(feed)
        for name in names:
            after = session.run({**feed, name: np.asarray(0.5 - feed[name], feed[name].dtype)})
            if all(np.array_equal(before[output], after[output]) for output in before):
                return False
    return True


@dataclass(frozen=True)
class Context:
    """The inputs of a decoder that other models compute.

    Attributes:
        fixed: arrays that are the same in every run, by input name: states of the encoder, and its mask.
        embedded: names of inputs that are embeddings of the tokens of a run.
        embeddings: the embedding model; ``None`` if the decoder reads tokens.
    """

    fixed: Mapping[str, Array] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()
    embeddings: Embeddings | None = None

    def embed(self, tokens: Sequence[int]) -> dict[str, Array]:
        """Return embeddings of token ids by input name; empty if there is no embedding model.

        Raises:
            CheckNotRun: the original's embedding model does not run on them; this proves nothing about the decoder.
        """
        if self.embeddings is None:
            return {}
        try:
            return self.embeddings.of(tokens)
        except SessionFailure as failed:
            raise CheckNotRun(f"the original's embedding model does not run on these tokens: {failed}") from failed

    def close(self) -> None:
        """Close the session of the embedding model, if there is one."""
        if self.embeddings is not None:
            self.embeddings.close()


def open_context(folder: GenaiFolder, decoder: Session, options: SessionOptions) -> Context:
    """Run the other models of the original's folder as far as needed, and return the inputs of the decoder from them.

    The caller has to close the result.

    Raises:
        CheckNotRun: one of them does not run, no inputs can be generated for it, or no model of the folder computes the
            embeddings that the decoder needs.
        InputError, ModelRefused, ToolFailed: as ``Model.open``.
    """
    files = {model.section: model.file for model in folder.models}
    decoder_inputs = [value.name for value in decoder.inputs]
    fixed = _encoded(folder, files["encoder"], decoder_inputs, options) if "encoder" in files else {}
    if named(folder.config, "decoder", "inputs", "inputs_embeds") not in decoder_inputs:
        return Context(fixed)
    if "embedding" not in files:
        raise CheckNotRun("the decoder needs embeddings, but no model of the folder computes them from tokens")
    session = _opened(files["embedding"], options)
    try:
        handed = joints(
            folder.config, "embedding", "decoder", [value.name for value in session.outputs], decoder_inputs
        )
        return Context(fixed, frozenset(handed), Embeddings(folder, session, handed))
    except BaseException:
        session.close()
        raise


def _opened(file: Path, options: SessionOptions) -> Session:
    try:
        return open_cpu(file, options)
    except SessionFailure as failed:
        raise CheckNotRun(f"the original's {file.name} does not load on the CPU: {failed}") from failed


def _encoded(
    folder: GenaiFolder, file: Path, decoder_inputs: Sequence[str], options: SessionOptions
) -> dict[str, Array]:
    """Run the encoder on generated inputs; return its outputs and its mask by the decoder's input names.

    Raises:
        CheckNotRun: the encoder does not run, or none of its outputs is an input of the decoder.
    """
    try:
        feed = made_feeds(folder, "encoder", folder.open(file), count=1)[0]
    except UsageError as error:
        raise CheckNotRun(f"no synthetic inputs for the encoder: {error.what}", where=error.where) from error
    with _opened(file, options) as session:
        handed = joints(folder.config, "encoder", "decoder", [value.name for value in session.outputs], decoder_inputs)
        if not handed:
            what = "no output of the encoder is an input of the decoder"
            raise CheckNotRun(what, where=str(folder.config.path))
        try:
            states = session.run(feed, list(dict.fromkeys(handed.values())))
        except SessionFailure as failed:
            raise CheckNotRun(f"the original's encoder does not run on synthetic inputs: {failed}") from failed
    fixed = {name: states[output] for name, output in handed.items()}
    mask = named(folder.config, "encoder", "inputs", "attention_mask")
    other = named(folder.config, "decoder", "inputs", "encoder_attention_mask")
    return {**fixed, other: feed[mask]} if other in decoder_inputs and mask in feed else fixed
