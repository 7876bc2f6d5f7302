"""Show measured times of models (``bench``): as text, and as rows and bars of the HTML report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import bytes_text, count_text, seconds_text
from dmlprep.portable.printable import printable
from dmlprep.portable.shares import percent
from dmlprep.record.speed import Bench, Bound, DeviceSpeed, PartBound, Ratio, Timed, Times
from dmlprep.report.charts import share
from dmlprep.report.tables import show_table


def ratio_text(ratio: Ratio | None) -> str:
    """Return a ratio of times with its confidence interval: ``0.352 (0.341 to 0.36)``; empty for ``None``.

    Without an interval, the brackets contain ``too few rounds``.
    """
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3g} (too few rounds)"
    return f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"


WORK = ("FLOPs", "bytes moved", "lower bound")
"""Columns for the work of a model or of a fused graph."""

PART_COLUMNS = ("fused graph", "nodes", *WORK)
"""Columns of ``part_rows``."""

_SHOWN = 5
"""Most fused graphs of a model whose bounds are shown."""


def scaled(number: float) -> str:
    """Return a large number with three digits and a prefix: ``8.21 G``, ``4.8 T``, ``950 k``."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "


def speed_text(speed: DeviceSpeed) -> str:
    """Return the speed of a device in a line."""
    rates = (
        f"memory {scaled(speed.memory)}B/s",
        f"FP32 {scaled(speed.arithmetic_fp32)}FLOP/s",
        f"FP16 {scaled(speed.arithmetic_fp16)}FLOP/s",
        f"launch {seconds_text(speed.launch_seconds)}",
        f"upload and readback {seconds_text(speed.copy_seconds)}",
    )
    return f"device: {', '.join(rates)} (measured {speed.measured})"


def bound_notes(bench: Bench) -> list[str]:
    """Return the speed of the device, and for each model the number of nodes that its lower bound leaves out."""
    unknown = [(one.name, one.bound.unknown) for one in bench.models if one.bound is not None and one.bound.unknown]
    notes = [] if bench.device_speed is None else [speed_text(bench.device_speed)]
    return notes + [
        f"{name}: the lower bound leaves out {count_text(n, 'node')} of unknown shape" for name, n in unknown
    ]


def _bound_cells(one: Timed) -> dict[str, str]:
    bound = one.bound
    if bound is None:
        return dict.fromkeys((*WORK, "limited by", "reached"), "")
    work = zip(WORK, _work(bound), strict=True)
    return {**dict(work), "limited by": bound.limit, "reached": percent(bound.share, 0)}


def part_rows(one: Timed) -> list[tuple[str, ...]]:
    """Return rows for the five slowest fused graphs of a model with several: name, nodes, FLOPs, bytes, lower bound."""
    parts = one.bound.parts if one.bound is not None and len(one.bound.parts) > 1 else ()
    return [(f"{one.name}: {part.name}", str(part.nodes), *_work(part)) for part in parts[:_SHOWN]]


def _work(one: Bound | PartBound) -> tuple[str, str, str]:
    """Return the cells of the columns ``WORK``."""
    return scaled(one.flops).strip(), f"{scaled(one.nbytes)}B", seconds_text(one.seconds)


def _cells(one: Timed, *, bounded: bool) -> dict[str, str]:
    """Return column name -> text for the table cells of a model, except its times; ``bounded``: with lower bounds."""
    peak = "" if one.device_peak is None else bytes_text(one.device_peak)
    peak += f" + {bytes_text(one.shared_peak)} shared" if peak and one.shared_peak else ""
    return {
        "load": seconds_text(one.load_seconds),
        "first run": seconds_text(one.first_seconds),
        "copies": "within the noise" if (one.copying_seconds or 0) < 0 else seconds_text(one.copying_seconds),
        "peak memory": "" if one.peak_memory is None else bytes_text(one.peak_memory),
        "on the device": "" if one.device_memory is None else bytes_text(one.device_memory),
        "device peak": peak,
        "fused partitions": "" if one.partitions is None else str(one.partitions),
        "nodes on the CPU": "" if one.cpu_nodes is None else f"{one.cpu_nodes} of {one.nodes}",
        **(_bound_cells(one) if bounded else {}),
    }


