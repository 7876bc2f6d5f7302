"""``genai check`` as text and as JSON: what is wrong with a folder, where its models run, and what they need."""

from __future__ import annotations

import msgspec

from dmlprep.core.text.documents import to_json
from dmlprep.core.text.sizes import bytes_text
from dmlprep.genai.checking import CheckedModel, FolderCheck
from dmlprep.portable.printable import printable
from dmlprep.portable.shares import percent
from dmlprep.record.language_models import Needs
from dmlprep.report import placement_json
from dmlprep.report.grouping import finding_lines

FORMAT = 1
"""Version of the JSON form."""


def lines(check: FolderCheck) -> list[str]:
    """What ``genai check`` prints."""
    config = check.folder.config
    kind = printable(config.type)[:60] or "of no type"
    found = [f"{printable(str(check.folder.path))}: {kind}, target {check.target.name}"]
    for model in check.models:
        found += _model(model)
    found += _needs(check.needs)
    shown = [one for record in check.records for one in record.findings if one.severity != "note"]
    notes = sum(one.severity == "note" for record in check.records for one in record.findings)
    found += ["", *finding_lines(shown)] if shown else ["", "nothing is wrong"]
    found += [f"{notes} {'note' if notes == 1 else 'notes'}; --format json has them"] if notes else []
    return found


def _model(model: CheckedModel) -> list[str]:
    name = f"{printable(model.section)}: {printable(model.file.name)}"
    if model.examined is None:
        return [f"  {name}, not checked"]
    record, placement = model.examined.record, model.examined.placement
    opset = record.opset_before.get("", record.opset_before.get("ai.onnx", 0))
    where = ""
    if placement is not None:
        share = percent(placement.node_share)
        where = f", {placement.dml_nodes} of {len(placement.nodes)} nodes on DirectML ({share})"
        away = len(placement.compute_on_cpu)
        where += f", {away} compute {'node' if away == 1 else 'nodes'} on the CPU" if away else ""
    return [f"  {name}, opset {opset}{where}"]


def _needs(needs: Needs | None) -> list[str]:
    if needs is None:
        return []
    one = (
        f"memory of the device: weights {bytes_text(needs.weights)}, cache {bytes_text(needs.cache)} at "
        f"max_length {needs.max_length} and batch {needs.batch}, together {bytes_text(needs.total)}"
    )
    found = [one, f"  besides, logits of a prompt: {bytes_text(needs.logits_token)} for each of its tokens"]
    if needs.longest_fit is not None and needs.batch_fit is not None:
        found.append(f"  that fit: max_length {needs.longest_fit} at batch {needs.batch}; batch {needs.batch_fit}")
    return found


def brief_line(check: FolderCheck) -> str:
    """``folder: 2 errors, 1 warning``."""
    every = [one.severity for record in check.records for one in record.findings]
    parts = [
        f"{count} {name}{'' if count == 1 else 's'}" for name in ("error", "warning") if (count := every.count(name))
    ]
    return f"{printable(str(check.folder.path))}: {', '.join(parts) or 'nothing is wrong'}"


def render_json(check: FolderCheck) -> bytes:
    """The folder as indented JSON, UTF-8 (docs/language-models.md)."""
    models: list[dict[str, object]] = [
        {
            "section": one.section,
            "file": one.file.name,
            "check": placement_json.to_object(one.examined.record, one.examined.placement)
            if one.examined is not None
            else None,
        }
        for one in check.models
    ]
    whole = {
        "format": FORMAT,
        "dmlprep": check.record.version,
        "folder": str(check.folder.path),
        "type": check.folder.config.type,
        "target": check.target.name,
        "exit_code": check.exit_code,
        "findings": [msgspec.to_builtins(one) for one in check.record.findings],
        "needs": msgspec.to_builtins(check.needs),
        "models": models,
    }
    return to_json(whole)
