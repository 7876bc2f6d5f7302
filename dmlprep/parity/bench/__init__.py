"""Time models on a device, in turns within one run, and report ratios of times that stay valid on a busy machine."""

from dmlprep.parity.bench.files import BenchRequest, bench, bench_record
from dmlprep.parity.bench.measuring import Variant, measure, overridden_like
from dmlprep.parity.bench.statistics import fastest, ratio_of_times, summary

__all__ = [
    "BenchRequest",
    "Variant",
    "bench",
    "bench_record",
    "fastest",
    "measure",
    "overridden_like",
    "ratio_of_times",
    "summary",
]
