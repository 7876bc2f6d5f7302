"""The device memory that a model needs: weights, DirectML's copies of them, tensors of a run, feeds."""

from dmlprep.directml.vram.budget import not_enough, over_budget, vram_bytes
from dmlprep.directml.vram.estimate import estimate, peak_in_half

__all__ = ["estimate", "not_enough", "over_budget", "peak_in_half", "vram_bytes"]
