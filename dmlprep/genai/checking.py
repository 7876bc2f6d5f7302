"""Check a folder of onnxruntime-genai offline: its config, files, tokens and models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.core.errors import DmlprepError, InputError
from dmlprep.core.files import meant
from dmlprep.directml.placement import Placement
from dmlprep.directml.placement.report import Examined, examine
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.genai.folder import GenaiFolder, ModelFile, leads_out, open_folder
from dmlprep.genai.geometry import geometry_findings
from dmlprep.genai.names import Interface, name_findings, pattern_findings
from dmlprep.genai.needs import needs_finding, needs_of, weight_bytes
from dmlprep.genai.providers import captures, dml_provider, provider_findings, search_findings, shares_buffer
from dmlprep.genai.tokens import token_findings
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import tensors
from dmlprep.record import Finding, RunRecord, finding
from dmlprep.record.generation import CheckedModelFacts, Needs
from dmlprep.record.run_record import RunFacts

_GROUPED = "com.microsoft::GroupQueryAttention"
_EXPECTED = frozenset(["DP205", "DP531"])
"""Codes of findings about free dimensions, which are dropped: each model of a genai folder has free dimensions."""


@dataclass(frozen=True)
class CheckedModel:
    """A model of the folder, by its section in the config; ``examined`` is ``None`` if the model cannot be opened.

    A finding of the folder then has the reason.
    """

    section: str
    file: Path
    examined: Examined | None


@dataclass(frozen=True)
class FolderCheck:
    """The result of checking a folder.

    Attributes:
        record: record with the findings about the folder itself.
        models: the models, each with its own record.
        needs: device memory that the folder needs; ``None`` if it is not known.
    """

    folder: GenaiFolder
    target: Target
    record: RunRecord
    models: tuple[CheckedModel, ...]
    needs: Needs | None

    @property
    def exit_code(self) -> int:
        """1 if any finding about the folder or a model is an error, otherwise 0."""
        return int(any(one.severity == "error" for record in self.records for one in record.findings))

    @property
    def records(self) -> list[RunRecord]:
        """The record of the folder, followed by those of the models that could be opened."""
        return [self.record, *(one.examined.record for one in self.models if one.examined is not None)]

    def combined(self) -> RunRecord:
        """Return one record with all findings and the placements; a finding about a model has ``file`` in its facts."""
        findings = list(self.record.findings)
        for model in self.models:
            name = model.file.relative_to(self.folder.path).as_posix()
            inner = model.examined.record.findings if model.examined is not None else []
            findings += [msgspec.structs.replace(one, facts={**one.facts, "file": name}) for one in inner]
        models = {
            model.section: CheckedModelFacts(
                model.file.name, model.examined.record.facts.placement if model.examined is not None else None
            )
            for model in self.models
        }
        facts = RunFacts(models=models, needs=self.needs)
        return msgspec.structs.replace(self.record, findings=findings, facts=facts, exit_code=self.exit_code)


def check_folder(path: Path, target: Target, *, vram: int | None = None) -> FolderCheck:
    """Check a folder of onnxruntime-genai: its config, files, tokens and models. No model runs.

    Args:
        target: the DirectML release.
        vram: memory of the device in bytes, with which the need for weights and cache is compared; ``None``: unknown.

    Raises:
        InputError: it is not a folder of onnxruntime-genai, or its config cannot be read or names too many models
            (DP840).
    """
    folder = open_folder(path)
    config = folder.config
    findings = [*config.findings, *_file_findings(folder), *token_findings(folder)]
    for section in dict.fromkeys(["decoder", *(model.section for model in folder.models)]):
        findings += [*pattern_findings(config, section), *provider_findings(config, section)]
    checked: list[CheckedModel] = []
    weights, grouped, decoder = 0, False, None
    for file in folder.models:
        one, model = _model(folder, file, target, findings)
        checked.append(one)
        if model is not None:
            weights += weight_bytes(model)
        if file.section.startswith("decoder"):
            decoder = model or decoder
            graphs = one.examined.facts.all_graphs() if one.examined is not None and one.examined.facts else ()
            grouped = grouped or any(node.key == _GROUPED for graph in graphs for node in graph.nodes)
    findings += search_findings(config, grouped=grouped)
    needs = needs_of(config, decoder, weights, vram) if decoder is not None else None
    if vram is not None and (wrong := needs_finding(needs, vram)) is not None:
        findings.append(wrong)
    record = RunRecord(command="genai check", input=str(config.path), version=__version__, target=target.name)
    record.findings = _once(findings)
    record.exit_code = int(any(one.severity == "error" for one in findings))
    return FolderCheck(folder, target, record, tuple(checked), needs)


def _once(findings: list[Finding]) -> list[Finding]:
    """Return the findings without repetitions, which occur if several sections name one file."""
    by_text: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        by_text.setdefault((one.code, one.node, one.message), one)
    return list(by_text.values())


def _file_findings(folder: GenaiFolder) -> Iterator[Finding]:
    """Yield findings on files that the config names: missing ones, and names or links that lead out of the folder."""
    for place, name in folder.outside:
        text = f'{place} "{name[:60]}" is outside the folder or contains ".."'
        yield finding("DP845", text, node=place)
    if not folder.models and not folder.outside:
        text = "the config names no model: model.decoder.filename is missing"
        yield finding("DP846", text, node="model.decoder", remedy="write the name of the model's file")
    root = folder.path.resolve()
    for section, file in folder.models:
        place = f"model.{section}.filename"
        if not os.path.exists(file):  # also False where a file cannot have such a name
            text, remedy = f"{place} names {file.name}, which does not exist", meant(file, "copy it into the folder")
            yield finding("DP846", text, node=place, remedy=remedy)
        elif not file.resolve().is_relative_to(root):
            yield finding("DP845", f"{place} names {file.name}, a link to a file outside the folder", node=place)
    for section, defaults in (("vision", "processor_config.json"), ("speech", "audio_processor_config.json")):
        table = folder.config.section(section)
        for key, default in (("config_filename", defaults), ("adapter_filename", "")) if table else ():
            name = table.get(key, default)
            if not isinstance(name, str) or not name:
                continue
            place = f"model.{section}.{key}"
            if leads_out(name):
                yield finding("DP845", f'{place} "{name[:60]}" is outside the folder or contains ".."', node=place)
            elif not os.path.isfile(folder.path / name):
                yield finding("DP846", f"{place} names {name[:60]}, which does not exist", node=place)


def _model(
    folder: GenaiFolder, file: ModelFile, target: Target, findings: list[Finding]
) -> tuple[CheckedModel, Model | None]:
    """Open and examine one model, and compare it with the config; add findings about both to ``findings``.

    The model is ``None``, and its ``examined`` too, if it cannot be opened.
    """
    name = file.file.name
    if not (os.path.exists(file.file) and file.file.resolve().is_relative_to(folder.path.resolve())):
        return CheckedModel(*file, None), None
    try:
        model = Model.open(file.file)
        examined = examine(model, target)
    except DmlprepError as error:
        code, place = "DP846" if isinstance(error, InputError) else "DP867", f"model.{file.section}.filename"
        findings.append(finding(code, f"{name}: {error.what}", node=place, remedy=error.fix or None))
        return CheckedModel(*file, None), None
    config = folder.config
    findings += name_findings(config, file.section, name, _interface(model.ir))
    if examined.facts is not None:
        findings += geometry_findings(config, file.section, name, examined.facts)
    on_dml = dml_provider(config, file.section) is not None
    captured = on_dml and captures(config, file.section)
    if captured and examined.facts is not None and examined.placement is not None:
        findings += capture_findings(name, examined.placement, examined.facts)
    if on_dml:
        findings += _type_findings(name, model.ir)
    examined.record.command = "genai check"
    examined.record.findings = [
        _in_folder(one, file.section.startswith("decoder") and shares_buffer(config), captured)
        for one in examined.record.findings
        if one.code not in _EXPECTED
    ]
    return CheckedModel(*file, examined), model


def _in_folder(one: Finding, shared: bool, captured: bool) -> Finding:
    """Return a finding on a model, changed if the config of the folder makes it worse or harmless.

    Args:
        shared: True if past and present keys and values share a buffer.
        captured: True if the model's graph is captured.
    """
    if one.code == "DP659" and one.severity == "warning":
        if captured:
            return msgspec.structs.replace(one, severity="error", message=f"{one.message}: graph capture is on here")
        return msgspec.structs.replace(one, severity="note", message=f"{one.message}: graph capture is off here")
    if one.code == "DP649" and shared and one.severity != "error":
        text = (
            "correct here for one token after the cache (past_present_share_buffer is on), but wrong for several: "
            "use a new Generator for each chat turn"
        )
        return msgspec.structs.replace(one, severity="note", message=text, remedy="")
    return one


def _interface(model: ir.Model) -> Interface:
    fed = (value.name for value in model.graph.inputs if value.name not in model.graph.initializers)
    return Interface(tuple(filter(None, fed)), tuple(value.name for value in model.graph.outputs if value.name))


def _type_findings(file: str, model: ir.Model) -> Iterator[Finding]:
    """Yield a finding if the model has weights in BF16, which no kernel of DirectML accepts."""
    names = [tensor.name or "" for tensor in tensors(model) if tensor.dtype is ir.DataType.BFLOAT16]
    if names:
        text = f"{file} has {len(names)} weights in BF16, which DirectML does not support, first {names[0]}"
        yield finding("DP864", text, node=names[0], remedy="export the model in FP16", file=file)


def capture_findings(file: str, placement: Placement, graph: GraphFacts) -> Iterator[Finding]:
    """Yield findings on why ONNX Runtime refuses a session with graph capture (``InferenceSession::Initialize``).

    The main graph must not have a node with a subgraph. Nodes may run on the CPU, as shape arithmetic does, if that
    needs no copy of a tensor between the devices. ``file`` is the model's file name, for messages.
    """
    control = [node for node in graph.nodes if node.subgraphs]
    how = 'or write "enable_graph_capture": "0" into the options of dml'
    if control:
        text = f"graph capture is on, and {file} has control flow: {control[0].path} ({control[0].op})"
        yield finding("DP861", text, node=control[0].path, remedy=f"export the model without it, {how}", file=file)
    if not placement.crossings:
        return
    away = [node for node in placement.nodes if node.provider != "DmlExecutionProvider"]
    compute = [node for node in away if node.role == "compute"] or away
    crossing = placement.crossings[0]
    first = compute[0] if compute else None
    what = f"{first.name} ({first.op}): {first.reason}" if first is not None else crossing.value
    count = "1 node leaves" if len(compute) == 1 else f"{len(compute)} nodes leave"
    text = f"graph capture is on, and {count} DirectML in {file} with copies between the devices, first {what}"
    node = first.name if first is not None else crossing.consumer
    yield finding("DP861", text, node=node, remedy=f"dmlprep prepare the model, {how}", file=file)
