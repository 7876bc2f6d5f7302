"""Shares of a whole, in records and for readers: never all where one is missing, never none where there is one."""

from __future__ import annotations


def rounded_share(share: float, digits: int = 4) -> float:
    """``share`` (0 to 1) with so many digits; 1 only where it is 1, and 0 only where it is 0."""
    step = 10.0**-digits
    return round(min(max(round(share, digits), step), 1 - step), digits) if 0 < share < 1 else share


def percent(share: float, digits: int = 1) -> str:
    """``share`` (0 to 1) in percent: ``93.8 %``; ``100 %`` only where it is 1, and ``0 %`` only where it is 0."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return f"{100 * rounded_share(share, digits + 2):.{digits}f} %"
