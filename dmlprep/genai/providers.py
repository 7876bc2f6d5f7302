"""Compare execution providers and session options of the config with what DirectML accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from dmlprep.genai.config import GenaiConfig, Provider, section_place
from dmlprep.genai.schema import printed
from dmlprep.portable.device import VENDOR_NAMES
from dmlprep.record import Finding, finding

PROVIDER_PAGE = "onnxruntime.ai/docs/execution-providers/DirectML-ExecutionProvider.html"

_READ = ("luid", "device_index", "enable_graph_capture")
"""Options of the provider ``dml`` that onnxruntime-genai reads (src/dml/session_options.cpp)."""

_OPTIONS = {
    "luid": (r"-?\d{1,10}:-?\d{1,10}", "HIGH:LOW, two whole numbers"),
    "device_index": (r"\d{1,9}", "a whole number"),
    "enable_graph_capture": ("0|1", '"0" or "1"'),
    "device_id": (r"\d{1,9}", "a whole number"),
    "performance_preference": (
        "default|high_performance|minimum_power",
        "default, high_performance or minimum_power",
    ),
    "disable_metacommands": ("true|false|True|False|0|1", "true or false"),
}
"""Options of ONNX Runtime's DirectML provider: pattern of valid values, and the same in words.

onnxruntime-genai ignores some of them.
"""

_SHOWN = 60
_BOUNDED = (
    ("DP853", "search.max_length", "model.context_length"),
    ("DP860", "search.min_length", "search.max_length"),
    ("DP860", "search.top_k", "model.vocab_size"),
)
"""Limits to check: code of the finding, place of a number in the config, and place of its maximum."""


def dml_provider(config: GenaiConfig, section: str) -> Provider | None:
    """Return the DirectML provider in the session options of a section; ``None`` if there is none.

    If the section has no session options, not even an empty object, those of the decoder count.
    """
    section = "decoder" if config.session_options(section) is None else section
    return next((one for one in config.providers(section) if one.is_dml), None)


def captures(config: GenaiConfig, section: str) -> bool:
    """Return True if onnxruntime-genai captures the graph of a section's model.

    This is so for the decoder on DirectML, unless the config turns it off.
    """
    provider = dml_provider(config, section)
    return section == "decoder" and provider is not None and provider.options.get("enable_graph_capture") != "0"


def provider_findings(config: GenaiConfig, section: str) -> Iterator[Finding]:
    """Yield findings on the providers and session options of a section."""
    providers = config.providers(section)
    place = f"{section_place(section)}.session_options"
    if section == "decoder" and not providers and ".pipeline." not in section:
        text = f"{place} names no provider: models that use it run on the CPU"
        yield finding("DP866", text, node=place)
    dml = [one for one in providers if one.is_dml]
    others = [one for one in providers if not one.is_dml and one.name != "device_filtering_options"]
    if dml and others:
        text = f"{place}.provider_options requests both {dml[0].name} and {printed(others[0].name)}"
        yield finding("DP858", text, node=place, remedy="keep one provider")
    elif others:
        text = f"{place}.provider_options requests {printed(others[0].name)}, not dml"
        yield finding("DP866", text, node=place)
    if len(dml) > 1:
        text = f"{place}.provider_options has dml {len(dml)} times: onnxruntime-genai merges their options"
        yield finding("DP858", text, node=place, severity="warning", remedy="keep one")
    for one in dml:
        yield from _options(one)
        if one.device_filter is not None:
            yield from _filter(one, one.device_filter)
    if dml:
        yield from _session(place, config.session_options(section) or {})


def _options(provider: Provider) -> Iterator[Finding]:
    for key, value in provider.options.items():
        place = f"{provider.place}.{printed(key)}"
        if not isinstance(value, str):
            continue  # the schema reports it
        pattern, meant = _OPTIONS.get(key, ("", ""))
        if not pattern:
            near = get_close_matches(key[:_SHOWN], _OPTIONS, 1, 0.7)
            remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_READ)}"
            yield finding("DP855", f"{place} is not an option of DirectML: it has no effect", node=place, remedy=remedy)
        elif not re.fullmatch(pattern, value):
            text = f'{place} is "{printed(value)}", and should be {meant}'
            yield finding("DP855", text, node=place, severity="error", remedy=f"write {meant}")
        elif key not in _READ:
            text = f"{place} has no effect: onnxruntime-genai reads {', '.join(_READ)} of dml"
            remedy = "name the adapter with device_index or luid" if key == "device_id" else "remove it"
            yield finding("DP855", text, node=place, remedy=remedy)


def _filter(provider: Provider, options: Mapping[str, object]) -> Iterator[Finding]:
    place = f"{provider.place}.device_filtering_options"
    vendor = options.get("hardware_vendor_id")
    if isinstance(vendor, int | float) and not isinstance(vendor, bool) and vendor not in VENDOR_NAMES:
        near = min(VENDOR_NAMES, key=lambda known: abs(known - vendor))
        close = abs(near - vendor) <= 16
        text = f"{place}.hardware_vendor_id {vendor:.10g} is not a known vendor"
        known = ", ".join(f"{number} {name}" for number, name in VENDOR_NAMES.items())
        remedy = f"{near} is {VENDOR_NAMES[near]}: did you mean that?" if close else f"known: {known}"
        yield finding("DP856", text, node=place, severity="error" if close else "warning", remedy=remedy)
    kind = options.get("hardware_device_type")
    if isinstance(kind, str) and kind.lower() == "cpu":
        text = f"{place}.hardware_device_type is cpu, but DirectML devices are GPUs or NPUs"
        yield finding("DP856", text, node=place, severity="error", remedy='write "gpu" or "npu"')
    if options:
        text = f"{place} has no effect on dml: onnxruntime-genai filters the devices of plug-in providers only"
        remedy = "name the adapter with device_index or luid"
        yield finding("DP856", text, node=place, severity="warning", remedy=remedy)


def _session(place: str, options: Mapping[str, object]) -> Iterator[Finding]:
    if options.get("enable_mem_pattern") is True:
        where = f"{place}.enable_mem_pattern"
        text = f"{where} is true, which DirectML does not support ({PROVIDER_PAGE})"
        yield finding("DP857", text, node=where, remedy="write false; the example on onnxruntime-genai's page is wrong")
    mode = options.get("execution_mode")
    if mode is not None:
        where = f"{place}.execution_mode"
        if "parallel" in str(mode)[:_SHOWN].lower() or mode == "1":
            text = f"{where} sets parallel execution, which DirectML does not support ({PROVIDER_PAGE})"
            yield finding("DP857", text, node=where, severity="error")
        else:
            text = f"{where} has no effect: onnxruntime-genai always runs nodes one after the other"
            yield finding("DP857", text, node=where, severity="warning")


def shares_buffer(config: GenaiConfig) -> bool:
    """Return True if past and present keys and values share a buffer: the config sets this, and has only one beam."""
    return config.flag("search.past_present_share_buffer") is True and (config.number("search.num_beams") or 1) == 1


def cache_faults(config: GenaiConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the options with which DirectML's GroupQueryAttention would read a wrong cache (DP649).

    Each is a tuple: place in the config, text about the fault, and remedy.
    """
    why = "DirectML's GroupQueryAttention is wrong for several tokens after a cache (DP649)"
    if (beams := config.number("search.num_beams") or 1) > 1:
        what = f"is {beams}: several beams cannot share memory for past and present keys, and DirectML's"
        yield "search.num_beams", f"{what} GroupQueryAttention reads no other cache (DP649)", "write 1"
    chunk, sliding = config.value("search.chunk_size"), "model.decoder.sliding_window"
    if isinstance(chunk, int | float) and not isinstance(chunk, bool) and chunk > 0:
        yield "search.chunk_size", f"is {chunk:.10g}: the prompt would come in parts, and {why}", "remove it"
    if isinstance(config.value(sliding), Mapping) and config.flag(f"{sliding}.slide_inputs") is not False:
        fix = 'write "slide_inputs": false and "slide_key_value_cache": false: the prompt then comes as a whole'
        yield f"{sliding}.slide_inputs", f"is true, its default: the prompt would come in parts, and {why}", fix
    drafts = f"drafts tokens, which the decoder checks together, and {why}"
    if config.text("model.draft.filename"):
        yield "model.draft", drafts, "remove it"
    if (config.number("speculative.ngram_size") or 0) > 1:
        yield "speculative.ngram_size", drafts, "write 0"


