"""Proof of a prepared language model: logits, perplexity and greedy text compared with the original's."""

from dmlprep.genai.proof.prove import prove
from dmlprep.genai.proof.tokens import ProofRequest

__all__ = ["ProofRequest", "prove"]
