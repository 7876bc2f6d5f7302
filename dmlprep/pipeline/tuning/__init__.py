"""Find the recipe that suits a model best: ranked by placement, proved, and timed where a GPU can be asked.

``docs/tune.md`` says what is tried, in which order, and what is left out.
"""

from dmlprep.pipeline.tuning.proving import Proved, TuneRequest
from dmlprep.pipeline.tuning.search import figures
from dmlprep.pipeline.tuning.tune import base_recipes, choose, tune

__all__ = ["Proved", "TuneRequest", "base_recipes", "choose", "figures", "tune"]
