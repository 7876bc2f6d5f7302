"""Compare the names of the models' inputs and outputs with those in the config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from dmlprep.genai.config import GenaiConfig, section_place
from dmlprep.genai.schema import printed, schema
from dmlprep.portable.printable import shortened
from dmlprep.record import Finding, finding
from dmlprep.record.findings import Severity

_MOST_LAYERS = 4096
_MOST_KEYS = 256
"""Largest number of keys of a section's inputs or outputs to check: genai knows less than 50, and refuses others."""

_MOST_FOUND = 200
"""Largest number of findings on one model's names."""

_COMPARED = 500
"""Largest number of names to compare with, and of letters of each, to guess the intended name."""

PATTERNS: Mapping[str, str] = {
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}
"""Default names of the cache's inputs and outputs, if the config has none (Config::Defaults in src/config.h)."""

_OTHER_NAMES: Mapping[str, str] = {"inputs.attention_mask vision": "image_attention_mask"}
_PRESENT = {"past_key_names": "present_key_names", "past_value_names": "present_value_names"}


@dataclass(frozen=True)
class Interface:
    """Names of a model's inputs and outputs; initializers that are inputs as well are left out."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Layers:
    """The inputs of a decoder for past keys (``keys``) and past values (``values``), by the number of the layer."""

    keys: Mapping[int, str]
    values: Mapping[int, str]


def named(config: GenaiConfig, section: str, side: str, key: str) -> str:
    """Return the name that a section of the config gives to an input or output, or onnxruntime-genai's default.

    Args:
        side: ``inputs`` or ``outputs``.
        key: the key in the config (``past_key_names``); its value may contain ``%d`` for the number of a layer.

    Returns:
        the name; empty if the config has an empty one, or a key that ends in ``_names`` is not set and has no default.
    """
    written = config.side(section, side).get(key)
    if isinstance(written, str):
        return written
    return _OTHER_NAMES.get(f"{side}.{key} {section}") or PATTERNS.get(key) or ("" if key.endswith("_names") else key)


def layers_of(config: GenaiConfig, section: str, inputs: Iterable[str]) -> Layers:
    """Return the inputs for the cache of each layer, among the names ``inputs``, by the config's patterns."""
    inputs = list(inputs)
    return Layers(*(matching(named(config, section, "inputs", key), inputs) for key in _PRESENT))


def matching(pattern: str, names: Iterable[str]) -> dict[int, str]:
    """Return the names that match a pattern with one ``%d``, by the number in each; empty for other patterns."""
    before, mark, after = pattern.partition("%d")
    if not mark:
        return {}
    by_number = {}
    for name in names:
        number = name[len(before) : len(name) - len(after)] if name.startswith(before) and name.endswith(after) else ""
        if re.fullmatch(r"\d{1,6}", number, re.ASCII) and len(name) > len(before) + len(after):
            by_number[int(number)] = name
    return by_number


def pattern_findings(config: GenaiConfig, section: str) -> Iterator[Finding]:
    """Yield findings on names of layer tensors in the config that do not have exactly one ``%d`` for the layer."""
    for side in ("inputs", "outputs"):
        for key, name in config.side(section, side).items():
            if not key.endswith("_names") or not isinstance(name, str) or name == "":
                continue
            if name.count("%d") != 1 or name.count("%") != 1:
                place = f"{section_place(section)}.{side}.{key}"
                has = "has no %d" if "%" not in name else "has more than one %, or another than %d"
                text = f'{place} "{printed(name)}" {has}: it needs one %d for the layer number'
                remedy = f'write a name such as "{PATTERNS.get(key, "name.%d")}"'
                yield finding("DP849", text, node=place, remedy=remedy)


def name_findings(config: GenaiConfig, section: str, file: str, model: Interface) -> Iterator[Finding]:
    """Yield findings on a model's inputs that get no value, and on names in the config that the model does not have.

    Names of optional inputs that the model lacks are accepted. There are at most 200 findings, and one that says that
    there are more. ``file`` is the model's file name, for messages.
    """
    for count, one in enumerate(_name_findings(config, section, file, model)):
        if count == _MOST_FOUND:
            text = f"more than {_MOST_FOUND} names of {file} do not fit the config: is it the right model?"
            yield finding("DP848", text, node=section_place(section), file=file)
            return
        yield one


def _name_findings(config: GenaiConfig, section: str, file: str, model: Interface) -> Iterator[Finding]:
    if ".pipeline." in section:
        yield from _stage(config, section, file, model)
        return
    place = section_place(section)
    claimed = _claimed(config, section, "inputs", model.inputs)
    free = [name for name in model.inputs if name not in claimed]
    cached = section == "decoder" and layers_of(config, section, model.inputs).keys
    severity: Severity = "error" if cached else "warning"
    for name in free:
        text = f'input "{printed(name)}" of {file} is not in {place}.inputs, so it gets no value'
        near = _near(name, _names(config, section, "inputs"))
        remedy = near and f"the config has {near!r}"
        yield finding("DP848", text, node=name, severity=severity, remedy=remedy, file=file)
    yield from _missing(config, section, file, model, free)


def _claimed(config: GenaiConfig, section: str, side: str, names: Sequence[str]) -> set[str]:
    """Return those of a model's ``names`` to which a name in the section refers, directly or by a pattern."""
    claimed = set()
    for key in _keys(config, section, side):
        name = named(config, section, side, key)
        claimed |= {name} if name in names else set(matching(name, names).values())
    return claimed


def _keys(config: GenaiConfig, section: str, side: str) -> list[str]:
    known = schema().objects.get(f"{section}.{side}", {})
    return [*dict.fromkeys([*known, *islice(config.side(section, side), _MOST_KEYS)])]


