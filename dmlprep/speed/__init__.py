"""How fast models run on a device: timed in turn in one run, with a ratio that stands on a noisy machine."""

from dmlprep.speed.choice import fastest
from dmlprep.speed.files import BenchRequest, bench, bench_record
from dmlprep.speed.measuring import measure
from dmlprep.speed.statistics import ratio_of_times, summary
from dmlprep.speed.variants import Variant, overridden_like, overrides

__all__ = [
    "BenchRequest",
    "Variant",
    "bench",
    "bench_record",
    "fastest",
    "measure",
    "overridden_like",
    "overrides",
    "ratio_of_times",
    "summary",
]
