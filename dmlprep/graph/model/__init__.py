"""The model in memory: open, save, walk, check. Weights stay in their files until a pass needs their values."""

from dmlprep.graph.model.frozen import Frozen, freeze, thaw
from dmlprep.graph.model.model import Model, Statistics
from dmlprep.graph.model.saving import EXTERNAL_OVER, Saved
from dmlprep.graph.model.tensors import MappedTensor, chunks

__all__ = ["EXTERNAL_OVER", "Frozen", "MappedTensor", "Model", "Saved", "Statistics", "chunks", "freeze", "thaw"]
