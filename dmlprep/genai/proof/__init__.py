"""Proof of a prepared language model: logits, perplexity and greedy text against the original's."""

from dmlprep.genai.proof.bounds import BOUNDS, LogitBounds
from dmlprep.genai.proof.prove import prove
from dmlprep.genai.proof.request import ProofRequest
from dmlprep.record.generation import GenaiProof

__all__ = ["BOUNDS", "GenaiProof", "LogitBounds", "ProofRequest", "prove"]
