"""Find the recipe that suits a model best: ranked by placement, proved, and timed where a GPU can be asked.

``docs/tune.md`` says what is tried, in which order, and what is left out.
"""

from dmlprep.pipeline.tuning.axes import Io
from dmlprep.pipeline.tuning.bases import base_recipes
from dmlprep.pipeline.tuning.choosing import choose
from dmlprep.pipeline.tuning.figures import figures
from dmlprep.pipeline.tuning.proving import Proved
from dmlprep.pipeline.tuning.search import Found, Ways, search
from dmlprep.pipeline.tuning.tune import TuneRequest, tune

__all__ = ["Found", "Io", "Proved", "TuneRequest", "Ways", "base_recipes", "choose", "figures", "search", "tune"]
