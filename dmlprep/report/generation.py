"""The proof of a language model, as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from dmlprep.portable.printable import printable, shortened
from dmlprep.portable.shares import percent
from dmlprep.record.generation import GenaiCheck, GenaiProof, GreedyText, LogitFigures
from dmlprep.report.text import show_findings, show_verdicts


def show_proof(proof: GenaiProof, console: Console, *, brief: bool = False) -> None:
    """Print each check with its figures, then the findings; ``brief``: verdicts alone."""
    for check in proof.checks:
        show_verdicts([check.verdict], console, brief=brief)
        if not brief:
            for line in figure_lines(check):
                console.print(Text(f"  {line}"))
    if not brief:
        show_findings([found for verdict in proof.verdicts for found in verdict.findings], console)
    said = Text(f"{proof.prepared} on {proof.device}: ")
    said.append(proof.outcome, style="bold")
    console.print(said)


def figure_lines(check: GenaiCheck) -> Iterator[str]:
    """The figures of a check, a line for each kind."""
    if check.logits is not None:
        yield from _logits(check.logits)
    if check.cache is not None:
        yield f"the same tokens at once: logits differ by {check.cache:.2g} at most"
    if check.perplexity is not None:
        found = check.perplexity
        yield (
            f"perplexity over {found.tokens} tokens: original {found.original:.6g}, prepared {found.prepared:.6g}, "
            f"ratio {found.ratio:.5g}"
        )
    if check.greedy is not None:
        yield from _greedy(check.greedy)


def _logits(found: LogitFigures) -> Iterator[str]:
    yield (
        f"{found.positions} positions: KL {found.kl:.3g} nats (worst {found.worst_kl:.3g}, of {found.information:.3g})"
        f", top-1 {percent(found.top1, 1)}, top-5 {percent(found.top5, 1)}"
    )
    yield (
        f"logits differ by {found.max_difference:.3g} at most, {found.mean_difference:.3g} in the mean; the first "
        f"token leads by {found.margin:.3g}, beyond the noise at {found.decided} positions"
    )


def _greedy(found: GreedyText) -> Iterator[str]:
    yield f"{found.equal} of {len(found.original)} tokens are equal"
    for name, text in (("original", found.original_text), ("prepared", found.prepared_text)):
        if text:
            yield f"{name}: {shortened(printable(text), 200)}"
