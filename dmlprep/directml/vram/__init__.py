"""The device memory that a model needs: weights, DirectML's copies of them, tensors of a run, feeds."""

from dmlprep.directml.vram.budget import not_enough, over_budget, vram_bytes
from dmlprep.directml.vram.estimate import estimate

__all__ = ["estimate", "not_enough", "over_budget", "vram_bytes"]
