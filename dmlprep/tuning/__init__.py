"""Find the recipe that suits a model best: ranked by placement, proved, and timed where a GPU can be asked.

``docs/tune.md`` says what is tried, in which order, and what is left out.
"""

from dmlprep.tuning.axes import Io
from dmlprep.tuning.bases import base_recipes
from dmlprep.tuning.choosing import choose
from dmlprep.tuning.figures import figures
from dmlprep.tuning.proving import Proved
from dmlprep.tuning.search import Found, Ways, search
from dmlprep.tuning.tune import TuneRequest, tune

__all__ = ["Found", "Io", "Proved", "TuneRequest", "Ways", "base_recipes", "choose", "figures", "search", "tune"]