def _names(config: GenaiConfig, section: str, side: str) -> list[str]:
    return [name for key in _keys(config, section, side) if (name := named(config, section, side, key))]


def _missing(config: GenaiConfig, section: str, file: str, model: Interface, free: Sequence[str]) -> Iterator[Finding]:
    """Yield findings on inputs and outputs that a section needs, or names, and the model does not have.

    ``free``: the model's inputs to which no name in the section refers.
    """
    place = section_place(section)
    for side, names in (("inputs", model.inputs), ("outputs", model.outputs)):
        written = config.side(section, side)
        needed = _needed(config, section, side, model)
        for key in dict.fromkeys([*needed, *islice(written, _MOST_KEYS)]):
            name = named(config, section, side, key)
            if not isinstance(written.get(key, ""), str) or not name or name.count("%") not in (0, 1):
                continue
            if name in names or ("%d" in name and matching(name, names)):
                continue
            near = _near(name, free if side == "inputs" else names)
            # Optional inputs that the model does not have are left out by onnxruntime-genai.
            if key not in needed and not (near and key in written):
                continue
            verb = "names" if key in written else "means by default"
            text = f'{file} has no {side[:-1]} "{printed(name)}", which {place}.{side}.{key} {verb}'
            grave: Severity = "error" if key in needed else "warning"
            remedy = f'did you mean "{printed(near)}"?' if near else f"{side} of the model: {_listed(names)}"
            if key == "logits" and "hidden_states" in names:
                remedy = "build the model without exclude_lm_head, which removes the logits"
            yield finding("DP848", text, node=f"{place}.{side}.{key}", severity=grave, remedy=remedy, file=file)
    yield from _unpaired(config, section, file, model)


def _needed(config: GenaiConfig, section: str, side: str, model: Interface) -> tuple[str, ...]:
    """Return the keys of inputs or outputs (``side``) that onnxruntime-genai needs to run a section."""
    if section == "decoder":
        if side == "outputs":
            return ("logits",)
        first = () if named(config, section, "inputs", "inputs_embeds") in model.inputs else ("input_ids",)
        written = config.side(section, side)
        return (*first, *_PRESENT) if any(key in written for key in _PRESENT) else first
    ends = {"vision": "image_features", "speech": "audio_features", "embedding": "inputs_embeds"}
    return (ends[section],) if side == "outputs" and section in ends else ()


def _unpaired(config: GenaiConfig, section: str, file: str, model: Interface) -> Iterator[Finding]:
    """Yield findings on layers of a decoder that lack outputs for present keys or values, or have only one of both."""
    if section != "decoder":
        return
    layers = layers_of(config, section, model.inputs)
    for past, pasts in (("past_key_names", layers.keys), ("past_value_names", layers.values)):
        pattern = named(config, section, "outputs", _PRESENT[past])
        if pattern.count("%d") != 1:
            continue
        outputs = set(model.outputs)
        lacking = [number for number in sorted(pasts) if pattern.replace("%d", str(number)) not in outputs]
        if lacking:
            name = pattern.replace("%d", str(lacking[0]))
            text = f'{file} has no output "{printed(name)}" for its input "{printed(pasts[lacking[0]])}"'
            near = _near(name, model.outputs)
            remedy = f'did you mean "{printed(near)}"?' if near else None
            yield finding("DP848", text, node=name, remedy=remedy, file=file, layers=lacking[:_MOST_LAYERS])
    for number in sorted(layers.keys.keys() ^ layers.values.keys())[:1]:
        text = f"layer {number} of {file} has past keys without past values, or values without keys"
        yield finding("DP848", text, node=f"{section_place(section)}.inputs", file=file)


def _stage(config: GenaiConfig, section: str, file: str, model: Interface) -> Iterator[Finding]:
    table: Mapping[str, object] = config.section(section)
    place = section_place(section)
    for side, names in (("inputs", model.inputs), ("outputs", model.outputs)):
        listed = table.get(side)
        listed_names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
        has, lists = set(names), set(listed_names)
        for name in listed_names:
            if name not in has:
                near = _near(name, names)
                remedy = f'did you mean "{printed(near)}"?' if near else f"{side} of the model: {_listed(names)}"
                text = f'{file} has no {side[:-1]} "{printed(name)}", which {place}.{side} lists'
                yield finding("DP848", text, node=f"{place}.{side}", remedy=remedy, file=file)
        for name in names if side == "inputs" else ():
            if name not in lists:
                text = f'input "{printed(name)}" of {file} is not in {place}.inputs, so it gets no value'
                yield finding("DP848", text, node=name, remedy=f"add the name to {place}.inputs", file=file)


def _near(name: str, names: Sequence[str]) -> str:
    """Return the one of ``names`` that is most similar to ``name``, apart from numbers; empty if none is similar.

    If ``name`` has ``%d``, the result has it too, instead of the first number.
    """
    plain: dict[str, str] = {}
    for one in names[: 4 * _COMPARED]:
        plain.setdefault(re.sub(r"\d+|%d", "#", one[:_COMPARED]), one)
    close = get_close_matches(re.sub(r"\d+|%d", "#", name[:_COMPARED]), list(plain)[:_COMPARED], 1, 0.6)
    nearest = plain[close[0]] if close else ""
    return re.sub(r"\d+", "%d", nearest, count=1) if "%d" in name and nearest else nearest


def _listed(names: Sequence[str]) -> str:
    plain = list(dict.fromkeys(re.sub(r"\d+", "%d", name) for name in names[:_COMPARED]))
    return shortened(", ".join(printed(name) for name in plain), 200) or "none"
