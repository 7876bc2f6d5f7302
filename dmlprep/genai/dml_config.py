"""genai_config.json for DirectML, and for the CPU: the user's text with what has to be another, and nothing else.

What onnxruntime-genai 0.12.2 and 0.18.0 read of the options of ``dml`` is ``device_index``, ``luid`` and, in 0.18,
``enable_graph_capture`` (src/ep/dml/session_options.cpp, and the libraries of both packages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlprep.genai.json_text import JsonText
from dmlprep.record import Finding, finding

__all__ = ["DmlOptions", "for_cpu", "for_dml"]


@dataclass(frozen=True)
class DmlOptions:
    """Options of the DirectML provider that the user sets.

    Attributes:
        device_index: the adapter, counted from 0 in the order in which Windows lists them by performance.
        graph_capture: ``None``: on where the decoder allows it.
    """

    device_index: int | None = None
    graph_capture: bool | None = None


def for_dml(text: str, options: DmlOptions, *, capture: bool, why_not: str, grouped: bool) -> tuple[str, list[Finding]]:
    """The configuration for DirectML.

    Args:
        text: the document as it came, without a byte-order mark.
        capture: whether every compute node of the decoder runs on DirectML.
        why_not: why not, where it is not.
        grouped: whether a decoder has GroupQueryAttention.

    Returns:
        the text, and findings on what was changed.
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
    if options.device_index is not None:
        wanted["device_index"] = str(options.device_index)
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
