"""Numbers within bounds, as options of the command line."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["LIMITS", "Number", "read_limits"]

LIMITS = ("made_bytes", "made_nodes", "folded_elements", "run_bytes", "run_seconds", "onnx_bytes", "onnx_seconds")
"""Arguments of ``api.limits``, which is imported only where one is set."""


def read_limits(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments of ``api.limits``, which checks the ranges, from texts of the form ``NAME=N``."""
    limits: dict[str, Any] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in LIMITS:
            raise click.BadParameter(f"{name!r} is not a limit. Limits: {', '.join(LIMITS)}.", ctx, param)
        try:
            limits[name] = float(number) if name.endswith("_seconds") else int(number)
        except ValueError:
            raise click.BadParameter(f"{name}={number!r} is not a number.", ctx, param) from None
    return limits


class Number(click.FloatRange):
    """A number within bounds. Click's own range takes NaN, which is neither below nor above a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number
