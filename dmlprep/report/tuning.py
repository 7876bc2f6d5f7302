"""Show the result of ``tune`` as text: the candidates, those that were not tried, and the choice."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import bytes_text
from dmlprep.portable.printable import printable
from dmlprep.record.run_record import target_text
from dmlprep.record.tuning import TIME, Candidate, Figures, Tuned
from dmlprep.report.speed import ratio_text
from dmlprep.report.tables import show_table

_COLUMNS = ("opset", "FP16", "on the CPU", "partitions", "copies", "bytes", "nodes", "time", "proof")


def show_tuned(tuning: Tuned, console: Console, *, with_recipe: bool, brief: bool = False) -> None:
    """Print a table of the candidates, notes on it, and the choice.

    Args:
        with_recipe: also print the chosen recipe.
        brief: print only the choice (and its recipe). Without a choice, the table and the notes are printed anyway.
    """
    if brief and tuning.chosen:
        console.print(_choice(tuning))
        if with_recipe:
            console.print(Text(tuning.recipe.rstrip("\n")))
        return
    rows = [("unchanged", *_cells(tuning.before), "", "")]
    rows += [_row(one, chosen=one.name == tuning.chosen) for one in tuning.candidates if one.figures is not None]
    show_table(console, ("", *_COLUMNS), rows, left_aligned=(_COLUMNS[-1],))
    for one in tuning.candidates:
        if one.reason:
            line = Text(f"{printable(one.name)}: ")
            line.append(one.proof or "refused", style="bold yellow")
            line.append(f", {one.reason}")
            console.print(line)
    if tuning.free:
        names = ", ".join(tuning.free)
        note = f"free sizes: {names}. DirectML does not fuse nodes that depend on them: fix them with --pin NAME=SIZE"
        console.print(Text(note, style="bold yellow"))
    for text in tuning.left_out:
        console.print(Text(f"not tried: {text}", style="dim"))
    ratio = next((one.time for one in tuning.candidates if one.time is not None), None)
    if ratio is not None:
        note = f"time: median as a multiple of that of {printable(ratio.to)}; in brackets, the 95 % interval"
        console.print(Text(note, style="dim"))
    if tuning.bench is not None and tuning.bench.note:
        console.print(Text(tuning.bench.note, style="bold yellow"))
    target = target_text(tuning.target, tuning.target_reason)
    console.print(Text(f"ranked in {tuning.searched_seconds:.1f} s, target {target}", style="dim"))
    if tuning.chosen:
        console.print()
        console.print(_choice(tuning))
        if with_recipe:
            console.print()
            for text in tuning.recipe.splitlines():
                console.print(Text(text))


def _choice(tuning: Tuned) -> Text:
    one = next(one for one in tuning.candidates if one.name == tuning.chosen)
    line = Text(f"{printable(one.name)}: ", style="bold")
    if one.proof == "passed":
        line.append(f"proved ({', '.join(one.devices)})", style="green")
    else:
        line.append("not proved", style="bold yellow")
    line.append(", the fastest of the timed candidates" if tuning.chosen_by == TIME else ", the best by placement")
    return line


def _row(one: Candidate, *, chosen: bool) -> tuple[str, ...]:
    assert one.figures is not None
    name = f"{'> ' if chosen else '  '}{one.name}"
    return (name, *_cells(one.figures), ratio_text(one.time), one.proof or "not proved")


def _cells(figures: Figures) -> tuple[str, ...]:
    on_cpu = f"{figures.cpu_nodes} ({figures.cpu_compute} compute)" if figures.cpu_nodes else "0"
    return (
        str(figures.opset),
        "yes" if figures.fp16 else "no",
        on_cpu,
        f"{figures.partitions} and {figures.alone} nodes" if figures.alone else str(figures.partitions),
        str(figures.crossings),
        bytes_text(figures.moved_bytes),
        str(figures.nodes),
    )