def search_findings(config: GenaiConfig, *, grouped: bool) -> Iterator[Finding]:
    """Yield findings on values of ``search`` in the config that contradict other numbers, or the cache on DirectML.

    ``grouped``: True if the decoder has GroupQueryAttention.
    """
    for code, place, bound in _BOUNDED:
        number, most = config.number(place), config.number(bound)
        if number is not None and most is not None and number > most and (most or code == "DP853"):
            text = f"{place} is {number}, beyond {bound} {most}"
            yield finding(code, text, node=place, remedy=f"write at most {most}")
    beams = config.number("search.num_beams") or 1
    returned = config.number("search.num_return_sequences") or 1
    if returned > beams:
        text = f"search.num_return_sequences is {returned}, but num_beams is {beams}"
        place, remedy = "search.num_return_sequences", f"write at most {beams}"
        yield finding("DP860", text, node=place, severity="warning", remedy=remedy)
    if dml_provider(config, "decoder") is not None:
        yield from _on_dml(config, beams, grouped)


def _on_dml(config: GenaiConfig, beams: int, grouped: bool) -> Iterator[Finding]:
    shared = config.flag("search.past_present_share_buffer") is True
    why = "GroupQueryAttention on DirectML reads the cache only if past and present share memory (DP649)"
    capture = "graph capture needs past and present in shared memory"
    if not shared and (grouped or captures(config, "decoder")):
        place = "search.past_present_share_buffer"
        text = f"{place} is not true: {why if grouped else capture}"
        yield finding("DP859", text, node=place, remedy="write true")
    if shared and beams > 1 and not grouped:
        text = f"search.num_beams is {beams}, so that past and present are not shared: {capture}"
        yield finding("DP860", text, node="search.num_beams", remedy="write 1")
    for place, text, remedy in cache_faults(config) if grouped else ():
        yield finding("DP860", f"{place} {text}", node=place, remedy=remedy)
    for place in ("engine", "model.mtp", "model.dflash2", "model.dspark"):
        if config.table(place):
            text = f"{place} is for og.Engine or og.MtpGenerator, which write wrong tokens on DirectML, or none"
            yield finding("DP860", text, node=place, severity="warning", remedy="use og.Generator")
