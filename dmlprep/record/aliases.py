"""Types that many packages use: the device of a session, and the observer of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SessionDevice = Literal["cpu", "dml"]

Progress = Callable[[float, str], None]
"""A function that receives the share done, 0 to 1, and the present work."""
