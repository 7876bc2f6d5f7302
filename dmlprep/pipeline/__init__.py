"""Run a plan: each step as a transaction on one model, then prove the result, then let it appear."""

from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.prepare import PrepareRequest, prepare
from dmlprep.pipeline.transaction import run_step

__all__ = ["Observer", "PrepareRequest", "prepare", "run_step"]
