"""Prove a prepared language model: compare its logits, perplexity and greedy text with the original's."""

from dmlprep.genai.proof.prove import prove
from dmlprep.genai.proof.tokens import ProofRequest

__all__ = ["ProofRequest", "prove"]
