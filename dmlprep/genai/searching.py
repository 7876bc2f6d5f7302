"""Options of the search, and how they fit the cache on DirectML."""

from __future__ import annotations

from collections.abc import Iterator

from dmlprep.genai.config import GenaiConfig
from dmlprep.genai.providers import captures, dml_provider
from dmlprep.record import Finding, finding


def shares_buffer(config: GenaiConfig) -> bool:
    """Whether past and present keys and values are one memory: onnxruntime-genai does so for one beam only."""
    return config.flag("search.past_present_share_buffer") is True and (config.number("search.num_beams") or 1) == 1


def search_findings(config: GenaiConfig, *, grouped: bool) -> Iterator[Finding]:
    """What of ``search`` contradicts the model's numbers, or the cache on DirectML.

    Args:
        grouped: the decoder has GroupQueryAttention.
    """
    most, context = config.number("search.max_length"), config.number("model.context_length")
    if most is not None and context is not None and most > context:
        text = f"search.max_length is {most}, beyond model.context_length {context}"
        yield finding("DP853", text, node="search.max_length", remedy=f"write at most {context}")
    least = config.number("search.min_length")
    if least is not None and most and least > most:
        text = f"search.min_length is {least}, beyond search.max_length {most}"
        yield finding("DP860", text, node="search.min_length", remedy=f"write at most {most}")
    top, words = config.number("search.top_k"), config.number("model.vocab_size")
    if top is not None and words and top > words:
        text = f"search.top_k is {top}, beyond model.vocab_size {words}"
        yield finding("DP860", text, node="search.top_k", remedy=f"write at most {words}")
    beams = config.number("search.num_beams") or 1
    returned = config.number("search.num_return_sequences") or 1
    if returned > beams:
        text = f"search.num_return_sequences is {returned}, and there are {beams} beams"
        yield finding("DP860", text, node="search.num_return_sequences", severity="warning")
    if dml_provider(config, "decoder") is not None:
        yield from _on_dml(config, beams, grouped)


def _on_dml(config: GenaiConfig, beams: int, grouped: bool) -> Iterator[Finding]:
    shared = config.flag("search.past_present_share_buffer") is True
    why = "GroupQueryAttention on DirectML reads the cache only where past and present are one memory (DP649)"
    capture = "graph capture needs past and present in one memory"
    if not shared and (grouped or captures(config, "decoder")):
        place = "search.past_present_share_buffer"
        text = f"{place} is not true: {why if grouped else capture}"
        yield finding("DP859", text, node=place, remedy="write true")
    if shared and beams > 1:
        text = f"search.num_beams is {beams}, so that past and present are not shared: {why if grouped else capture}"
        yield finding("DP860", text, node="search.num_beams", remedy="write 1")
    chunk = config.value("search.chunk_size")
    if grouped and isinstance(chunk, int | float) and not isinstance(chunk, bool) and chunk > 0:
        text = (
            f"search.chunk_size is {chunk:.10g}: the prompt would come in parts, and GroupQueryAttention on DirectML "
            "is wrong for several tokens behind a cache (DP649)"
        )
        yield finding("DP860", text, node="search.chunk_size", remedy="leave it out")
