"""Types that many rooms name: the device of a session, and the observer of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SessionDevice = Literal["cpu", "dml"]

Progress = Callable[[float, str], None]
"""Is called with the share done, 0 to 1, and what is done."""
