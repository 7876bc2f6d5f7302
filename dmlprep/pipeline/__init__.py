"""Run a plan: each step as a transaction on one model, then prove the result, then let it appear."""

from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.prepare import PrepareRequest, prepare

__all__ = ["Observer", "PrepareRequest", "prepare"]
