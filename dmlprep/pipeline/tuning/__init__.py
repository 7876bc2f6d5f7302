"""Find the best recipe for a model: rank candidates by placement, prove the best, and time them if requested.

``docs/tune.md`` describes what is tried, in which order, and what is left out.
"""

from dmlprep.pipeline.tuning.proving import Proved, TuneRequest
from dmlprep.pipeline.tuning.search import figures
from dmlprep.pipeline.tuning.tune import base_recipes, choose, tune, usual_recipes

__all__ = ["Proved", "TuneRequest", "base_recipes", "choose", "figures", "tune", "usual_recipes"]
