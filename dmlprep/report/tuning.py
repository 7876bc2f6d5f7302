"""The result of ``tune`` as text: the candidates, those that were not tried, and the choice."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import bytes_text
from dmlprep.portable.printable import printable
from dmlprep.record.tuning import TIME, Candidate, Figures, Tuned
from dmlprep.report.speed import ratio_text
from dmlprep.report.tables import show_table

_COLUMNS = ("opset", "FP16", "on the CPU", "partitions", "crossings", "bytes", "nodes", "time", "proof")


def show_tuned(found: Tuned, console: Console, *, with_recipe: bool, brief: bool = False) -> None:
    """Print the table, best first, and notes on it; ``brief``: the choice alone, if there is one."""
    if brief and found.chosen:
        console.print(_choice(found))
        if with_recipe:
            console.print(Text(found.recipe.rstrip("\n")))
        return
    rows = [("unchanged", *_cells(found.before), "", "")]
    rows += [_row(one, chosen=one.name == found.chosen) for one in found.candidates if one.figures is not None]
    show_table(console, ("", *_COLUMNS), rows, left=(_COLUMNS[-1],))
    for one in found.candidates:
        if one.reason:
            line = Text(f"{printable(one.name)}: ")
            line.append(one.proof or "refused", style="bold yellow")
            line.append(f", {one.reason}")
            console.print(line)
    if found.free:
        names = ", ".join(found.free)
        said = f"free sizes: {names}. DirectML does not fuse nodes that depend on them: fix them with --pin NAME=SIZE"
        console.print(Text(said, style="bold yellow"))
    for text in found.left_out:
        console.print(Text(f"not tried: {text}", style="dim"))
    ratio = next((one.time for one in found.candidates if one.time is not None), None)
    if ratio is not None:
        said = f"time: median as a multiple of that of {printable(ratio.to)}; in brackets, the 95 % interval"
        console.print(Text(said, style="dim"))
    if found.bench is not None and found.bench.note:
        console.print(Text(found.bench.note, style="bold yellow"))
    console.print(Text(f"ranked in {found.searched_seconds:.1f} s, target {found.target}", style="dim"))
    if found.chosen:
        console.print()
        console.print(_choice(found))
        if with_recipe:
            console.print()
            for text in found.recipe.splitlines():
                console.print(Text(text))


def _choice(found: Tuned) -> Text:
    one = next(one for one in found.candidates if one.name == found.chosen)
    line = Text(f"{printable(one.name)}: ", style="bold")
    if one.proof == "passed":
        line.append(f"proved ({', '.join(one.devices)})", style="green")
    else:
        line.append("not proved", style="bold yellow")
    line.append(", the fastest of the timed candidates" if found.chosen_by == TIME else ", the best by placement")
    return line


def _row(one: Candidate, *, chosen: bool) -> tuple[str, ...]:
    assert one.figures is not None
    name = f"{'> ' if chosen else '  '}{one.name}"
    return (name, *_cells(one.figures), ratio_text(one.time), one.proof or "not proved")


def _cells(made: Figures) -> tuple[str, ...]:
    on_cpu = f"{made.cpu_nodes} ({made.cpu_compute} compute)" if made.cpu_nodes else "0"
    return (
        str(made.opset),
        "yes" if made.fp16 else "no",
        on_cpu,
        f"{made.partitions} and {made.alone} nodes" if made.alone else str(made.partitions),
        str(made.crossings),
        bytes_text(made.moved_bytes),
        str(made.nodes),
    )
