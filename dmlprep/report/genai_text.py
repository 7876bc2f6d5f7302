"""Show the result of ``genai check`` as text and as JSON, and the proof of a language model as text."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.text import Text

from dmlprep.core.text.documents import to_json
from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.genai.checking import CheckedModel, FolderCheck
from dmlprep.portable.printable import printable, shortened
from dmlprep.portable.shares import percent
from dmlprep.record.generation import GenaiCheck, GenaiProof, GreedyText, LogitFigures, Needs
from dmlprep.record.run_record import target_text
from dmlprep.report import placement_json
from dmlprep.report.grouping import finding_lines
from dmlprep.report.text import show_findings, show_verdicts

FORMAT = 1
"""Version of the form of this JSON."""


def lines(check: FolderCheck) -> list[str]:
    """Return the result of ``genai check`` as lines of text: models, memory and findings; notes are only counted."""
    config = check.folder.config
    kind = printable(config.type)[:60] or "of no type"
    target = target_text(check.target.name, check.record.target_reason)
    texts = [f"{printable(str(check.folder.path))}: {kind}, target {target}"]
    texts += [_model(model) for model in check.models]
    texts += _needs(check.needs)
    findings = [one for record in check.records for one in record.findings]
    shown = [one for one in findings if one.severity != "note"]
    notes = len(findings) - len(shown)
    texts += ["", *(finding_lines(shown) or ["no problems"])]
    return [*texts, f"{count_text(notes, 'note')}; --format json has them"] if notes else texts


def _model(model: CheckedModel) -> str:
    name = f"  {printable(model.section)}: {printable(model.file.name)}"
    if model.examined is None:
        return f"{name}, unchecked"
    record, placement = model.examined.record, model.examined.placement
    text = f"{name}, opset {record.opset_before.get('', record.opset_before.get('ai.onnx', 0))}"
    if placement is not None:
        share = percent(placement.node_share)
        text += f", {placement.dml_nodes} of {len(placement.nodes)} nodes on DirectML ({share})"
        away = len(placement.compute_on_cpu)
        text += f", {count_text(away, 'compute node')} on the CPU" if away else ""
    return text


def _needs(needs: Needs | None) -> list[str]:
    if needs is None:
        return []
    cache = f"cache {bytes_text(needs.cache)} at max_length {needs.max_length} and batch {needs.batch}"
    texts = [
        f"memory of the device: weights {bytes_text(needs.weights)}, {cache}, together {bytes_text(needs.total)}",
        f"plus logits of a prompt: {bytes_text(needs.logits_token)} for each of its tokens",
    ]
    if needs.longest_fit is not None and needs.batch_fit is not None:
        texts.append(f"  that fit: max_length {needs.longest_fit} at batch {needs.batch}; batch {needs.batch_fit}")
    return texts


def brief_line(check: FolderCheck) -> str:
    """Return the result of ``genai check`` as one line: ``folder: 2 errors, 1 warning``."""
    every = [one.severity for record in check.records for one in record.findings]
    parts = [count_text(count, name) for name in ("error", "warning") if (count := every.count(name))]
    return f"{printable(str(check.folder.path))}: {', '.join(parts) or 'no problems'}"


def render_json(check: FolderCheck) -> bytes:
    """Return the result of ``genai check`` as indented JSON in UTF-8 (docs/language-models.md)."""
    models = []
    for one in check.models:
        placed = None
        if one.examined is not None:
            placed = placement_json.to_object(one.examined.record, one.examined.placement)
        models.append({"section": one.section, "file": one.file.name, "check": placed})
    whole = {
        "format": FORMAT,
        "dmlprep": check.record.version,
        "folder": str(check.folder.path),
        "type": check.folder.config.type,
        "target": check.target.name,
        "target_reason": check.record.target_reason,
        "exit_code": check.exit_code,
        "findings": [msgspec.to_builtins(one) for one in check.record.findings],
        "needs": msgspec.to_builtins(check.needs),
        "models": models,
    }
    return to_json(whole)


def show_proof(proof: GenaiProof, console: Console, *, brief: bool = False) -> None:
    """Print each check of the proof with its figures, the findings, and the outcome.

    ``brief``: only the verdicts and the outcome.
    """
    for check in proof.checks:
        show_verdicts([check.verdict], console, brief=brief)
        if not brief:
            for line in figure_lines(check):
                console.print(Text(f"  {line}"))
    if not brief:
        show_findings([one for verdict in proof.verdicts for one in verdict.findings], console)
    headline = Text(f"{proof.prepared} on {proof.device}: ")
    headline.append(proof.outcome, style="bold")
    console.print(headline)


def figure_lines(check: GenaiCheck) -> Iterator[str]:
    """Yield the figures of a check as lines of text: logits, cache, perplexity and generated tokens, if known."""
    if check.logits is not None:
        yield from _logits(check.logits)
    if check.cache is not None:
        yield f"the same tokens in one call: logits differ by {check.cache:.2g} at most"
    if (of := check.perplexity) is not None:
        both = f"original {of.original:.6g}, prepared {of.prepared:.6g}"
        yield f"perplexity over {of.tokens} tokens: {both}, ratio {of.ratio:.5g}"
    if check.greedy is not None:
        yield from _greedy(check.greedy)


def _logits(figures: LogitFigures) -> Iterator[str]:
    yield (
        f"{figures.positions} positions: KL {figures.kl:.3g} nats (worst {figures.worst_kl:.3g}, "
        f"of {figures.information:.3g}), top-1 {percent(figures.top1, 1)}, top-5 {percent(figures.top5, 1)}"
    )
    yield (
        f"logits differ by {figures.max_difference:.3g} at most, {figures.mean_difference:.3g} in the mean; the first "
        f"token leads by {figures.margin:.3g}, beyond the noise at {figures.decided} positions"
    )


def _greedy(result: GreedyText) -> Iterator[str]:
    yield f"{result.equal} of {len(result.original)} tokens are equal"
    for name, text in (("original", result.original_text), ("prepared", result.prepared_text)):
        if text:
            yield f"{name}: {shortened(printable(text), 200)}"
