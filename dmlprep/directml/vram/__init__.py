"""How much memory of the device a model needs: weights, what DirectML makes of them, tensors of a run, feeds."""

from dmlprep.directml.vram.budget import not_enough, over_budget, vram_bytes
from dmlprep.directml.vram.estimate import estimate

__all__ = ["estimate", "not_enough", "over_budget", "vram_bytes"]
