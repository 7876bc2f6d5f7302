"""genai_config.json for DirectML, and for the CPU: the user's text with what has to be another, and nothing else.

What onnxruntime-genai 0.12.2 and 0.18.0 read of the options of ``dml`` is ``device_index``, ``luid`` and, in 0.18,
``enable_graph_capture`` (src/ep/dml/session_options.cpp, and the libraries of both packages).
``device_filtering_options`` stands inside the provider's object; beside it genai refuses the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlprep.errors import UsageError
from dmlprep.genai.json_text import JsonText
from dmlprep.record import Finding, finding

__all__ = ["VENDORS", "DeviceFilter", "DmlOptions", "for_cpu", "for_dml", "read_device_filter"]

VENDORS = {"nvidia": 0x10DE, "amd": 0x1002, "intel": 0x8086, "qualcomm": 0x4D4F4351, "microsoft": 0x1414}
"""PCI vendor ids as DXGI gives them (pcisig.com; Qualcomm's adapters give the letters QCOM)."""

_TYPES = ("cpu", "gpu", "npu")
_UNREAD = (
    "onnxruntime-genai 0.12.2 and 0.18.0 do not read it for DirectML: they take the adapter that Windows lists first "
    "by performance, or the one that device_index or luid names"
)


@dataclass(frozen=True)
class DeviceFilter:
    """``device_filtering_options``: on which hardware genai opens sessions.

    Attributes:
        vendor: PCI vendor id.
        device: the hardware's own PCI device id, not its place in a list.
    """

    type: str | None = None
    device: int | None = None
    vendor: int | None = None

    def options(self) -> dict[str, Any]:
        """As genai_config.json has them."""
        named = {
            "hardware_device_type": self.type,
            "hardware_device_id": self.device,
            "hardware_vendor_id": self.vendor,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class DmlOptions:
    """What is asked for of the provider.

    Attributes:
        device_id: which adapter, in the order of performance.
        graph_capture: ``None``: on where the decoder allows it.
    """

    device_id: int | None = None
    performance_preference: str = ""
    device_filter: DeviceFilter = DeviceFilter()
    graph_capture: bool | None = None


def read_device_filter(texts: Sequence[str]) -> DeviceFilter:
    """``vendor=nvidia``, ``vendor=0x10de``, ``type=gpu``, ``device=9860``.

    Raises:
        UsageError: a name or a value is not known, or given twice.
    """
    found: dict[str, str | int] = {}
    where = "--device-filter"
    for text in (part for given in texts for part in given.split(",")):
        name, equals, value = (part.strip().lower() for part in text.partition("="))
        if name not in ("vendor", "type", "device") or not equals or not value:
            fix = "write vendor=nvidia, type=gpu or device=NUMBER"
            raise UsageError(f"{text.strip()!r} is no filter of devices", where=where, fix=fix)
        if name in found:
            raise UsageError(f"{name} is given twice", where=where, fix="give it once")
        if name == "type":
            if value not in _TYPES:
                raise UsageError(f"there is no type {value!r}", where=where, fix=f"one of {', '.join(_TYPES)}")
            found[name] = value
            continue
        number = VENDORS.get(value) if name == "vendor" else None
        found[name] = _number(value, name) if number is None else number
    return DeviceFilter(**found)  # type: ignore[arg-type]


def _number(text: str, name: str) -> int:
    plain = re.fullmatch(r"0x[0-9a-f]{1,8}|[0-9]{1,10}", text)
    number = int(text, 0 if text.startswith("0x") else 10) if plain else -1
    if not 0 <= number < 1 << 32:
        names = f" or one of {', '.join(VENDORS)}" if name == "vendor" else ""
        raise UsageError(
            f"{text!r} is no {name} id", where="--device-filter", fix=f"a PCI id, as 4318 or 0x10de{names}"
        )
    return number


def for_dml(text: str, options: DmlOptions, *, capture: bool, why_not: str, grouped: bool) -> tuple[str, list[Finding]]:
    """The configuration for DirectML.

    Args:
        text: the document as it came, without a byte-order mark.
        capture: whether every compute node of the decoder runs on DirectML.
        why_not: why not, where it is not.
        grouped: whether a decoder has GroupQueryAttention.

    Returns:
        the text, and what was changed or cannot have an effect.
    """
    document, found = JsonText(text), list[Finding]()
    capture = capture if options.graph_capture is None else options.graph_capture
    if not capture:
        reason = "--no-graph-capture" if options.graph_capture is False else why_not
        found.append(finding("DP874", f"graph capture is off: {reason}"))
    for section in sorted(_sections(document.get([])), key=len):
        within = [*section, "session_options"]
        captured = ("1" if capture else "0") if section[-1] == "decoder" else ""
        _provider(document, within, options, captured, found)
        if document.get([*within, "enable_mem_pattern"]) is True:
            document.set([*within, "enable_mem_pattern"], False)
            text = "enable_mem_pattern is false now: DirectML's provider allows no memory pattern"
            found.append(finding("DP875", f"{_shown(within)}: {text}"))
    if grouped:
        _search(document, found)
    for name, given in (
        ("device_filtering_options", bool(options.device_filter.options())),
        ("performance_preference", bool(options.performance_preference)),
    ):
        if given:
            found.append(finding("DP873", f"{name}: {_UNREAD}"))
    return document.text, found


def _provider(
    document: JsonText, within: Sequence[str | int], options: DmlOptions, captured: str, found: list[Finding]
) -> None:
    """Make ``dml`` the only provider of a session; what its object says besides stays.

    Args:
        captured: what ``enable_graph_capture`` is to say, which genai asks of the decoder alone; empty for nothing.
    """
    path = [*within, "provider_options"]
    listed = document.get(path)
    entries = listed if isinstance(listed, list) else []
    names = [name for entry in entries if isinstance(entry, Mapping) for name in entry]
    others = [name for name in names if not _is_dml(name)]
    if others:
        text = f"{_shown(path)}: {', '.join(dict.fromkeys(map(str, others)))} is not asked any more, dml is"
        found.append(finding("DP875", text))
    ours = ([*path, i, name] for i, e in enumerate(entries) if isinstance(e, Mapping) for name in e if _is_dml(name))
    place = next(ours, None)
    wanted: dict[str, Any] = {"enable_graph_capture": captured} if captured else {}
    if options.device_id is not None:
        wanted["device_index"] = str(options.device_id)
    if options.performance_preference:
        wanted["performance_preference"] = options.performance_preference
    if filtered := options.device_filter.options():
        wanted["device_filtering_options"] = filtered
    if place is None or others:
        kept = document.get(place) if place is not None else {}
        document.set(path, [{"dml": {**(kept if isinstance(kept, Mapping) else {}), **wanted}}])
        return
    for name, value in wanted.items():
        document.set([*place, name], value)


def _search(document: JsonText, found: list[Finding]) -> None:
    """What DirectML's GroupQueryAttention needs of the search (DP649)."""
    shared = ["search", "past_present_share_buffer"]
    if document.get(shared) is not True:
        document.set(shared, True)
        text = "past_present_share_buffer is true now: DirectML reads the cache only where both are one memory"
        found.append(finding("DP875", f"search: {text}"))
    if document.remove(["search", "chunk_size"]):
        text = "chunk_size is gone: DirectML computes several tokens behind a cache as if there were none"
        found.append(finding("DP875", f"search: {text}"))


def for_cpu(text: str) -> str:
    """The configuration for the CPU: no session asks for a provider. All else stays."""
    document = JsonText(text)
    for section in _sections(document.get([])):
        path = [*section, "session_options", "provider_options"]
        if document.get(path):
            document.set(path, [])
    return document.text


def _sections(document: Any) -> Iterator[list[str | int]]:
    """Where the configuration has options of sessions; always for the decoder, unless it is a pipeline."""
    yield from _below(document, [], 0)
    model = document.get("model", {}) if isinstance(document, Mapping) else {}
    decoder = model.get("decoder") if isinstance(model, Mapping) else None
    plain = isinstance(decoder, Mapping) and not decoder.get("pipeline")
    if plain and isinstance(decoder, Mapping) and not isinstance(decoder.get("session_options"), Mapping):
        yield ["model", "decoder"]


_DEPTH = 8
"""Of sections in one another; a stage of a decoder's pipeline is at five."""


def _below(value: Any, path: list[str | int], depth: int) -> Iterator[list[str | int]]:
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        if isinstance(value.get("session_options"), Mapping):
            yield path
        for name, inner in value.items():
            if name != "session_options":
                yield from _below(inner, [*path, name], depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _below(inner, [*path, index], depth + 1)


def _is_dml(name: object) -> bool:
    return str(name).lower().removesuffix("executionprovider") == "dml"


def _shown(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))
