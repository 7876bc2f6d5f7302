"""What records say of folders of language models: what ``genai prepare`` made, and what ``genai check`` found."""

from __future__ import annotations

import msgspec

from dmlprep.record.generation import GenaiProof
from dmlprep.record.placement import PlacementFacts


class BuilderFacts(msgspec.Struct, frozen=True):
    """The builder of onnxruntime-genai that made the models; ``versions`` are those of Python and its packages."""

    precision: str
    versions: dict[str, str]


class PreparedModelFacts(msgspec.Struct, frozen=True):
    """One prepared model of a folder; ``sections`` of the config name it."""

    sections: list[str]
    opset: int
    placement: PlacementFacts | None = None


class GenaiFacts(msgspec.Struct):
    """What ``genai prepare`` did to a folder.

    Attributes:
        builder: ``None`` if the models existed.
        models: by their paths in the folder.
        config: changes of the config.
        proof: ``None`` if nothing was proved.
        copied: other files, by their paths in the folder.
        written: SHA-256 of each file of the result.
        fallback: name of the folder for the CPU; empty if there is none.
    """

    builder: BuilderFacts | None = None
    models: dict[str, PreparedModelFacts] = {}
    config: list[str] = []
    proof: GenaiProof | None = None
    copied: list[str] = []
    written: dict[str, str] = {}
    fallback: str = ""


class CheckedModelFacts(msgspec.Struct, frozen=True):
    """One model that ``genai check`` examined; ``placement`` is ``None`` if it failed."""

    file: str
    placement: PlacementFacts | None = None


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of the device for the decoder of a folder.

    Attributes:
        weights: bytes of the weights of all models of the folder.
        cache: bytes of keys and values at ``max_length`` and ``batch``; DirectML rounds each tensor up.
        cache_token: bytes of keys and values for one more token of one sequence, before rounding.
        logits_token: bytes of the logits of one token.
        max_length: tokens of the longest sequence, prompt included.
        batch: number of sequences, beams included.
        longest_fit: the longest sequence that fits into the memory at that batch; 0 for none.
        batch_fit: the largest batch that fits at that length; 0 for none.
    """

    weights: int
    cache: int
    cache_token: int
    logits_token: int
    max_length: int
    batch: int
    longest_fit: int | None = None
    batch_fit: int | None = None

    @property
    def total(self) -> int:
        """Weights and cache."""
        return self.weights + self.cache
