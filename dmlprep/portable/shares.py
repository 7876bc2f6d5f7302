"""Format shares of a whole. A share below 1 is never shown as 100 %, and a share above 0 never as 0 %."""

from __future__ import annotations


def rounded_share(share: float, digits: int = 4) -> float:
    """Round ``share`` (0 to 1) to ``digits`` decimal places; return 1 only for exactly 1, and 0 only for exactly 0."""
    step = 10.0**-digits
    return round(min(max(round(share, digits), step), 1 - step), digits) if 0 < share < 1 else share


def percent(share: float, digits: int = 1) -> str:
    """Return ``share`` (0 to 1) as text in percent, with ``digits`` decimal places, such as ``93.8 %``.

    ``100 %`` is only for exactly 1, and ``0 %`` only for exactly 0.
    """
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return f"{100 * rounded_share(share, digits + 2):.{digits}f} %"
