"""Find the recipe that suits a model best: ranked by placement, proved, and timed where a GPU can be asked.

``docs/tune.md`` says what is tried, in which order, and what is left out.
"""

from dmlprep.pipeline.tuning.axes import Io
from dmlprep.pipeline.tuning.proving import Proved
from dmlprep.pipeline.tuning.search import Found, Ways, figures, search
from dmlprep.pipeline.tuning.tune import TuneRequest, base_recipes, choose, tune

__all__ = ["Found", "Io", "Proved", "TuneRequest", "Ways", "base_recipes", "choose", "figures", "search", "tune"]
