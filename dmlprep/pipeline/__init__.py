"""Run a plan: each step as a transaction on one model, then prove the result, then let it appear."""

from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.prepare import PrepareRequest, check_out, prepare, prepare_aside

__all__ = ["Observer", "PrepareRequest", "check_out", "prepare", "prepare_aside"]
