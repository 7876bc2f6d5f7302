"""The largest numbers that a user may ask for, each declared once: recipes, the command line and kits hold to them.

They are far above what anybody needs, and far below where a library or the machine gives up in a way of its own.
"""

from __future__ import annotations

MOST_FEEDS = 10_000
"""Feeds, made or given."""

MOST_SIZE = (1 << 31) - 1
"""Of one dimension, in elements: ONNX Runtime and DirectML count many of them in 32 bits."""

MOST_SECONDS = 1e8
"""Of a time limit: three years."""

MOST_VALUE = 1e300
"""Of a bound or a scale: what is larger is infinite as soon as something is done with it."""

MOST_KIB = 1 << 21
"""Of a constant, in KiB: protobuf holds 2 GiB."""

MOST_MEMORY_MIB = 1 << 24
"""Of a process, in MiB: 16 TiB."""

MOST_TRIALS = 1_000_000
"""Of a search."""

MOST_RUNS = 1_000_000
"""Of a measurement."""

MOST_ADAPTERS = 1024
"""Graphics adapters of one machine."""

MOST_BUCKETS = 64
"""Buckets of one model: each is a whole run, and a session of its own in the app."""
