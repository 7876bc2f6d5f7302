"""The largest numbers that a user may set. Recipes, the command line and kits use the same limits.

They are far above any practical value, and far below the values at which a library or the system fails.
"""

from __future__ import annotations

MOST_FEEDS = 10_000
"""Largest number of feeds (sets of inputs) of one run, synthetic or real."""

MOST_SIZE = (1 << 31) - 1
"""Largest size of one dimension, in elements. ONNX Runtime and DirectML use 32-bit integers for many of them."""

MOST_SECONDS = 1e8
"""Longest time limit in seconds: about three years."""

MOST_VALUE = 1e300
"""Largest bound or scale. Arithmetic with a larger number soon gives infinity."""

MOST_KIB = 1 << 21
"""Largest constant in KiB: 2 GiB, the limit of protobuf."""

MOST_MEMORY_MIB = 1 << 24
"""Largest memory limit of a process in MiB: 16 TiB."""

MOST_TRIALS = 1_000_000
"""Largest number of trials of one search."""

MOST_RUNS = 1_000_000
"""Largest number of runs of one measurement."""

MOST_ADAPTERS = 1024
"""Largest number of graphics adapters of one machine."""

MOST_BUCKETS = 64
"""Largest number of buckets (models of fixed sizes) of one model. Each is a whole run, and a separate session in the
app."""
