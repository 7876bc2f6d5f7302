"""Find outputs of one model of a folder that are inputs of another model, and compare their element types."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import permutations
from pathlib import Path

import onnx_ir as ir

from dmlprep.genai.config import GenaiConfig
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.names import matching, named
from dmlprep.record import Check, Verdict, finding
from dmlprep.record.generation import GenaiCheck, Outcome

TYPES = Check("types")
"""The check that linked outputs and inputs of models have equal types."""

_KEYS: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("encoder", "decoder"): (
        ("encoder_hidden_states", "encoder_hidden_states"),
        ("encoder_outputs", "encoder_hidden_states"),
        ("cross_present_key_names", "cross_past_key_names"),
        ("cross_present_value_names", "cross_past_value_names"),
    ),
    ("embedding", "decoder"): (("inputs_embeds", "inputs_embeds"), ("per_layer_inputs", "per_layer_inputs")),
    ("vision", "embedding"): (("image_features", "image_features"),),
    ("speech", "embedding"): (("audio_features", "audio_features"),),
}
"""Links between models: pairs of config keys, for an output and an input, by source section and target section."""

_UNWRITTEN = {"cross_present_key_names": "present_key_cross_%d", "cross_present_value_names": "present_value_cross_%d"}
"""Default names of onnxruntime-genai for keys that the config does not set (src/config.h)."""


def joints(
    config: GenaiConfig, source: str, target: str, outputs: Collection[str], inputs: Collection[str]
) -> dict[str, str]:
    """Return the outputs of one section's model that feed another section's model: output names by input name.

    Args:
        source, target: the two sections.
        outputs: names of the source model's outputs.
        inputs: names of the target model's inputs.
    """
    handed: dict[str, str] = {}
    for key, other in _KEYS.get((source, target), ()):
        output = named(config, source, "outputs", key) or _UNWRITTEN.get(key, "")
        target_name = named(config, target, "inputs", other)
        if output in outputs and target_name in inputs:
            handed.setdefault(target_name, output)
        elif "%d" in output and "%d" in target_name:
            output_layers, input_layers = matching(output, outputs), matching(target_name, inputs)
            handed |= {
                input_layers[layer]: output_layers[layer]
                for layer in sorted(output_layers.keys() & input_layers.keys())
            }
    return handed


def type_checks(original: GenaiFolder, prepared: GenaiFolder) -> list[GenaiCheck]:
    """Check that outputs and inputs that are linked between models have equal types.

    onnxruntime-genai passes tensors on unchanged. Links whose types already differ in the original do not count. A link
    of the original that the prepared models lack is a failure.

    Returns:
        a list with one check, which needs no run; empty if neither folder has links.

    Raises:
        InputError: a model cannot be read.
        ModelRefused: dmlprep cannot preserve it.
    """
    began = time.perf_counter()
    joined, before = dict(_joined(prepared)), dict(_joined(original))
    if not joined and not before:
        return []
    wrong = [
        f"{one} is {gives.name} as an output and {takes.name} as an input"
        for one, (gives, takes) in joined.items()
        if gives != takes and (one not in before or before[one][0] == before[one][1])
    ]
    lost = [f"the prepared models no longer pass on {one}" for one in before if one not in joined]
    reason = next(iter([*wrong, *lost]), "")
    remedy = "prepare the models so that both ends have one type and name (step.fp16.keep_io)"
    findings = [finding("DP704", f"{TYPES}: {reason}", remedy=remedy)] if reason else []
    seconds = time.perf_counter() - began
    outcome: Outcome = "failed" if reason else "passed"
    return [GenaiCheck(Verdict(TYPES, outcome, reason, seconds=round(seconds, 3), findings=findings))]


def _joined(folder: GenaiFolder) -> Iterator[tuple[str, tuple[ir.DataType, ir.DataType]]]:
    """Yield each link between two models: a text that names it, and the element types of the output and the input."""
    files: dict[str, Path] = {model.section: model.file for model in folder.models}
    opened: dict[Path, tuple[dict[str, ir.DataType], dict[str, ir.DataType]]] = {}
    for source, target in permutations(files, 2):
        head, mark, _ = source.partition(".pipeline.")
        staged = bool(mark) and target.startswith(f"{head}.pipeline.")
        if not staged and (source, target) not in _KEYS:
            continue
        for file in (files[source], files[target]):
            if file not in opened:
                graph = folder.open(file).ir.graph
                opened[file] = _types(graph.inputs), _types(graph.outputs)
        outputs, inputs = opened[files[source]][1], opened[files[target]][0]
        # Stages pass on tensors of the same name.
        same = {name: name for name in inputs if name in outputs}
        handed = same if staged else joints(folder.config, source, target, outputs, inputs)
        for wanted, output in handed.items():
            yield f"{output} of {source}, {wanted} of {target}", (outputs[output], inputs[wanted])


def _types(values: Collection[ir.Value]) -> dict[str, ir.DataType]:
    return {value.name: value.dtype for value in values if value.name and value.dtype is not None}
