"""Inputs of a decoder from the original's other models, the same for both decoders: encoder states, embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.names import named
from dmlprep.genai.proof.embedding import Embeddings
from dmlprep.genai.proof.made_inputs import made_feeds
from dmlprep.genai.proof.model_links import joints
from dmlprep.portable.arrays import Array
from dmlprep.runtime import Session, SessionFailure, SessionOptions, open_cpu


@dataclass(frozen=True)
class Context:
    """What a decoder gets by its input names: ``fixed`` in every run, ``embedded`` for the tokens."""

    fixed: Mapping[str, Array] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()
    embeddings: Embeddings | None = None

    def embed(self, tokens: Sequence[int]) -> dict[str, Array]:
        """Embeddings of tokens.

        Raises:
            CheckNotRun: the original's embedding model does not run on them, which says nothing about a decoder.
        """
        if self.embeddings is None:
            return {}
        try:
            return self.embeddings.of(tokens)
        except SessionFailure as failed:
            raise CheckNotRun(f"the original's embedding model does not run on these tokens: {failed}") from failed

    def close(self) -> None:
        """End what makes embeddings."""
        if self.embeddings is not None:
            self.embeddings.close()


def open_context(folder: GenaiFolder, decoder: Session, options: SessionOptions) -> Context:
    """What the other models of the original's folder give its decoder.

    Raises:
        CheckNotRun: one of them does not run, or nothing can be made for its inputs.
        InputError: one of them cannot be read.
    """
    files = {model.section: model.file for model in folder.models}
    taken = [value.name for value in decoder.inputs]
    fixed = _encoded(folder, files["encoder"], taken, options) if "encoder" in files else {}
    if named(folder.config, "decoder", "inputs", "inputs_embeds") not in taken:
        return Context(fixed)
    if "embedding" not in files:
        raise CheckNotRun("the decoder takes embeddings, and the folder has no model that makes them of tokens")
    session = _opened(files["embedding"], options)
    try:
        handed = joints(folder.config, "embedding", "decoder", [value.name for value in session.outputs], taken)
        return Context(fixed, frozenset(handed), Embeddings(folder, session, handed))
    except BaseException:
        session.close()
        raise


def _opened(file: Path, options: SessionOptions) -> Session:
    try:
        return open_cpu(file, options)
    except SessionFailure as failed:
        raise CheckNotRun(f"the original's {file.name} does not load on the CPU: {failed}") from failed


def _encoded(folder: GenaiFolder, file: Path, taken: Sequence[str], options: SessionOptions) -> dict[str, Array]:
    """What the encoder makes of made inputs, by the decoder's names; and its mask, which the decoder takes too."""
    try:
        feed = made_feeds(folder, "encoder", folder.open(file), count=1)[0]
    except UsageError as error:
        raise CheckNotRun(f"no inputs are made for the encoder: {error.what}", where=error.where) from error
    with _opened(file, options) as session:
        handed = joints(folder.config, "encoder", "decoder", [value.name for value in session.outputs], taken)
        if not handed:
            what = "nothing that the encoder gives is an input of the decoder"
            raise CheckNotRun(what, where=str(folder.config.path))
        try:
            states = session.run(feed, list(dict.fromkeys(handed.values())))
        except SessionFailure as failed:
            raise CheckNotRun(f"the original's encoder does not run on made inputs: {failed}") from failed
    fixed = {name: states[output] for name, output in handed.items()}
    mask = named(folder.config, "encoder", "inputs", "attention_mask")
    other = named(folder.config, "decoder", "inputs", "encoder_attention_mask")
    return {**fixed, other: feed[mask]} if other in taken and mask in feed else fixed