def show_bench(bench: Bench, console: Console, *, verbose: bool = True) -> None:
    """Print the result in words, a table of times, a table of other facts, and notes on how they were measured.

    ``verbose``: False for the result and the median of each model only.
    """
    for text in bench.sentences():
        console.print(Text(printable(text), style="bold"))
    if bench.device:
        console.print(Text(f"by {bench.device}", style="dim"))
    ran = [one for one in bench.models if one.times is not None]
    if not verbose:
        rows = [(one.name, *_quantiles(one.times)[:3]) for one in ran if one.times is not None]
        show_table(console, ["", "median", "p10", "p90"], rows)
        return
    if ran:
        _show_times(ran, console)
        console.print()
        cells = [_cells(one, bounded=bench.device_speed is not None) for one in ran]
        show_table(console, ["", *cells[0]], [(one.name, *row.values()) for one, row in zip(ran, cells, strict=True)])
        if parts := [row for one in ran for row in part_rows(one)]:
            console.print()
            show_table(console, PART_COLUMNS, parts)
    if any(one.cpu_nodes is not None for one in ran):
        note = "nodes: as ONNX Runtime places them, after its basic optimisations and before it fuses operators"
        console.print(Text(note, style="dim"))
    for text in bound_notes(bench):
        console.print(Text(printable(text), style="dim"))
    for one in bench.models:
        if one.not_apart:
            console.print(Text(f"{printable(one.name)}: copies not measured separately: {one.not_apart}", style="dim"))
    if against := next((one.ratio.to for one in ran if one.ratio is not None), ""):
        legend = f"ratios of medians and of p10, to {printable(against)}; in brackets, the 95 % interval"
        console.print(Text(legend, style="dim"))
    if ran:
        inputs = {"seeded": ", with synthetic inputs", "given": ", with your inputs"}.get(bench.inputs, "")
        console.print(Text(f"{bench.rounds} rounds in {bench.seconds:.0f} s{inputs}", style="dim"))


def brief_lines(bench: Bench) -> list[str]:
    """Return lines with the median of each model (if there are several), and the result in words."""
    timed = [one for one in bench.models if one.times is not None]
    medians = [f"{one.name}: median {seconds_text(one.times.median)}" for one in timed if one.times]
    return [*(medians if len(medians) > 1 else []), *bench.sentences()]


def _show_times(ran: list[Timed], console: Console) -> None:
    rows = []
    for one in ran:
        assert one.times is not None
        ratios = (ratio_text(one.ratio), ratio_text(one.least_disturbed))
        rows.append((one.name, *_quantiles(one.times), *ratios))
        if one.on_device is not None:
            rows.append(("  without copies", *_quantiles(one.on_device), "", ""))
    show_table(console, ["", "median", "p10", "p90", "runs/s", "runs", "ratio", "ratio of p10"], rows)


def _quantiles(times: Times) -> tuple[str, ...]:
    spread = (seconds_text(value) for value in (times.median, times.p10, times.p90))
    return (*spread, f"{times.per_second:.4g}", str(times.runs))


@dataclass(frozen=True)
class SpeedRow:
    """A model in the HTML report.

    Attributes:
        not_run: why the model has no times; empty if it has.
        times, facts: column name -> text, for the table of times and the one of other facts.
        bar, low, high: length of the bars for the median, the 10th and the 90th percentile of the time, 0 to 100.
        bare: length of the bar for the median without copies; ``None`` if it was not measured.
    """

    name: str
    sizes: str
    not_run: str
    times: Mapping[str, str]
    facts: Mapping[str, str]
    bar: float = 0.0
    low: float = 0.0
    high: float = 0.0
    bare: float | None = None


def speed_rows(bench: Bench) -> list[SpeedRow]:
    """Return a row for each model, for the HTML report, without columns that are empty for all models."""
    longest = max((one.times.p90 for one in bench.models if one.times is not None), default=0.0)
    rows = [_row(one, longest, bounded=bench.device_speed is not None) for one in bench.models]
    known = {name for row in rows for name, text in [*row.times.items(), *row.facts.items()] if text}

    def filled(cells: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in cells.items() if name in known}

    return [replace(row, times=filled(row.times), facts=filled(row.facts)) for row in rows]


def _row(one: Timed, longest: float, *, bounded: bool) -> SpeedRow:
    sizes = ", ".join(f"{name}={size}" for name, size in one.sizes.items())
    if one.times is None:
        return SpeedRow(one.name, sizes, one.not_run or "no times", {}, {})
    times = one.times
    columns = {
        **dict(zip(("median", "p10", "p90", "runs/s", "runs"), _quantiles(times), strict=True)),
        "without copies": seconds_text(one.on_device.median if one.on_device else None),
        "ratio": ratio_text(one.ratio),
        "ratio of p10": ratio_text(one.least_disturbed),
    }
    bare = None if one.on_device is None else share(one.on_device.median, longest)
    median, low, high = (share(seconds, longest) for seconds in (times.median, times.p10, times.p90))
    return SpeedRow(one.name, sizes, "", columns, _cells(one, bounded=bounded), median, low, high, bare)
