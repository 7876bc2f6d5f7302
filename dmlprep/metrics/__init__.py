"""Measure how far a model's outputs differ from those of the original: for the search, the proof and the kit.

``portable/measure.py`` computes the numbers of one output; ``parity`` runs the models and gives the verdict. A steep
output is one that rounding changes much, but only at a few places, such as probabilities and logits.
"""

from dmlprep.metrics.degenerate import degenerate, faint_maps
from dmlprep.metrics.error import output_error
from dmlprep.metrics.groups import KINDS, data_dependent, integer_images, output_groups
from dmlprep.metrics.noise import LAST_BITS, noise_of, nudged, stretched
from dmlprep.metrics.precision_traits import holds_fp16, holds_rare_floats, quantizes, tolerance_for
from dmlprep.metrics.proof_rules import ProofRules
from dmlprep.metrics.tolerances import TOLERANCES, choose_tolerance, find_tolerance, proves
from dmlprep.metrics.user_metric import NamedMetric, UserMetric, load_metric
from dmlprep.portable.comparison import Comparison, OutputGroup, bounds_used, compare_outputs, describe
from dmlprep.portable.measure import NOISE_FACTOR, Tolerance, measure, tells_something

__all__ = [
    "KINDS",
    "LAST_BITS",
    "NOISE_FACTOR",
    "TOLERANCES",
    "Comparison",
    "NamedMetric",
    "OutputGroup",
    "ProofRules",
    "Tolerance",
    "UserMetric",
    "bounds_used",
    "choose_tolerance",
    "compare_outputs",
    "data_dependent",
    "degenerate",
    "describe",
    "faint_maps",
    "find_tolerance",
    "holds_fp16",
    "holds_rare_floats",
    "integer_images",
    "load_metric",
    "measure",
    "noise_of",
    "nudged",
    "output_error",
    "output_groups",
    "proves",
    "quantizes",
    "stretched",
    "tells_something",
    "tolerance_for",
]
